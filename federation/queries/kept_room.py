"""The room that is kept for waiting jobs: as a cycle reads it, and as people see it."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from django.db import connection
from django.db.models import QuerySet

from federation.models import KeptRoom
from placement.values import decisions as values
from tenancy.queries import Actor, tenant_by_path, visible_tenants

STANDING = """
SELECT job_id, cluster_id, nodes::text, since_at, until_at, again_at FROM federation_keptroom WHERE ended_at IS NULL
UNION ALL
SELECT job_id, cluster_id, nodes::text, since_at, until_at, again_at FROM federation_keptroom AS given
 WHERE outcome = 'given_up' AND again_at > %s
   AND NOT EXISTS (SELECT FROM federation_keptroom AS later WHERE later.job_id = given.job_id AND later.ended_at IS NULL)
 ORDER BY 4, 1
"""
COSTS = """
SELECT holder_id, coalesce(sum((amounts ->> 'gpu')::numeric) FILTER (WHERE ended_at IS NULL AND until_at > now()), 0)::bigint,
       coalesce(sum((amounts ->> 'gpu')::numeric
           * extract(epoch FROM least(coalesce(ended_at, now()), until_at) - created_at)), 0)::float
  FROM quotas_keptidle WHERE holder_id = ANY(%s) GROUP BY holder_id
"""
MILLI = 1000
HOUR = 3600


def load_kept(now: datetime) -> tuple[values.KeptRoom, ...]:
    """What is kept for jobs, and what was given up and rests. One query."""
    with connection.cursor() as cursor:
        cursor.execute(STANDING, [now])
        return tuple(
            values.KeptRoom(job_id, cluster_id, tuple(json.loads(nodes)), since, until, again)
            for job_id, cluster_id, nodes, since, until, again in cursor.fetchall()
        )


@dataclass(frozen=True, slots=True)
class Cost:
    """GPUs that are idle now, and the GPU-hours that were idle so far; the job's tenant is charged for them as for use."""

    idle_gpus: float = 0.0
    gpu_hours: float = 0.0


def kept_rooms(actor: Actor, tenant_path: str = "") -> QuerySet[KeptRoom]:
    """What is kept now for jobs that the actor may see; with `tenant_path`, for those of that tenant and below. Raises
    NotFound.
    """
    seen = visible_tenants(actor)
    if tenant_path:
        path = tenant_by_path(actor, tenant_path).path
        seen = seen.filter(path=path) | seen.filter(path__startswith=f"{path}/")
    return KeptRoom.objects.filter(ended_at=None, job__tenant__in=seen).select_related("job__tenant", "cluster")


def costs_of(rooms: list[KeptRoom]) -> Mapping[UUID, Cost]:
    """What these cost so far, by their ids. No query without any."""
    found = {room.id: Cost() for room in rooms}
    if found:
        with connection.cursor() as cursor:
            cursor.execute(COSTS, [list(found)])
            for holder_id, milli, milli_seconds in cursor.fetchall():
                found[holder_id] = Cost(milli / MILLI, milli_seconds / MILLI / HOUR)
    return found
