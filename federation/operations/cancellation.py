"""Cancelling a job: a durable tombstone first, the cluster afterwards. Cancel wins and sticks."""

from uuid import UUID

from django.db import transaction
from django.db.models.functions import Now

from federation.engine.lifecycle import JobState
from federation.locks import lock_job
from federation.models import JOB_LIFECYCLE, LIVE_ATTEMPT_STATES, Attempt, Job, JobEvent
from foundation import clock
from foundation.outbox import announce
from foundation.problems import Conflict, NotFound
from tenancy.engine.roles import Permission
from tenancy.operations import record_audit
from tenancy.queries import Actor, require


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
            _remind(job)
            return job
        if job.state in JOB_LIFECYCLE.terminal:
            raise Conflict(f"The job has already {job.state}.", code="state_conflict")
        _cancel(job, actor)
        record_audit(actor, "job.cancel", object_kind="job", object_id=str(job.id), tenant_id=job.tenant_id)
    return job


def _remind(job: Job) -> None:
    """Whatever became of the wake-up of the first request, there is one now."""
    live = Attempt.objects.filter(job=job, state__in=LIVE_ATTEMPT_STATES, stop_requested_at__isnull=False)
    if live.update(next_action_at=Now()):
        announce("dispatch")


def _cancel(job: Job, actor: Actor) -> None:
    live = Attempt.objects.filter(job=job, state__in=LIVE_ATTEMPT_STATES)
    has_attempt = live.update(stop_requested_at=Now(), stop_reason="cancelled", stop_message="", next_action_at=Now())
    job.state = JobState.CANCELLING if has_attempt else JobState.CANCELLED
    job.reason_code = job.state.value
    job.reason_message = "Waiting for its cluster to confirm." if has_attempt else "Cancelled before it was placed."
    job.reason_at = clock.now()
    job.finished_at = None if has_attempt else clock.now()
    job.save(update_fields=["state", "reason_code", "reason_message", "reason_at", "finished_at"])
    JobEvent.objects.create(job=job, at=clock.now(), kind=f"job_{job.state}", message=f"Cancelled by {actor.name}.")
    announce("dispatch" if has_attempt else "cycle")
