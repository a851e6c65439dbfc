"""The room that is kept for waiting jobs: as a cycle reads it, and as people see it."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from django.db import connection
from django.db.models import QuerySet

import quotas.queries
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
AWAITING = """
SELECT wait.job_id, wait.cluster_id FROM federation_datawait AS wait
  JOIN federation_keptroom AS kept ON kept.job_id = wait.job_id AND kept.ended_at IS NULL
 WHERE wait.ended_at IS NULL
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


def jobs_that_await_data() -> dict[UUID, UUID]:
    """The jobs that wait for data while room is kept for them, with the clusters of their waits. One query."""
    with connection.cursor() as cursor:
        cursor.execute(AWAITING)
        return dict(cursor.fetchall())


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
    costs = quotas.queries.idle_costs([room.id for room in rooms])
    nothing = quotas.queries.IdleCost(0, 0.0)
    return {
        room.id: Cost(one.milli_gpu / MILLI, one.milli_gpu_seconds / MILLI / HOUR)
        for room in rooms
        for one in [costs.get(room.id, nothing)]
    }
