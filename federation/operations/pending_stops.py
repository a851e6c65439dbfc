"""Stops that users ask for and that wait for a checkpoint (ADR 82).

The wish is stored with the job, and its run goes on. When a checkpoint is reported after it, or its time has ended, by the database's
clock, a round suspends or moves the job as the request would have done. Any other stop of the run comes first: the wish ends
with the run (`../sql/pending_stops.sql`), and a job that was to be suspended does not return to the queue (`endings`).
"""

from uuid import UUID

from django.db import transaction

from federation.locks import lock_job
from federation.models import Job
from federation.queries.pending_stops import due_stops, pending_stop
from federation.queries.standstill import is_dispatch_closed
from foundation.problems import NotFound, Problem
from foundation.transactions import retried
from tenancy.models import User
from tenancy.queries import actor_for

from . import transitions
from .migration import carry_out_move
from .wished_stops import withdraw_stop

WHY = {
    "reported": "its checkpoint is reported",
    "over": "the time to wait for a checkpoint has ended",
    "stopped": "its run is being stopped already",
}


def carry_out_stops() -> int:
    """The number of jobs whose stop was carried out or given up. In a standstill, none is: it is not known what runs, nor where there is
    room.
    """
    if is_dispatch_closed():
        return 0
    return sum(_carry_out(job_id) for job_id in due_stops())


def _carry_out(job_id: UUID) -> bool:
    return _suspend(job_id) or _move(job_id)


@retried
def _suspend(job_id: UUID) -> bool:
    """Whether the job is suspended now: not if the wish is another one, or has been withdrawn meanwhile."""
    with transaction.atomic():
        job = lock_job(job_id)
        wish = None if job is None else pending_stop(job)
        why = due_stops(only=job_id).get(job_id)
        if job is None or wish is None or why is None or wish.then != "suspend":
            return False
        transitions.suspend(job, f"{wish.by} ({WHY[why]})")
    return True


def _move(job_id: UUID) -> bool:
    """Whether the move is made, or given up because nothing would take the job now: its run goes on then."""
    job = Job.objects.select_related("tenant").filter(id=job_id, stop_wish__then="move").first()
    why = due_stops(only=job_id).get(job_id)
    if job is None or job.stop_wish is None or why is None:
        return False
    if why == "stopped":
        return _give_up(job, WHY[why])
    try:
        user = User.objects.filter(id=job.stop_wish["user"], is_active=True).first()
        if user is None:
            raise NotFound("the user who wanted it may not any more")
        return carry_out_move(actor_for(user), job, WHY[why])
    except Problem as problem:
        details = [error.detail for error in problem.errors]
        return _give_up(job, " ".join([problem.detail.rstrip("."), *details]))


@retried
def _give_up(seen: Job, why: str) -> bool:
    """Whether the wish that was seen does not wait any more."""
    with transaction.atomic():
        job = lock_job(seen.id)
        return job is not None and job.stop_wished_at == seen.stop_wished_at and withdraw_stop(job, why)
