"""What clusters report, turned into guarded moves. A cluster speaks only for attempts that it was given.

An observation counts when the object's uid is the one we stored for an attempt on that very cluster; labels alone
prove nothing. Observations may come late, twice and in any order: terminal states absorb, instants are kept once known.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from django.db import connection, transaction
from django.db.models import Q
from django.db.models.functions import Now

from clusters.drivers import JobSeen, PodSeen
from federation.engine.lifecycle import AttemptState, JobState
from federation.locks import lock_jobs_of
from federation.models import ATTEMPT_LIFECYCLE, JOB_LIFECYCLE, Attempt, JobEvent, PodRun, RemoteObject
from foundation import clock
from foundation.rows import insert_rows

from .endings import Ending, end_attempts

TOLERANCE = timedelta(seconds=2)
"""Kubernetes writes whole seconds, and clocks differ a little: instants this far outside our own bounds are believed."""
OWNER_UID = "batch.kubernetes.io/controller-uid"


@dataclass(frozen=True, slots=True)
class Observations:
    """What one cluster reported since last time: objects as they are, and uids of those that are gone."""

    jobs: Sequence[JobSeen] = ()
    pods: Sequence[PodSeen] = ()
    gone_jobs: Sequence[str] = ()
    gone_pods: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class _Known:
    object_id: int
    attempt_id: UUID
    position: int
    committed_at: datetime | None


def record_observations(cluster_id: UUID, seen: Observations) -> int:
    """The number of attempts concerned."""
    uids = {job.uid for job in seen.jobs} | set(seen.gone_jobs) | {_owner(pod) for pod in seen.pods}
    known = _known_objects(cluster_id, uids)
    with transaction.atomic():
        _record_pods(known, seen.pods)
        _mark_gone(cluster_id, seen.gone_pods)
        _record_outcomes(known, seen.jobs)
        concerned = {item.attempt_id for item in known.values()}
        begun = _begun(concerned)
        gone = {known[uid].attempt_id for uid in seen.gone_jobs if uid in known}
        endings = [*_finished(concerned), *vanished_endings(gone)]
        lock_jobs_of({*begun, *(ending.attempt_id for ending in endings)})
        _start(begun)
        end_attempts(endings)
    return len(concerned)


def _owner(pod: PodSeen) -> str:
    return pod.labels.get(OWNER_UID, "")


def _known_objects(cluster_id: UUID, uids: Iterable[str]) -> dict[str, _Known]:
    rows = RemoteObject.objects.filter(uid__any_of=set(uids) - {""}, attempt__cluster_id=cluster_id)
    columns = rows.values_list("uid", "id", "attempt_id", "position", "attempt__starting_at")
    return {
        uid: _Known(object_id, attempt_id, position, starting_at)
        for uid, object_id, attempt_id, position, starting_at in columns
    }


UPSERT_PODS = """
INSERT INTO federation_podrun AS pod
       (attempt_id, position, uid, name, node, phase, reason, started_at, finished_at, exit_code, is_gone, observed_at)
SELECT seen.attempt_id, seen.position, seen.uid, seen.name, seen.node, seen.phase, seen.reason,
       seen.started_at, seen.finished_at, seen.exit_code, false, now()
  FROM unnest(%s::uuid[], %s::int[], %s::text[], %s::text[], %s::text[], %s::text[], %s::text[],
              %s::timestamptz[], %s::timestamptz[], %s::int[])
       AS seen(attempt_id, position, uid, name, node, phase, reason, started_at, finished_at, exit_code)
ON CONFLICT (uid) DO UPDATE
   SET node = coalesce(nullif(excluded.node, ''), pod.node),
       phase = excluded.phase,
       reason = excluded.reason,
       started_at = coalesce(pod.started_at, excluded.started_at),
       finished_at = excluded.finished_at,
       exit_code = excluded.exit_code,
       observed_at = excluded.observed_at
 WHERE pod.finished_at IS NULL
   AND (pod.phase, pod.node, pod.reason, pod.started_at, pod.finished_at)
       IS DISTINCT FROM (excluded.phase, excluded.node, excluded.reason, excluded.started_at, excluded.finished_at)
"""


def _record_pods(known: dict[str, _Known], pods: Sequence[PodSeen]) -> None:
    """Writes the pods of known objects; a pod seen to have ended is never changed again."""
    newest = {pod.uid: pod for pod in pods if _owner(pod) in known}
    if not newest:
        return
    rows = [_row(known[_owner(pod)], pod) for _, pod in sorted(newest.items())]
    with connection.cursor() as cursor:
        cursor.execute(UPSERT_PODS, [list(column) for column in zip(*rows, strict=True)])


def _row(known: _Known, pod: PodSeen) -> tuple[object, ...]:
    started_at, finished_at = _believable(known, pod)
    return (
        known.attempt_id, known.position, pod.uid, pod.name, pod.node, pod.phase, pod.reason[:300],
        started_at, finished_at, pod.exit_code,
    )  # fmt: skip


def _believable(known: _Known, pod: PodSeen) -> tuple[datetime | None, datetime | None]:
    """The pod's instants, clamped to between our release and now: a cluster with a wrong clock cannot bill the past."""
    latest = clock.now() + TOLERANCE
    earliest = (known.committed_at or latest) - TOLERANCE
    started_at = None if pod.started_at is None else min(max(pod.started_at, earliest), latest)
    if pod.finished_at is None:
        return started_at, None
    return started_at, max(min(pod.finished_at, latest), started_at or earliest)


