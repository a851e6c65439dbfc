"""How attempts end, and what that means for their jobs: the one door to every terminal state.

Callers hold a transaction. What an ended attempt means for its job:

    the job is being cancelled      → cancelled, whatever the cluster says (cancel wins and sticks)
    succeeded, failed               → the job ends the same way
    anything else                   → back to the queue, unless clusters refused it too often
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from uuid import UUID

from django.db.models.functions import Now

import quotas.operations
from federation.engine.lifecycle import AttemptState, JobState
from federation.locks import lock_attempts, lock_jobs_of
from federation.models import ATTEMPT_LIFECYCLE, JOB_LIFECYCLE, Attempt, Job, JobEvent
from foundation import clock
from foundation.outbox import announce
from foundation.rows import insert_rows

from .learning import remember_runs

MOST_REFUSALS = 3
"""A job that this many clusters' API servers have refused for good fails instead of wandering on."""
REFUSED = "refused_by_cluster"
OBJECT_DELETED = "object_deleted"


@dataclass(frozen=True, slots=True)
class Ending:
    """The end of one attempt. With a `token`, it counts only while the attempt is still claimed with that token."""

    attempt_id: UUID
    state: AttemptState
    reason: str
    message: str = ""
    exit_code: int | None = None
    token: int | None = None


def end_attempts(endings: Iterable[Ending]) -> int:
    """The number of attempts that ended now. Those that had ended before, or were claimed anew, are left alone."""
    wanted = {ending.attempt_id: ending for ending in endings}
    if not wanted:
        return 0
    jobs = lock_jobs_of(wanted)
    attempts = lock_attempts(wanted)
    ended = [(attempt, wanted[attempt.id]) for attempt in attempts.values() if _may_end(attempt, wanted[attempt.id])]
    if not ended:
        return 0
    _end(ended)
    events = [_event(attempt, ending) for attempt, ending in ended]
    for attempt, ending in ended:
        events += _conclude(jobs[attempt.job_id], attempt, ending)
    insert_rows(events)
    _void_unstarted(ended)
    remember_runs((jobs[a.job_id], a) for a, ending in ended if ending.state == AttemptState.SUCCEEDED)
    announce("settle", "cycle")
    return len(ended)


def _may_end(attempt: Attempt, ending: Ending) -> bool:
    if attempt.state not in ATTEMPT_LIFECYCLE.sources(ending.state):
        return False
    return ending.token is None or ending.token == attempt.claim_token


def _end(ended: Sequence[tuple[Attempt, Ending]]) -> None:
    alike: dict[tuple[str, str, str], list[UUID]] = defaultdict(list)
    for attempt, ending in ended:
        alike[ending.state, ending.reason, ending.message].append(attempt.id)
    for (state, reason, message), ids in alike.items():
        Attempt.objects.filter(id__any_of=ids).update(
            state=state,
            finished_at=Now(),
            end_reason=reason,
            end_message=message,
            next_action_at=None,
            claim_expires_at=None,
        )


def _event(attempt: Attempt, ending: Ending) -> JobEvent:
    message = f"Attempt {attempt.number}: {ending.message or ending.reason.replace('_', ' ')}"
    return JobEvent(
        job_id=attempt.job_id, attempt=attempt, at=clock.now(), kind=f"attempt_{ending.state}", message=message
    )


def _conclude(job: Job, attempt: Attempt, ending: Ending) -> list[JobEvent]:
    target, changes = _consequence(job, attempt, ending)
    if job.state not in JOB_LIFECYCLE.sources(target):
        return []
    if target in JOB_LIFECYCLE.terminal:
        changes["finished_at"] = Now()
    Job.objects.filter(id=job.id).update(state=target, reason_at=Now(), **changes)
    job.state = target
    return [
        JobEvent(
            job_id=job.id,
            attempt=attempt,
            at=clock.now(),
            kind=f"job_{target}",
            message=str(changes.get("reason_message", "")),
        )
    ]


def _consequence(job: Job, attempt: Attempt, ending: Ending) -> tuple[JobState, dict[str, object]]:
    if job.state == JobState.CANCELLING:
        return JobState.CANCELLED, {
            "reason_code": "cancelled",
            "reason_message": "Cancelled.",
            "exit_code": ending.exit_code,
        }
    if ending.state == AttemptState.SUCCEEDED:
        return JobState.SUCCEEDED, {"reason_code": "", "reason_message": "", "exit_code": ending.exit_code or 0}
    if ending.state == AttemptState.FAILED:
        return JobState.FAILED, {
            "reason_code": ending.reason,
            "reason_message": ending.message,
            "exit_code": ending.exit_code,
        }
    refusals = Attempt.objects.filter(job=job, end_reason=REFUSED).count()
    if ending.reason == REFUSED and refusals >= MOST_REFUSALS:
        return JobState.FAILED, {"reason_code": REFUSED, "reason_message": ending.message}
    return JobState.QUEUED, {
        "reason_code": "attempt_returned",
        "reason_message": f"Attempt {attempt.number} did not run: {ending.message or ending.reason}. Waiting for a new place.",
        "started_at": None,
    }


def _void_unstarted(ended: Sequence[tuple[Attempt, Ending]]) -> None:
    """What never started has nothing to meter: its hold ends here. All else is settled when its usage is known."""
    ids = [attempt.id for attempt, ending in ended if ending.state == AttemptState.ABANDONED]
    if ids:
        quotas.operations.end_holds(dict.fromkeys(ids, "voided"))
        Attempt.objects.filter(id__any_of=ids).update(settled_at=Now())
