"""Cancelling a job: a durable tombstone first, the cluster afterwards. Cancel wins and sticks."""

from uuid import UUID

from django.db import transaction

from federation.engine.lifecycle import JobState
from federation.locks import lock_job
from federation.models import JOB_LIFECYCLE, Attempt, Job
from foundation.problems import Conflict, NotFound
from foundation.transactions import retried
from tenancy.engine.roles import Permission
from tenancy.operations import record_audit
from tenancy.queries import Actor, require

from . import transitions


@retried
def request_cancellation(actor: Actor, job_id: UUID) -> Job:
    """The job, `cancelled` if nothing of it had been sent anywhere, else `cancelling` until its cluster has confirmed.

    Asking twice is harmless, and has its cluster visited at once. A job that has ended otherwise cannot be cancelled any more (409 `state_conflict`).
    """
    with transaction.atomic():
        job = lock_job(job_id)
        if job is None:
            raise NotFound
        owns = job.created_by_id == actor.user_id
        require(actor, job.tenant, Permission.SUBMIT if owns else Permission.MANAGE_JOBS)
        if job.state in (JobState.CANCELLING, JobState.CANCELLED):
            # Whatever became of the wake-up of the first request, there is one now.
            live = Attempt.objects.filter(job=job, finished_at=None, stop_requested_at__isnull=False)
            transitions.visit_again(live.values_list("id", flat=True))
            return job
        if job.state in JOB_LIFECYCLE.terminal:
            raise Conflict(f"The job has already {job.state}.", code="state_conflict")
        transitions.cancel(job, actor.name)
        record_audit(actor, "job.cancel", object_kind="job", object_id=str(job.id), tenant_id=job.tenant_id)
    return job