def _mark_gone(cluster_id: UUID, uids: Sequence[str]) -> None:
    """A pod that vanished without having been seen to end: its end is unknown, the latest moment it can be is now."""
    if uids:
        PodRun.objects.filter(uid__any_of=uids, attempt__cluster_id=cluster_id, is_gone=False).update(
            is_gone=True, observed_at=Now()
        )


def _record_outcomes(known: dict[str, _Known], jobs: Sequence[JobSeen]) -> None:
    alike: dict[str, list[int]] = defaultdict(list)
    for job in jobs:
        if job.outcome and job.uid in known:
            alike[job.outcome].append(known[job.uid].object_id)
    for outcome, ids in alike.items():
        RemoteObject.objects.filter(id__any_of=ids, outcome="").update(outcome=outcome, ended_at=Now())


def _begun(attempt_ids: set[UUID]) -> list[UUID]:
    """Attempts of which a pod has been seen to run, and which are not yet known to."""
    waiting = ATTEMPT_LIFECYCLE.sources(AttemptState.RUNNING)
    rows = Attempt.objects.filter(id__any_of=attempt_ids, state__in=waiting, pods__started_at__isnull=False)
    return list(rows.distinct().values_list("id", flat=True))


START_ATTEMPTS = """
UPDATE federation_attempt AS attempt
   SET state = 'running', started_at = first.at
  FROM (SELECT attempt_id, min(started_at) AS at FROM federation_podrun WHERE attempt_id = ANY(%s) GROUP BY attempt_id) AS first
 WHERE attempt.id = first.attempt_id AND attempt.state = ANY(%s)
RETURNING attempt.id, attempt.job_id, attempt.number
"""
START_JOBS = """
UPDATE federation_job AS job
   SET state = 'running', started_at = coalesce(job.started_at, attempt.started_at),
       reason_code = '', reason_message = '', reason_at = now()
  FROM federation_attempt AS attempt
 WHERE attempt.id = ANY(%s) AND job.id = attempt.job_id AND job.state = ANY(%s)
"""


def _start(attempt_ids: Sequence[UUID]) -> None:
    """The attempts, and those of their jobs that are not being cancelled, are running now."""
    if not attempt_ids:
        return
    with connection.cursor() as cursor:
        cursor.execute(START_ATTEMPTS, [list(attempt_ids), sorted(ATTEMPT_LIFECYCLE.sources(AttemptState.RUNNING))])
        started = cursor.fetchall()
        cursor.execute(START_JOBS, [[row[0] for row in started], sorted(JOB_LIFECYCLE.sources(JobState.RUNNING))])
    at = clock.now()
    insert_rows(
        [
            JobEvent(job_id=job_id, attempt_id=attempt_id, at=at, kind="running", message=f"Attempt {number} runs.")
            for attempt_id, job_id, number in started
        ]
    )


def _finished(attempt_ids: set[UUID]) -> list[Ending]:
    """Attempts of which one object failed or all succeeded."""
    by_attempt: dict[UUID, list[str]] = defaultdict(list)
    rows = RemoteObject.objects.filter(attempt_id__any_of=attempt_ids, attempt__finished_at=None)
    for attempt_id, outcome in rows.values_list("attempt_id", "outcome"):
        by_attempt[attempt_id].append(outcome)
    failed = [attempt_id for attempt_id, outcomes in by_attempt.items() if "failed" in outcomes]
    done = [attempt_id for attempt_id, outcomes in by_attempt.items() if set(outcomes) == {"succeeded"}]
    return [
        *(Ending(attempt_id, AttemptState.SUCCEEDED, "completed", exit_code=0) for attempt_id in done),
        *(_failure(attempt_id) for attempt_id in failed),
    ]


def _failure(attempt_id: UUID) -> Ending:
    pod = (
        PodRun.objects.filter(attempt_id=attempt_id)
        .filter(~Q(exit_code=0), exit_code__isnull=False)
        .order_by("finished_at")
        .first()
    )
    if pod is None:
        return Ending(attempt_id, AttemptState.FAILED, "job_failed", "The Job failed; no pod told an exit code.")
    message = f"Pod {pod.name} ended with exit code {pod.exit_code}" + (f": {pod.reason}" if pod.reason else "")
    return Ending(attempt_id, AttemptState.FAILED, "program_failed", message, exit_code=pod.exit_code)


def vanished_endings(attempt_ids: set[UUID]) -> list[Ending]:
    """Attempts whose object was deleted: what we asked for, or somebody's hand."""
    endings = []
    rows = Attempt.objects.filter(id__any_of=attempt_ids, finished_at=None)
    for attempt_id, state, stop_reason, stopped in rows.values_list("id", "state", "stop_reason", "stop_requested_at"):
        endings.append(_vanished_ending(attempt_id, AttemptState(state), stop_reason if stopped else ""))
    return endings


def _vanished_ending(attempt_id: UUID, state: AttemptState, stop_reason: str) -> Ending:
    never_committed = state in (AttemptState.RESERVED, AttemptState.CREATED)
    if stop_reason == "cancelled" and not never_committed:
        return Ending(attempt_id, AttemptState.CANCELLED, "cancelled")
    if never_committed:
        return Ending(attempt_id, AttemptState.ABANDONED, stop_reason or "object_deleted")
    if stop_reason:
        return Ending(attempt_id, AttemptState.PREEMPTED, stop_reason)
    return Ending(
        attempt_id,
        AttemptState.FAILED,
        "object_deleted",
        "Its object was deleted on the cluster by someone else; it is not run again.",
    )
