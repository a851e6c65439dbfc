"""Suspends a job and resumes it, on a user's request.

Suspension is durable first: the job's `suspend_requested_at` forbids any further placement (a constraint keeps such a job
out of the queue). Its live attempt is stopped like one that was interrupted: it ends only when nothing of it is left on
its cluster, and then its hold is settled with what it used. Only after that the job is `suspended`.
"""

from uuid import UUID

from django.db import transaction

from federation.engine.lifecycle import JobState
from federation.locks import lock_job
from federation.models import JOB_LIFECYCLE, Attempt, Job
from federation.queries.jobs import permission_to_change
from foundation.problems import Conflict, NotFound
from foundation.transactions import retried
from tenancy.operations import record_audit
from tenancy.queries import Actor, require

from . import transitions


@retried
def request_suspension(actor: Actor, job_id: UUID) -> Job:
    """The job: `suspended` if it has no live attempt, else as it was, with the reason `suspending`, until its attempt has
    ended.

    A second request is harmless and causes an immediate visit to its cluster. A job that has ended, or is being
    cancelled, cannot be suspended (409 `state_conflict`). If its attempt succeeds before it is stopped, the job has
    succeeded.
    """
    with transaction.atomic():
        job = _own(actor, job_id, "suspended")
        if job.suspend_requested_at is not None:
            # Sends a wake-up again, in case that of the first request was lost.
            live = Attempt.objects.filter(job=job, finished_at=None, stop_requested_at__isnull=False)
            transitions.visit_again(live.values_list("id", flat=True))
            return job
        transitions.suspend(job, actor.name)
        record_audit(actor, "job.suspend", object_kind="job", object_id=str(job.id), tenant_id=job.tenant_id)
    return job


@retried
def request_resumption(actor: Actor, job_id: UUID) -> Job:
    """The job: `queued`, or as it was until the attempt that is being stopped has ended. Harmless if the job is not
    suspended. A job that has ended, or is being cancelled, cannot be resumed (409 `state_conflict`).
    """
    with transaction.atomic():
        job = _own(actor, job_id, "resumed")
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
