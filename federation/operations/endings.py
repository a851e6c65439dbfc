"""How attempts end, and the consequences for their jobs: the only way into every terminal state (`transitions` writes
it).

Callers hold a transaction. The consequence of an ended attempt for its job:

    the job is being cancelled      → cancelled, whatever the cluster reports (cancellation is final)
    it would go back to the queue, and a user
    has suspended the job           → suspended, until a user resumes it
    interrupted, with retries left  → back to the queue, by its retries (`engine.retries`)
    succeeded, failed               → the job ends the same way; the reason says which required artifacts are missing
    started in part                 → back to the queue, by its retries for infrastructure
    anything else                   → back to the queue, unless clusters refused it too often
"""

from collections.abc import Iterable, Mapping, Sequence
from uuid import UUID

from django.db.models.functions import Now

import billing.operations
import quotas.operations
from federation.engine.artifacts import unannounced_text
from federation.engine.failures.rules import Step
from federation.engine.in_part import IN_PART
from federation.engine.lifecycle import AttemptState, JobState
from federation.engine.retries import Cause, retries_of
from federation.locks import lock_attempts, lock_jobs_of
from federation.models import ATTEMPT_LIFECYCLE, Attempt, Diagnosis, Job
from federation.queries.artifacts import missing_artifacts
from federation.queries.sessions import was_unused
from placement.values.reason_codes import ReasonCode

from . import diagnoses, transitions
from .consequences import Consequence, Ended, Ending
from .images import remember_images
from .learning import remember_estimates, remember_runs

MOST_REFUSALS = 3
"""After this number of permanent refusals by clusters' API servers, a job fails instead of trying further clusters."""
REFUSED = ReasonCode.REFUSED_BY_CLUSTER
OBJECT_DELETED = ReasonCode.OBJECT_DELETED
_CAUSES = frozenset(Cause)
_GOES_ON = (JobState.QUEUED, JobState.SUSPENDED)


def end_attempts(endings: Iterable[Ending]) -> int:
    """The number of attempts that ended now. Those that had ended before, or were claimed again, do not change."""
    wanted = {ending.attempt_id: ending for ending in endings}
    if not wanted:
        return 0
    jobs = lock_jobs_of(wanted)
    ending = [
        (attempt, wanted[attempt.id])
        for attempt in lock_attempts(wanted).values()
        if _may_end(attempt, wanted[attempt.id])
    ]
    if not ending:
        return 0
    judged = diagnoses.conclude(ending)
    missing = missing_artifacts(
        (jobs[attempt.job_id], attempt) for attempt, end in ending if end.state == AttemptState.SUCCEEDED
    )
    ended = [
        Ended(attempt, end, job := jobs[attempt.job_id], _consequence(job, attempt, end, judged, missing))
        for attempt, end in ending
    ]
    transitions.end(ended)
    for one in ended:
        if one.consequence.state in _GOES_ON and (diagnosis := judged.get(one.attempt.id)) and diagnosis.memory:
            diagnoses.grow(one.job, diagnosis)
    _void_unstarted(ended)
    succeeded = [(one.job, one.attempt) for one in ended if one.ending.state == AttemptState.SUCCEEDED]
    remember_runs(succeeded)
    remember_images(succeeded)
    remember_estimates((one.job, one.attempt, one.ending.state == AttemptState.SUCCEEDED) for one in ended)
    return len(ended)


def _may_end(attempt: Attempt, ending: Ending) -> bool:
    if attempt.state not in ATTEMPT_LIFECYCLE.sources(ending.state):
        return False
    return ending.token is None or ending.token == attempt.claim_token


