"""When running jobs are expected to end, and the room that they free."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from django.db import connection

from federation.engine.lifecycle import AttemptState
from federation.models import Job
from federation.queries.kinds import kind_of, known_kind, runtimes_of_kinds
from foundation.caches import reset_with
from foundation.clock import monotonic
from placement.ranking.runtimes import best_known, expected_end
from placement.values.model import Release

KEEP_SECONDS = 1.0
REST = 10
"""A state that took one second to load is kept for ten seconds."""
COUNTED = [AttemptState.RESERVED, AttemptState.CREATED, AttemptState.STARTING, AttemptState.RUNNING]
"""The ends of attempts on silent clusters cannot be predicted."""

RUNNING = """
SELECT attempt.cluster_id, coalesce(attempt.started_at, %s), job.id, job.tenant_id, job.shape, job.name,
       (job.spec->>'estimated_seconds')::int, (job.spec->>'deadline_seconds')::int,
       attempt.pace,
       object.flavor, object.gpu_units, object.cpu_millicores, object.memory_mib, object.resources::text, object.assumed_nodes::text,
       (SELECT array_agg(pod.node) FROM federation_podrun AS pod
         WHERE pod.attempt_id = attempt.id AND pod.position = object.position AND pod.node <> ''
           AND pod.finished_at IS NULL AND NOT pod.is_gone)
  FROM federation_attempt AS attempt
  JOIN federation_job AS job ON job.id = attempt.job_id
  JOIN federation_remoteobject AS object ON object.attempt_id = attempt.id AND object.outcome = ''
 WHERE attempt.state = ANY(%s)
 ORDER BY attempt.id, object.position
"""


@dataclass(slots=True)
class _Memory:
    """What this process loaded last."""

    releases: tuple[Release, ...] = ()
    until: float = 0.0


_memory = _Memory()


@reset_with
def _forget() -> None:
    _memory.until = 0.0


def load_releases(now: datetime) -> tuple[Release, ...]:
    """The expected releases, as far as they are known; at most a few seconds old."""
    began = monotonic()
    if began >= _memory.until:
        _memory.releases = _load(now)
        spent = monotonic() - began
        _memory.until = began + spent + max(KEEP_SECONDS, REST * spent)
    return tuple(one for one in _memory.releases if one.at > now)


@dataclass(frozen=True, slots=True)
class _Row:
    cluster_id: UUID
    started_at: datetime
    job_id: UUID
    tenant_id: UUID
    shape: str
    name: str
    estimated_seconds: int | None
    deadline_seconds: int | None
    pace: float
    flavor: str
    units: int
    cpu_millicores: int
    memory_mib: int
    resources: str
    assumed: str
    seen: Sequence[str] | None


def _load(now: datetime) -> tuple[Release, ...]:
    with connection.cursor() as cursor:
        cursor.execute(RUNNING, [now, [str(state) for state in COUNTED]])
        rows = [_Row(*row) for row in cursor.fetchall()]
    kinds = _kinds(rows)
    runtimes = runtimes_of_kinds(set(kinds.values()))
    found = []
    for row in rows:
        history = runtimes.get(kinds.get(row.job_id, ""))
        runtime = best_known(history, row.estimated_seconds, row.deadline_seconds, row.pace)
        end = expected_end(row.started_at, now, runtime)
        if end is not None:
            each = row.units, row.cpu_millicores, row.memory_mib
            others = tuple(sorted(json.loads(row.resources).items()))
            found.append(Release(end, row.cluster_id, row.flavor, *each, nodes_of(row.seen, row.assumed), others))
    return tuple(found)


def _kinds(rows: Sequence[_Row]) -> dict[UUID, str]:
    """Kinds by job. The process reads the specs of kinds that are new to it once."""
    found = {row.job_id: kind for row in rows if (kind := known_kind(row.tenant_id, row.name, row.shape)) is not None}
    missing = {(row.tenant_id, row.name, row.shape): row.job_id for row in rows if row.job_id not in found}
    for tenant_id, spec, shape in Job.objects.filter(id__in=missing.values()).values_list("tenant_id", "spec", "shape"):
        kind_of(tenant_id, spec, shape)
    for row in rows:
        kind = known_kind(row.tenant_id, row.name, row.shape)
        if kind is not None:
            found[row.job_id] = kind
    return found


def nodes_of(seen: Sequence[str] | None, assumed: str) -> Mapping[str, int]:
    """The nodes of an object's pods with their numbers; the assumed nodes (JSON) while no pod has been seen."""
    return Counter(seen) if seen else json.loads(assumed)
