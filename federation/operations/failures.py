"""The consequences of a Job's failure: the end of its job, or another attempt after nothing is left of this one.

A new attempt starts only after the cluster has confirmed that all objects of the failed one are gone, pods included. No
attempt starts while a pod of the failed one still runs, or its node is merely unreachable.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from django.db import connection

from federation.engine.lifecycle import AttemptState
from federation.engine.retries import INTERRUPTIONS, Cause, Failure, Told, cause_of, may_go_on, retries_of
from federation.models import LIVE_ATTEMPT_STATES, Attempt, PodRun, RemoteObject
from placement.values.reason_codes import ReasonCode

from . import transitions
from .transitions import Ending

_LATE = "DeadlineExceeded"
_CAUSES = frozenset(Cause)


@dataclass(frozen=True, slots=True)
class Again:
    """A failed attempt whose job is retried."""

    attempt_id: UUID
    cause: Cause
    message: str


def judge_failures(
    attempt_ids: set[UUID], words: Mapping[UUID, Sequence[str]]
) -> tuple[Sequence[Ending], Sequence[Again]]:
    """The consequences for attempts with a failed Job, with its failure message. Attempts already being stopped for it
    are skipped.
    """
    if not attempt_ids:
        return [], []
    rows = list(Attempt.objects.filter(id__any_of=attempt_ids, finished_at=None).select_related("job"))
    pods, capacity, ends = _pods(attempt_ids), _capacity(attempt_ids), _ends({row.job_id for row in rows})
    endings: list[Ending] = []
    again: list[Again] = []
    for attempt in rows:
        if attempt.stop_reason in _CAUSES:
            continue
        verdict = _verdict(attempt, pods[attempt.id], words.get(attempt.id, ()), capacity[attempt.id], ends)
        if isinstance(verdict, Again):
            again.append(verdict)
        else:
            endings.append(verdict)
    return endings, again


def _pods(attempt_ids: set[UUID]) -> Mapping[UUID, list[PodRun]]:
    found: dict[UUID, list[PodRun]] = defaultdict(list)
    for pod in PodRun.objects.filter(attempt_id__any_of=attempt_ids).order_by("finished_at", "id"):
        found[pod.attempt_id].append(pod)
    return found


def _capacity(attempt_ids: set[UUID]) -> Mapping[UUID, dict[int, str]]:
    """The capacity types that attempts run on, by the positions of their objects."""
    found: dict[UUID, dict[int, str]] = defaultdict(dict)
    rows = RemoteObject.objects.filter(attempt_id__any_of=attempt_ids)
    for attempt_id, position, capacity_type in rows.values_list("attempt_id", "position", "capacity_type"):
        found[attempt_id][position] = capacity_type
    return found


def _ends(job_ids: set[UUID]) -> Mapping[UUID, list[str]]:
    found: dict[UUID, list[str]] = defaultdict(list)
    rows = Attempt.objects.filter(job_id__any_of=job_ids, finished_at__isnull=False)
    for job_id, reason in rows.values_list("job_id", "end_reason"):
        found[job_id].append(reason)
    return found


def _verdict(
    attempt: Attempt,
    pods: Sequence[PodRun],
    words: Sequence[str],
    capacity: Mapping[int, str],
    ends: Mapping[UUID, Sequence[str]],
) -> Ending | Again:
    told = [Told(pod.disruption, pod.reason, capacity.get(pod.position, "")) for pod in pods]
    cause = cause_of(Failure(told, words, frozenset(capacity.values())))
    ending = _ending(attempt.id, cause, pods)
    if attempt.stop_requested_at is not None or any(said.startswith(_LATE) for said in words):
        return ending
    if may_go_on(retries_of(attempt.job.spec), cause, [*ends[attempt.job_id], cause]):
        return Again(attempt.id, cause, ending.message)
    return ending


def _ending(attempt_id: UUID, cause: Cause, pods: Sequence[PodRun]) -> Ending:
    if cause != Cause.PROGRAM:
        return Ending(attempt_id, AttemptState.FAILED, cause, _what_happened(pods))
    pod = next((pod for pod in pods if pod.exit_code), None)
    if pod is None:
        return Ending(
            attempt_id, AttemptState.FAILED, ReasonCode.JOB_FAILED, "The Job failed; no pod reported an exit code."
        )
    message = f"Pod {pod.name} ended with exit code {pod.exit_code}" + (f": {pod.reason}" if pod.reason else "")
    return Ending(attempt_id, AttemptState.FAILED, cause, message, exit_code=pod.exit_code)


def _what_happened(pods: Sequence[PodRun]) -> str:
    pod = next((pod for pod in pods if pod.disruption), None)
    if pod is None:
        return "One of its pods was removed from its node; the cluster does not report why."
    place = f"from node {pod.node}" if pod.node else "before it had a node"
    return f"Pod {pod.name} was removed {place}: {pod.disruption}"


def stop_for_another(again: Sequence[Again]) -> None:
    """Makes dispatch remove the rest of these attempts; then they end with their cause, and their jobs are queued
    again.

    The caller holds the locks of their jobs.
    """
    for one in again:
        rows = Attempt.objects.filter(id=one.attempt_id, state__in=LIVE_ATTEMPT_STATES, stop_requested_at=None)
        for attempt in rows:
            told = f"Attempt {attempt.number} was interrupted. {one.message}. Its job continues when the attempt's objects are removed."
            transitions.interrupt(attempt, one.cause, one.message, told)


NOTE_LOST_WORK = """
WITH ran AS (
    SELECT attempt_id, min(started_at) AS began, max(coalesce(finished_at, observed_at)) AS ended,
           extract(epoch FROM max(coalesce(finished_at, observed_at)) - min(started_at))::bigint AS seconds
      FROM federation_podrun WHERE attempt_id = ANY(%s) AND started_at IS NOT NULL GROUP BY attempt_id
)
UPDATE federation_attempt AS attempt
   SET lost_seconds = CASE WHEN (job.spec->>'checkpoint_seconds') IS NULL THEN ran.seconds
                           ELSE ran.seconds %% (job.spec->>'checkpoint_seconds')::bigint END
  FROM ran, federation_job AS job
 WHERE attempt.id = ran.attempt_id AND job.id = attempt.job_id AND attempt.end_reason = ANY(%s)
RETURNING attempt.id, CASE WHEN (job.spec->>'checkpoint_seconds') IS NULL THEN ran.began
                           ELSE ran.ended - attempt.lost_seconds * interval '1 second' END
"""


def note_lost_work(attempt_ids: Sequence[UUID]) -> Mapping[UUID, datetime]:
    """The time from which on interrupted attempts lost their work: their last checkpoint, or their start. Their jobs
    repeat it.
    """
    with connection.cursor() as cursor:
        cursor.execute(NOTE_LOST_WORK, [list(attempt_ids), sorted(INTERRUPTIONS)])
        return dict(cursor.fetchall())
