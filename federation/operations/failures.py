"""The consequences of a Job's failure: the end of its job, or another attempt after nothing is left of this one.

A new attempt starts only after the cluster has confirmed that all objects of the failed one are gone, pods included. No
attempt starts while a pod of the failed one still runs, or its node is merely unreachable.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from uuid import UUID

from django.db import connection

from federation.engine.failures.diagnoses import Diagnosis, NeedsLog, judge, next_step_text
from federation.engine.failures.rules import NOT_OURS, Step
from federation.engine.lifecycle import AttemptState
from federation.engine.retries import INTERRUPTIONS, Cause
from federation.models import LIVE_ATTEMPT_STATES, Attempt, PodRun
from federation.queries.failures import Case, cases_of, unfollowed_pods
from placement.values.reason_codes import ReasonCode

from . import diagnoses, transitions
from .consequences import Ending

_STOPPED = (
    ReasonCode.SUSPENDED,
    ReasonCode.MAINTENANCE_BEGAN,
    ReasonCode.PREEMPTED_FOR_JOB,
    ReasonCode.LIMIT_LOWERED,
    ReasonCode.MIGRATED,
)
"""The reasons of stop requests to jobs that did not fail."""
_REPEATED = {*INTERRUPTIONS, *_STOPPED}
"""The reasons of ends after which the job repeats the work since its last checkpoint."""
_BEING_CLEARED = [*Cause, *_STOPPED]
"""The reasons of stop requests that a Job's failure does not change: nothing follows until nothing of the attempt is left."""


@dataclass(frozen=True, slots=True)
class Again:
    """A failed attempt whose job is retried. `memory` is what pod sets get more of, by name."""

    attempt_id: UUID
    cause: Cause
    message: str
    diagnosis: Diagnosis
    memory: Mapping[str, int] | None = None


@dataclass(frozen=True, slots=True)
class Judged:
    """The consequences of failed attempts. `open` are those whose diagnosis needs what only the cluster can show, with
    their Jobs' failure messages.
    """

    endings: Sequence[Ending] = ()
    again: Sequence[Again] = ()
    open: Mapping[UUID, Sequence[str]] = field(default_factory=dict)
    kept_seconds: Mapping[UUID, int] = field(default_factory=dict)
    """Of these, those whose place is kept meanwhile, because a rule that may match keeps it; and for how long."""


def judge_failures(attempt_ids: set[UUID], words: Mapping[UUID, Sequence[str]]) -> Judged:
    """The consequences for attempts with a failed Job, with its failure message. Attempts already being stopped for it or
    because a user suspended their job, maintenance began or a more urgent job takes their place, and those whose diagnosis is open, are skipped.
    """
    if not attempt_ids:
        return Judged()
    rows = Attempt.objects.filter(id__any_of=attempt_ids, finished_at=None).exclude(stop_reason__in=_BEING_CLEARED)
    asked = diagnoses.asked_of(attempt_ids)
    rows = rows.select_related("job__tenant")
    attempts = [row for row in rows if row.id not in asked or row.stop_requested_at is not None]
    endings: list[Ending] = []
    again: list[Again] = []
    unknown: dict[UUID, Sequence[str]] = {}
    kept: dict[UUID, int] = {}
    for case in cases_of(attempts, words):
        if case.attempt.stop_requested_at is not None:
            endings.append(ending_of(case))
            continue
        diagnosis = judge(case.rule_sets, case.facts, case.history)
        if isinstance(diagnosis, NeedsLog) or diagnosis.step == Step.MORE_MEMORY:
            unknown[case.attempt.id] = case.facts.told
            if isinstance(diagnosis, NeedsLog) and diagnosis.kept_seconds:
                kept[case.attempt.id] = diagnosis.kept_seconds
        elif diagnosis.goes_on:
            again.append(again_of(case, diagnosis))
        else:
            endings.append(ending_of(case, diagnosis))
    return Judged(endings, again, unknown, kept)


