"""Records pods that ran while no observer watched, from their ended Job (`engine.unseen`), before settlement.

Their usage, and that of pods whose end was not seen, is estimated, and the job's timeline says so.
"""

from collections import Counter, defaultdict
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.db import connection
from django.db.models import Q

from federation.engine.unseen import WHY, Known, Tally, Unseen, unseen_runs, unseen_uid
from federation.models import Attempt, PodRun
from foundation.rows import as_parameters, columns_of, insertion

from . import figures, transitions

ENDED_JOBS = """
SELECT object.id, object.attempt_id, object.cluster_id, object.position, object.name,
       coalesce(object.completions, object.pods), object.pods, object.pods_over, object.began_at, object.over_at
  FROM federation_remoteobject AS object
 CROSS JOIN LATERAL (
       SELECT count(*) FILTER (WHERE pod.started_at IS NOT NULL) AS begun
         FROM federation_podrun AS pod WHERE pod.attempt_id = object.attempt_id AND pod.position = object.position) AS pods
 WHERE object.attempt_id = ANY(%s) AND object.pods_over > pods.begun
"""
KNOWN_PODS = """
SELECT remote_object_id, uid, index, place, started_at,
       CASE WHEN finished_at IS NOT NULL OR is_gone THEN greatest(started_at, finished_at, observed_at) END, last_seen_at
  FROM federation_podrun WHERE remote_object_id = ANY(%s) AND attempt_id = ANY(%s) AND place IS NOT NULL
"""
UNSEEN = {"node": "", "phase": "Unknown", "reason": WHY, "disruption": "", "is_estimated": True, "is_gone": True}
"""Alike for all of them, by column."""
UNSEEN_COLUMNS = columns_of(
    PodRun,
    without={
        "devices",
        "ending",
        "exit_code",
        "first_seen_at",
        "id",
        "init_step",
        "initializing_at",
        "message",
        "part",
        "resumed_at",
        "signal",
    },
)
WRITE_DOWN = f"""
{insertion(PodRun, UNSEEN_COLUMNS, alias="pod")}
ON CONFLICT (cluster_id, uid) DO UPDATE
   SET started_at = excluded.started_at, finished_at = excluded.finished_at, is_estimated = true, reason = excluded.reason,
       observed_at = excluded.observed_at
 WHERE pod.started_at IS NULL AND pod.attempt_id = excluded.attempt_id AND pod.position = excluded.position
"""


@dataclass(frozen=True, slots=True)
class _EndedJob:
    object_id: int
    attempt_id: UUID
    cluster_id: UUID
    position: int
    name: str
    tally: Tally


def write_down_unseen(attempt_ids: Collection[UUID]) -> None:
    """Records them in the transaction that settles these attempts, under its locks."""
    jobs = _ended_jobs(attempt_ids)
    if jobs:
        pods = _known_pods(jobs)
        rows = [_row(job, run) for job in jobs for run in unseen_runs(job.tally, pods[job.object_id])]
        if rows:
            with connection.cursor() as cursor:
                cursor.execute(WRITE_DOWN, as_parameters(UNSEEN, rows))
            figures.UNSEEN_PODS.inc(len(rows))
    _tell_estimated(attempt_ids)


def _ended_jobs(attempt_ids: Collection[UUID]) -> list[_EndedJob]:
    """Ended Jobs that counted more pods than were seen to start."""
    with connection.cursor() as cursor:
        cursor.execute(ENDED_JOBS, [list(attempt_ids)])
        return [
            _EndedJob(object_id, attempt_id, cluster_id, position, name, Tally(*counts))
            for object_id, attempt_id, cluster_id, position, name, *counts in cursor.fetchall()
        ]


def _known_pods(jobs: Collection[_EndedJob]) -> dict[int, list[Known]]:
    found: dict[int, list[Known]] = defaultdict(list)
    with connection.cursor() as cursor:
        cursor.execute(KNOWN_PODS, [[job.object_id for job in jobs], [job.attempt_id for job in jobs]])
        for object_id, *pod in cursor.fetchall():
            found[object_id].append(Known(*pod))
    return found


def _row(job: _EndedJob, run: Unseen) -> dict[str, Any]:
    return {
        "cluster_id": job.cluster_id, "attempt_id": job.attempt_id, "remote_object_id": job.object_id,
        "position": job.position, "index": run.index, "place": run.place, "name": f"{job.name}-{run.index}",
        "uid": run.uid or unseen_uid(job.object_id, run.index),
        "started_at": run.started_at, "finished_at": run.finished_at,
        "last_seen_at": run.started_at, "observed_at": run.finished_at,
    }  # fmt: skip


def _tell_estimated(attempt_ids: Collection[UUID]) -> None:
    """Adds the event once per attempt: a reopened settlement has already added it. Of a pod that vanished from a list, or was
    deleted without a reported end, only the latest possible end is known.
    """
    rows = PodRun.objects.filter(
        Q(last_seen_at__isnull=False) | Q(finished_at=None),
        attempt_id__in=attempt_ids,
        started_at__isnull=False,
        attempt__reopened_at=None,
    )
    pods = Counter(rows.values_list("attempt_id", flat=True))
    told = Attempt.objects.filter(id__in=pods).values_list("id", "job_id", "number")
    words = "The usage of attempt {} is estimated: no observer saw the end of {} of its pods."
    transitions.tell("estimated", {(job_id, id_): words.format(number, pods[id_]) for id_, job_id, number in told})
