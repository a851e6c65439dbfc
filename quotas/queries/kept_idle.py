"""What is kept idle for tenants, and what that adds up to."""

from collections.abc import Collection, Mapping
from typing import NamedTuple
from uuid import UUID

from django.db import connection

COSTS = """
SELECT holder_id, coalesce(sum((amounts ->> 'gpu')::numeric) FILTER (WHERE ended_at IS NULL AND until_at > now()), 0)::bigint,
       coalesce(sum((amounts ->> 'gpu')::numeric
           * extract(epoch FROM least(coalesce(ended_at, now()), until_at) - created_at)), 0)::float
  FROM quotas_keptidle WHERE holder_id = ANY(%s) GROUP BY holder_id
"""


class IdleCost(NamedTuple):
    """What is idle now for a holder, and what was so far."""

    milli_gpu: int
    milli_gpu_seconds: float


def idle_costs(holder_ids: Collection[UUID]) -> Mapping[UUID, IdleCost]:
    """By holder, if anything was ever kept idle for it. No query without ids."""
    if not holder_ids:
        return {}
    with connection.cursor() as cursor:
        cursor.execute(COSTS, [list(holder_ids)])
        return {holder_id: IdleCost(now, so_far) for holder_id, now, so_far in cursor.fetchall()}
