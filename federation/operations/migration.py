"""Moves a running job to another cluster, on a user's request.

Before anything is stopped, the trial of placement shows that another cluster has room for the job now
(`queries.moves.plan_move`). Then its attempt is stopped like an interrupted one: it ends only when nothing of it is left on
its cluster. The job returns to the queue with its place there, and avoids that cluster for ten minutes (`queries.moved`); if
the user named clusters, it avoids all others that long.
"""

from datetime import timedelta
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import transaction
from django.db.models.functions import Coalesce, Now

from federation.engine.lifecycle import AttemptState, JobState
from federation.locks import lock_jobs_and_attempts
from federation.models import Attempt, Job, Move
from federation.queries.moves import MovePlan, movable_job, plan_move, read_move
from foundation.problems import Conflict
from foundation.transactions import retried
from placement.values.decisions import Placement
from placement.values.quantities import duration_text
from placement.values.reason_codes import ReasonCode
from tenancy.operations import record_audit
from tenancy.queries import Actor

from . import figures, transitions


def request_migration(actor: Actor, job_id: UUID, body: object) -> Job:
    """The job, whose attempt is being stopped so that it continues on another cluster. `body` is
    `{"reason": …, "lose_work": true | false, "clusters": […]}`; all are optional.

    Harmless while an earlier request is carried out. Raises Invalid for a cluster that the actor does not see or where the
    job runs, and Conflict: `state_conflict` if it does not run or is being stopped, `no_place_to_move` if no other cluster
    (none of those named) would take it now, `cannot_resume` if it has no checkpoint that can be resumed there and
    `lose_work` is not set.
    """
    request = read_move(body)
    job = movable_job(actor, job_id)
    if _moves_already(job_id):
        return job
    plan = plan_move(actor, job, request)
    if plan.refusal is not None:
        raise plan.refusal
    return _stop(actor, plan, request.reason)


def _moves_already(job_id: UUID) -> bool:
    """Whether the job's run is being stopped so that it moves. From now on that is not withdrawn (`consolidation.withdraw_move`): its
    user wants it, too.
    """
    moving = Attempt.objects.filter(job=job_id, finished_at=None, stop_reason=ReasonCode.MIGRATED)
    return bool(moving.update(deletion_at=Coalesce("deletion_at", Now())))


def what_follows(place: Placement, lost_seconds: int) -> str:
    """What a move does, for the job's timeline."""
    work = f"About {duration_text(lost_seconds)} of work is repeated" if lost_seconds else "No work is repeated"
    return f"{place.cluster} has room for it now. {work}. It keeps its place in the queue."


def kept_for(place: Placement) -> dict[str, Any]:
    """The columns of a move whose place is kept while its run stops, and for as long as for preemption at most."""
    return {
        "nodes": sorted({name for pod_set in place.pod_sets for name in pod_set.nodes}),
        "amounts": dict(place.amounts),
        "kept_until": Now() + timedelta(seconds=settings.PREEMPTION_KEEP_SECONDS),
    }


def may_be_moved(job: Job, attempt: Attempt) -> bool:
    """Whether the locked job still runs there, and is not being stopped."""
    return job.state == JobState.RUNNING and attempt.state == AttemptState.RUNNING and attempt.stop_requested_at is None


@retried
def _stop(actor: Actor, plan: MovePlan, reason: str) -> Job:
    run, place, lost = plan.run, plan.place, plan.lost
    assert run is not None
    assert place is not None
    assert lost is not None
    with transaction.atomic():
        jobs, attempts = lock_jobs_and_attempts([run.job_id], [run.attempt_id])
        job, attempt = jobs[run.job_id], attempts[run.attempt_id]
        if not may_be_moved(job, attempt):
            if _moves_already(run.job_id):
                return job
            raise Conflict("The job has changed meanwhile and was not moved. Read it again.", code="state_conflict")
        message = f"Moved away from {run.cluster} by {actor.name}"
        why = f" ({reason})" if reason else ""
        told = f"{message}{why}. {what_follows(place, lost.seconds)}"
        transitions.interrupt([attempt], ReasonCode.MIGRATED, message, told)
        Move.objects.create(
            attempt=attempt,
            job=job,
            cause=Move.Cause.USER,
            clusters=list(plan.named),
            expected_id=place.cluster_id,
            lost_seconds=lost.seconds,
            cost_seconds=plan.cost_seconds,
        )
        detail = {
            "from": run.cluster,
            "expected": place.cluster,
            "clusters": [str(one) for one in plan.named],
            "reason": reason,
            "lost_seconds": lost.seconds,
        }
        record_audit(
            actor, "job.migrate", object_kind="job", object_id=str(job.id), tenant_id=job.tenant_id, detail=detail
        )
    figures.MOVED.inc()
    return job
