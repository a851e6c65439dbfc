"""Cancels a job: first a durable tombstone, then the cluster. Cancellation is final."""

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
def request_cancellation(actor: Actor, job_id: UUID) -> Job:
    """The job: `cancelled` if nothing of it was sent to a cluster, else `cancelling` until its cluster has confirmed.

    A second request is harmless and causes an immediate visit to its cluster. A job that has ended otherwise cannot be
    cancelled (409 `state_conflict`).
    """
    with transaction.atomic():
        job = lock_job(job_id)
        if job is None:
            raise NotFound
        require(actor, job.tenant, permission_to_change(job, actor))
        if job.state in (JobState.CANCELLING, JobState.CANCELLED):
            # Sends a wake-up again, in case that of the first request was lost.
            live = Attempt.objects.filter(job=job, finished_at=None, stop_requested_at__isnull=False)
            transitions.visit_again(live.values_list("id", flat=True))
            return job
        if job.state in JOB_LIFECYCLE.terminal:
            raise Conflict(f"The job has already {job.state}.", code="state_conflict")
        transitions.cancel(job, actor.name)
        record_audit(actor, "job.cancel", object_kind="job", object_id=str(job.id), tenant_id=job.tenant_id)
    return job
