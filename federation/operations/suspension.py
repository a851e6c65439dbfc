"""Suspends a job and resumes it, on a user's request.

Suspension is durable first: the job's `suspend_requested_at` forbids any further placement (a constraint keeps such a job
out of the queue). Its live attempt is stopped like one that was interrupted: it ends only when nothing of it is left on
its cluster, and then its hold is settled with what it used. Only after that the job is `suspended`.

With `wait_for_checkpoint_seconds`, all this begins when the job reports its next checkpoint (`operations.pending_stops`).
"""

from uuid import UUID

from django.db import transaction

from federation.engine.lifecycle import JobState
from federation.locks import lock_job
from federation.models import JOB_LIFECYCLE, Attempt, Job
from federation.queries.jobs import permission_to_change
from federation.queries.pending_stops import WAIT, need_reports, read_wait
from federation.queries.reports import REPORTING_STATES
from foundation.problems import Conflict, NotFound
from foundation.transactions import retried
from tenancy.operations import record_audit
from tenancy.queries import Actor, require

from . import transitions
from .wished_stops import wish_stop, withdraw_stop


@retried
def request_suspension(actor: Actor, job_id: UUID, body: object = None) -> Job:
    """`body` is `{"wait_for_checkpoint_seconds": …}` or None. The job: `suspended` if it has no live attempt, else as it was, with the reason `suspending`, until its attempt has
    ended. If it runs and is to wait for a checkpoint, it is as it was, with the wish, which replaces an earlier one.

    A second request without a wait is harmless and causes an immediate visit to its cluster. A job that has ended, or is being
    cancelled, cannot be suspended (409 `state_conflict`). If its attempt succeeds before it is stopped, the job has
    succeeded. Raises Invalid for a wait if the job does not report.
    """
    wait_seconds = read_wait(body)
    with transaction.atomic():
        job = _own(actor, job_id, "suspended")
        need_reports(job, wait_seconds)
        if job.suspend_requested_at is not None:
            # Sends a wake-up again, in case that of the first request was lost.
            live = Attempt.objects.filter(job=job, finished_at=None, stop_requested_at__isnull=False)
            transitions.visit_again(live.values_list("id", flat=True))
            return job
        waits = wait_seconds > 0 and _runs(job)
        if waits:
            wish_stop(actor, job, "suspend", wait_seconds)
        else:
            transitions.suspend(job, actor.name)
        detail = {WAIT: wait_seconds} if waits else {}
        record_audit(
            actor, "job.suspend", object_kind="job", object_id=str(job.id), tenant_id=job.tenant_id, detail=detail
        )
    return job


def _runs(job: Job) -> bool:
    """Whether the locked job has a run that may write a checkpoint, and is not being stopped."""
    going_on = Attempt.objects.filter(job=job, state__in=REPORTING_STATES, stop_requested_at=None)
    return job.state == JobState.RUNNING and going_on.exists()


@retried
def request_resumption(actor: Actor, job_id: UUID) -> Job:
    """The job: `queued`, or as it was until the attempt that is being stopped has ended. Harmless if the job is not
    suspended. A stop that waits for a checkpoint, of a suspension or a move, is withdrawn, and the run goes on. A job that has
    ended, or is being cancelled, cannot be resumed (409 `state_conflict`).
    """
    with transaction.atomic():
        job = _own(actor, job_id, "resumed")
        if not withdraw_stop(job, f"withdrawn by {actor.name}"):
            if job.suspend_requested_at is None:
                return job
            transitions.resume(job, actor.name)
        record_audit(actor, "job.resume", object_kind="job", object_id=str(job.id), tenant_id=job.tenant_id)
    return job


def _own(actor: Actor, job_id: UUID, done: str) -> Job:
    """The locked job, which the actor may change, and which has not ended."""
    job = lock_job(job_id)
    if job is None:
        raise NotFound
    require(actor, job.tenant, permission_to_change(job, actor))
    if job.state in JOB_LIFECYCLE.terminal:
        raise Conflict(f"The job has already {job.state}.", code="state_conflict")
    if job.state == JobState.CANCELLING:
        raise Conflict(f"The job is being cancelled and cannot be {done}.", code="state_conflict")
    return job