def again_of(case: Case, diagnosis: Diagnosis, memory: Mapping[str, int] | None = None) -> Again:
    """The attempt is cleared away, and its job retried."""
    return Again(case.attempt.id, case.cause, ending_of(case).message, diagnosis, memory)


def ending_of(case: Case, diagnosis: Diagnosis | None = None) -> Ending:
    """The end of the attempt, if nothing follows."""
    pods = list(unfollowed_pods([case.attempt.id]))
    return replace(_ending(case.attempt.id, case.cause, pods), diagnosis=diagnosis)


def _ending(attempt_id: UUID, cause: Cause, pods: Sequence[PodRun]) -> Ending:
    if cause != Cause.PROGRAM:
        return Ending(attempt_id, AttemptState.FAILED, cause, _what_happened(pods))
    pod = next((pod for pod in pods if pod.exit_code), None)
    if pod is None:
        return Ending(
            attempt_id, AttemptState.FAILED, ReasonCode.JOB_FAILED, "The Job failed; no pod reported an exit code."
        )
    colon = "" if pod.init_step is None else ":"
    message = f"Pod {pod.name}{colon} {pod.end_text}" + (f": {pod.reason}" if pod.reason else "")
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
            follows = next_step_text(one.diagnosis, one.memory)
            told = f"Attempt {attempt.number} was interrupted. {one.message}. {follows} First, the attempt's objects are removed."
            diagnoses.store(attempt.id, one.diagnosis, one.memory)
            transitions.interrupt([attempt], one.cause, one.message, told)


NOTE_LOST_WORK = """
WITH ran AS (
    SELECT attempt_id, min(started_at) AS began, max(coalesce(finished_at, observed_at)) AS ended,
           extract(epoch FROM max(coalesce(finished_at, observed_at)) - min(started_at))::bigint AS seconds
      FROM federation_podrun WHERE attempt_id = ANY(%s) AND started_at IS NOT NULL GROUP BY attempt_id
), saved AS (
    SELECT DISTINCT ON (ran.attempt_id) ran.attempt_id,
           greatest(ran.began, least(ran.ended, checkpoint.written_at)) AS at
      FROM ran JOIN federation_checkpoint AS checkpoint ON checkpoint.attempt_id = ran.attempt_id
     ORDER BY ran.attempt_id, checkpoint.sequence DESC
)
UPDATE federation_attempt AS attempt
   SET lost_seconds = CASE WHEN saved.at IS NOT NULL THEN extract(epoch FROM ran.ended - saved.at)::bigint
                           WHEN (job.spec->>'checkpoint_seconds') IS NULL THEN ran.seconds
                           ELSE ran.seconds %% (job.spec->>'checkpoint_seconds')::bigint END
  FROM ran LEFT JOIN saved ON saved.attempt_id = ran.attempt_id, federation_job AS job
 WHERE attempt.id = ran.attempt_id AND job.id = attempt.job_id
   AND (attempt.end_reason = ANY(%s)
        OR EXISTS (SELECT FROM federation_diagnosis AS diagnosis
                    WHERE diagnosis.attempt_id = attempt.id AND diagnosis.own_class = ANY(%s)))
RETURNING attempt.id, CASE WHEN saved.at IS NOT NULL THEN saved.at
                           WHEN (job.spec->>'checkpoint_seconds') IS NULL THEN ran.began
                           ELSE ran.ended - attempt.lost_seconds * interval '1 second' END
"""


def note_lost_work(attempt_ids: Sequence[UUID]) -> Mapping[UUID, datetime]:
    """The time from which on attempts that were interrupted or suspended, or that the infrastructure failed, lost their
    work: the last checkpoint that they reported, else the last that their job's interval implies, or their start. Their
    jobs repeat it.
    """
    with connection.cursor() as cursor:
        cursor.execute(NOTE_LOST_WORK, [list(attempt_ids), sorted(_REPEATED), sorted(NOT_OURS)])
        return dict(cursor.fetchall())
