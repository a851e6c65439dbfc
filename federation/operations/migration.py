"""Moves a running job to another cluster, on a user's request.

Before anything is stopped, the trial of placement shows that another cluster has room for the job now
(`queries.moves.plan_move`). Then its attempt is stopped like an interrupted one: it ends only when nothing of it is left on
its cluster. The job returns to the queue with its place there, and avoids that cluster for ten minutes (`queries.moved`); if
the user named clusters, it avoids all others that long. A move that waits for a checkpoint is planned twice: when it is asked
for, and when it is carried out (`operations.pending_stops`).
"""

from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import transaction
from django.db.models.functions import Coalesce, Now

from federation.engine.lifecycle import AttemptState, JobState
from federation.locks import lock_jobs_and_attempts
from federation.models import Attempt, Job, Move
from federation.queries.moves import MovePlan, MoveRequest, movable_job, plan_move, read_move
from federation.queries.pending_stops import need_reports
from foundation.problems import Conflict
from foundation.transactions import retried
from placement.values.decisions import Placement
from placement.values.quantities import duration_text
from placement.values.reason_codes import ReasonCode
from tenancy.operations import record_audit
from tenancy.queries import Actor

from . import figures, transitions
from .wished_stops import NO_WISH, wish_stop


def request_migration(actor: Actor, job_id: UUID, body: object) -> Job:
    """The job, whose attempt is being stopped so that it continues on another cluster. `body` is
    `{"reason": …, "lose_work": true | false, "clusters": […], "wait_for_checkpoint_seconds": …}`; all are optional. With the last, its
    run goes on until its next checkpoint is reported, or that time has ended, and is moved then if it can be.

    Harmless while an earlier request is carried out; it replaces one that waits for a checkpoint. Raises Invalid for a cluster that
    the actor does not see or where the job runs, and for a wait if the job does not report; and Conflict: `state_conflict`
    if it does not run or is being stopped, `no_place_to_move` if no other cluster (none of those named) would take it now,
    `cannot_resume` if it has no checkpoint that can be resumed there, `lose_work` is not set, and it is not to wait.
    """
    request = read_move(body)
    job = movable_job(actor, job_id)
    need_reports(job, request.wait_seconds)
    if _moves_already(job_id):
        return job
    plan = plan_move(actor, job, request)
    # the checkpoint for which it waits may be the one that lets it be resumed there
    if plan.refusal is not None and not (request.wait_seconds and plan.refusal.code == "cannot_resume"):
        raise plan.refusal
    if request.wait_seconds:
        return _put_off(actor, plan, request)
    return _stop(actor, plan, request.reason)


@retried
def _put_off(actor: Actor, plan: MovePlan, request: MoveRequest) -> Job:
    run = plan.run
    assert run is not None
    with transaction.atomic():
        jobs, attempts = lock_jobs_and_attempts([run.job_id], [run.attempt_id])
        job = jobs[run.job_id]
        if not may_be_moved(job, attempts[run.attempt_id]) or job.suspend_requested_at is not None:
            raise Conflict(CHANGED, code="state_conflict")
        named = [str(one) for one in plan.named]
        asked = {"reason": request.reason, "lose_work": request.may_lose, "clusters": named}
        wish_stop(actor, job, "move", request.wait_seconds, {**asked, "user": actor.user_id and str(actor.user_id)})
        detail = {"from": run.cluster, **asked, "wait_for_checkpoint_seconds": request.wait_seconds}
        record_audit(
            actor, "job.migrate", object_kind="job", object_id=str(job.id), tenant_id=job.tenant_id, detail=detail
        )
    return job


def carry_out_move(actor: Actor, job: Job, why: str) -> bool:
    """Whether the job's run is now being stopped for the move that waited, in the name of who asked for it. Not if that has been
    withdrawn or replaced meanwhile. Raises what the request would raise now.
    """
    wish = job.stop_wish
    assert wish is not None
    request = MoveRequest(wish["reason"], wish["lose_work"], tuple(wish["clusters"]))
    plan = plan_move(actor, movable_job(actor, job.id), request)
    if plan.refusal is not None:
        raise plan.refusal
    reason = f"{request.reason}; {why}" if request.reason else why
    moved = _stop(actor, plan, reason, of_wish=job.stop_wished_at)
    return moved.stop_wished_at == job.stop_wished_at and moved.stop_wish is None


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


CHANGED = "The job has changed meanwhile and was not moved. Read it again."


@retried
def _stop(actor: Actor, plan: MovePlan, reason: str, of_wish: datetime | None = None) -> Job:
    """The job, whose run is being stopped; `of_wish` is when the move was asked for that waited, and must still wait."""
    run, place, lost = plan.run, plan.place, plan.lost
    assert run is not None
    assert place is not None
    assert lost is not None
    with transaction.atomic():
        jobs, attempts = lock_jobs_and_attempts([run.job_id], [run.attempt_id])
        job, attempt = jobs[run.job_id], attempts[run.attempt_id]
        if of_wish is not None and job.stop_wished_at != of_wish:
            return job
        if not may_be_moved(job, attempt):
            if _moves_already(run.job_id):
                return job
            raise Conflict(CHANGED, code="state_conflict")
        job.stop_wish = None
        Job.objects.filter(id=job.id).update(**NO_WISH)
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