def _consequence(
    job: Job,
    attempt: Attempt,
    ending: Ending,
    judged: Mapping[UUID, Diagnosis],
    missing: Mapping[UUID, Sequence[str]],
) -> Consequence:
    if job.state == JobState.CANCELLING:
        if "session" in job.spec and was_unused(attempt.id):
            return Consequence(JobState.CANCELLED, ReasonCode.SESSION_IDLE, "It was not used.", ending.exit_code)
        return Consequence(JobState.CANCELLED, ReasonCode.CANCELLED, "Cancelled.", ending.exit_code)
    if ending.state == AttemptState.SUCCEEDED:
        names = missing.get(attempt.id)
        reason, words = (ReasonCode.ARTIFACTS_MISSING, unannounced_text(names)) if names else ("", "")
        return Consequence(JobState.SUCCEEDED, reason, words, ending.exit_code or 0)
    follows = _unless_suspended(job, attempt, ending, judged.get(attempt.id))
    if follows.state == JobState.QUEUED and job.is_to_be_suspended:
        return Consequence(JobState.SUSPENDED, ReasonCode.SUSPENDED, follows.message, wait_seconds=follows.wait_seconds)
    return follows


def _unless_suspended(job: Job, attempt: Attempt, ending: Ending, diagnosis: Diagnosis | None) -> Consequence:
    if ending.reason in _CAUSES and ending.reason == attempt.stop_reason:
        # It was removed so that the job may be retried (`failures`).
        return _again(job, attempt, "was interrupted", ending, diagnosis)
    if ending.state == AttemptState.FAILED or _is_given_up(job, ending, diagnosis):
        return Consequence(JobState.FAILED, ending.reason, ending.message, ending.exit_code)
    what = "is lost" if ending.state == AttemptState.LOST else "did not run"
    if ending.reason == ReasonCode.PODS_GONE:
        what = "was interrupted"
    if ending.reason in IN_PART:
        what = "ran only in part"
    if ending.reason in (
        ReasonCode.SUSPENDED,
        ReasonCode.MAINTENANCE_BEGAN,
        ReasonCode.PREEMPTED_FOR_JOB,
        ReasonCode.LIMIT_LOWERED,
        ReasonCode.MIGRATED,
    ):
        what = "is stopped"
    return _again(job, attempt, what, ending, diagnosis)


def _is_given_up(job: Job, ending: Ending, diagnosis: Diagnosis | None) -> bool:
    """Whether no further cluster is tried."""
    if ending.reason == ReasonCode.CANNOT_START and diagnosis is not None:
        return diagnosis.step == Step.STOP
    if ending.reason in IN_PART:
        return _ends_before(job, *IN_PART) + 1 > retries_of(job.spec).of(Cause.INFRASTRUCTURE)
    return ending.reason == REFUSED and _ends_before(job, ending.reason) + 1 >= MOST_REFUSALS


def _again(job: Job, attempt: Attempt, what: str, ending: Ending, diagnosis: Diagnosis | None) -> Consequence:
    told = f"Attempt {attempt.number} {what}: {ending.message or ending.reason}."
    follows = diagnosis.next_step if diagnosis is not None else "Waiting for a new placement."
    if job.is_to_be_suspended:
        follows = "The job waits until a user resumes it."
    wait_seconds = diagnosis.wait_seconds if diagnosis is not None else 0
    return Consequence(JobState.QUEUED, ReasonCode.ATTEMPT_RETURNED, f"{told} {follows}", wait_seconds=wait_seconds)


def _ends_before(job: Job, *reasons: str) -> int:
    """The number of its earlier attempts that ended for one of these reasons."""
    return Attempt.objects.filter(job=job, end_reason__in=reasons).count()


def _void_unstarted(ended: Sequence[Ended]) -> None:
    """Ends the holds of attempts that never started, because they have no usage. All others are settled when usage is
    known.
    """
    ids = [
        one.attempt.id
        for one in ended
        if one.ending.state == AttemptState.ABANDONED and one.attempt.starting_at is None
    ]
    if ids:
        billing.operations.end_budget_holds(dict.fromkeys(ids, "voided"))
        quotas.operations.end_holds(dict.fromkeys(ids, "voided"))
        Attempt.objects.filter(id__any_of=ids).update(settled_at=Now())
