"""Moves running jobs so that a larger one fits, as a cycle decides (`placement.preemption.consolidation`).

One transaction records the plan, keeps the place for the waiting job and for each that moves, and asks for the stop of their
runs, exactly as for a user's move (`operations.migration`): on the cluster first, with time for a checkpoint, and a run ends
only when nothing of it is left there. The jobs return to the queue with their place there, where their new nodes are kept for them.
The plan ends when the larger job is placed, does not wait any more, or the deadline has passed: rows decide, so it does not
matter where an earlier round was interrupted.
"""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from uuid import UUID

import psycopg
from django.conf import settings
from django.db import IntegrityError, connection, transaction
from django.db.models.functions import Now

from clusters.models import Cluster
from federation.engine.lifecycle import JobState
from federation.engine.relocation import REST
from federation.locks import Claim, lock_jobs_and_attempts, read_reservations
from federation.models import LIVE_ATTEMPT_STATES, Attempt, Consolidation, Job, JobEvent, Move, Preemption
from federation.queries.consolidation import load_plan_claims, moved_for_others, searches
from federation.queries.policies import load_policies
from federation.queries.reservations import load_reservations
from federation.queries.standstill import is_dispatch_closed
from federation.queries.windows import load_windows
from foundation.outbox import announce
from foundation.rows import insert_rows
from foundation.transactions import retried
from placement.cycle.cycle import Cycle
from placement.preemption.consolidation import consolidate, size_of
from placement.preemption.consolidation_texts import explained, plan_text
from placement.values import consolidation as values
from placement.values.consolidation import PlannedMove
from placement.values.decisions import Wait
from placement.values.model import Snapshot
from placement.values.preemption import RESTART_SECONDS, organisation_of
from placement.values.quantities import duration_text
from placement.values.reason_codes import ReasonCode
from tenancy.models import Tenant
from tenancy.operations import record_audit
from tenancy.queries import SYSTEM

from . import figures, transitions
from .migration import may_be_moved

END_PLANS = """
UPDATE federation_consolidation AS plan
   SET ended_at = now(),
       outcome = CASE WHEN job.state IN ('dispatching', 'running', 'succeeded', 'failed') THEN 'placed'
                      WHEN job.state <> 'queued' THEN 'withdrawn' ELSE 'expired' END
  FROM federation_job AS job
 WHERE plan.ended_at IS NULL AND job.id = plan.beneficiary_id AND (job.state <> 'queued' OR plan.deadline_at <= now())
RETURNING job.id, plan.outcome
"""

GOES_ON = "The run goes on where it is."
WITHDRAWN = f"The plan that it was to be moved for has ended. {GOES_ON}"
NOT_IN_TIME = f"Its cluster did not answer while the place that it was to move to was kept. {GOES_ON}"
ONE_AT_A_TIME = ("one_live_consolidation_per_job", "one_live_consolidation_per_cluster")


def end_plans() -> int:
    """The number of plans that ended: the larger job was placed or does not wait any more, or the deadline passed."""
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(END_PLANS)
        ended = cursor.fetchall()
        told = "Other jobs were moved for it, but it could not start in time. Its nodes are kept no longer."
        insert_rows(
            [JobEvent(job_id=job, kind="consolidation_expired", message=told) for job, how in ended if how == "expired"]
        )
    return len(ended)


def withdraw_move(claim: Claim, attempt_id: UUID) -> None:
    """The locked run of a move whose plan has ended, or whose place is no longer kept, goes on, and the move is undone: its objects
    are there, and their deletion was never decided. Not if its user meanwhile suspended or cancelled the job.
    """
    ours = Attempt.objects.select_related("job").filter(
        id=attempt_id,
        claim_token=claim.token,
        state__in=LIVE_ATTEMPT_STATES,
        stop_reason=ReasonCode.MIGRATED,
        deletion_at=None,
        job__suspend_requested_at=None,
    )
    attempt = ours.first()
    if attempt is None:
        return
    asked = {"stop_requested_at": None, "stop_reason": "", "stop_message": ""}
    Attempt.objects.filter(id=attempt_id).update(**asked, next_action_at=None, claim_expires_at=None, tries=0)
    shown = Job.objects.filter(id=attempt.job_id, state=JobState.RUNNING)
    shown.update(reason_code="", reason_message="", reason_at=Now())
    move = Move.objects.get(attempt=attempt)
    is_of_plan = move.consolidation_id is not None
    transitions.tell("stays", {(attempt.job_id, attempt.id): WITHDRAWN if is_of_plan else NOT_IN_TIME})
    detail = {"cause": move.cause} | ({"plan": str(move.consolidation_id)} if is_of_plan else {})
    move.delete()
    job = attempt.job
    record_audit(SYSTEM, "job.stay", object_kind="job", object_id=str(job.id), tenant_id=job.tenant_id, detail=detail)


def consolidate_jobs(snapshot: Snapshot, cycle: Cycle, waits: Sequence[Wait]) -> tuple[Wait, ...]:
    """Moves what the cycle's final state asks for. Returns its waits, with what consolidation does for them.

    In a cycle that stopped jobs for another one, nothing is moved: the snapshot does not know what that keeps.
    """
    claims = tuple(one for one in snapshot.claims if one.kind != "preemption")
    known = {one.job_id for one in snapshot.claims}
    has_stopped = any(one.code == ReasonCode.WAITING_FOR_PREEMPTION and one.job_id not in known for one in waits)
    if snapshot.consolidation is None or has_stopped:
        return explained(waits, claims, searches.why_not, snapshot)
    planned = consolidate(snapshot, cycle, waits)
    searches.end(planned.why_not, in_vain=planned.decision is None)
    if planned.decision is not None and _applies(planned.decision, snapshot):
        claims = load_plan_claims(snapshot.now)
    return explained(waits, claims, planned.why_not, snapshot)


def _applies(decision: values.Consolidation, snapshot: Snapshot) -> bool:
    """Likewise `_apply`; also not if another round has just made a plan for the job or the cluster."""
    try:
        return _apply(decision, snapshot)
    except IntegrityError as error:
        cause = error.__cause__
        if isinstance(cause, psycopg.Error) and cause.diag.constraint_name in ONE_AT_A_TIME:
            return False
        raise


@retried
def _apply(decision: values.Consolidation, snapshot: Snapshot) -> bool:
    """Whether the jobs are being moved now: not if one of them, or the larger one, has changed since the snapshot, or what
    decides where they may go.
    """
    planned = {one.movable.run.attempt_id: one for one in decision.moves}
    sizes = {job.id: size_of(job) for job in snapshot.returning}
    with transaction.atomic():
        read_reservations()
        if not _is_lawful(decision, snapshot):
            return False
        ids = [decision.job_id, *(one.movable.run.job_id for one in decision.moves)]
        jobs, attempts = lock_jobs_and_attempts(ids, planned)
        larger = jobs.get(decision.job_id)
        if larger is None or not _still_holds(larger, jobs, attempts, planned):
            return False
        plan = _record(decision, snapshot)
        for attempt_id, one in planned.items():
            _stop(attempts[attempt_id], jobs[one.movable.run.job_id], one, plan, sizes[one.movable.run.job_id])
        _tell(larger, plan, decision, snapshot)
        announce("cycle")
    figures.RELOCATED.labels("consolidation").inc(len(planned))
    return True


def _is_lawful(decision: values.Consolidation, snapshot: Snapshot) -> bool:
    """Whether policies, reservations, maintenance windows and the moves of a day are as in the snapshot, the clusters take new
    work, and attempts are dispatched.
    """
    now = snapshot.now
    if snapshot.consolidation is None or moved_for_others() != snapshot.consolidation.moved_for_others:
        return False
    if (load_policies(), load_reservations(now), load_windows(now)) != (
        snapshot.policies,
        snapshot.reservations,
        snapshot.windows,
    ):
        return False
    wanted = {decision.cluster_id, *(one.cluster_id for one in decision.moves)}
    open_now = Cluster.objects.filter(id__in=wanted, wish=Cluster.Wish.OPEN, silent_since=None)
    return open_now.count() == len(wanted) and not is_dispatch_closed()


def _still_holds(
    larger: Job, jobs: Mapping[UUID, Job], attempts: Mapping[UUID, Attempt], planned: Mapping[UUID, PlannedMove]
) -> bool:
    """Whether what was decided is still allowed, now that the rows are locked."""
    if larger.state != JobState.QUEUED:
        return False
    if Preemption.objects.filter(beneficiary=larger, ended_at=None).exists():
        return False
    moved = {one.movable.run.job_id for one in planned.values()}
    if Move.objects.filter(job__in=moved, created_at__gt=Now() - REST).exists():
        return False
    paths = dict(Tenant.objects.filter(id__in={job.tenant_id for job in jobs.values()}).values_list("id", "path"))
    organisation = organisation_of(paths[larger.tenant_id])
    return all(
        (attempt := attempts.get(attempt_id)) is not None
        and (job := jobs.get(one.movable.run.job_id)) is not None
        and may_be_moved(job, attempt)
        and job.suspend_requested_at is None
        and job.stop_wish is None
        and job.priority <= larger.priority
        and organisation_of(paths[job.tenant_id]) == organisation
        for attempt_id, one in planned.items()
    )


def _record(decision: values.Consolidation, snapshot: Snapshot) -> Consolidation:
    assert snapshot.consolidation is not None
    return Consolidation.objects.create(
        beneficiary_id=decision.job_id,
        cluster_id=decision.cluster_id,
        size_milli=decision.size_milli,
        nodes=list(decision.nodes),
        amounts=dict(decision.amounts),
        gain_gpu_seconds=decision.gain,
        cost_gpu_seconds=decision.cost,
        lost_gpu_seconds=decision.lost,
        share=snapshot.consolidation.share,
        otherwise_at=decision.otherwise_at,
        is_exact=decision.is_exact,
        deadline_at=Now() + timedelta(seconds=settings.PREEMPTION_KEEP_SECONDS),
    )


def _stop(attempt: Attempt, job: Job, one: PlannedMove, plan: Consolidation, size: int) -> None:
    message = f"Moved so that the larger job {plan.beneficiary_id} fits"
    work = f"About {duration_text(one.lost_seconds)} of work is repeated" if one.lost_seconds else "No work is repeated"
    nodes = f"{len(one.nodes)} {'node' if len(one.nodes) == 1 else 'nodes'} of {one.cluster}"
    told = f"{message}. It continues on {nodes}, kept for it. {work}. It keeps its place in the queue."
    transitions.interrupt([attempt], ReasonCode.MIGRATED, message, told)
    Move.objects.create(
        attempt=attempt,
        job=job,
        cause=Move.Cause.CONSOLIDATION,
        expected_id=one.cluster_id,
        lost_seconds=one.lost_seconds,
        cost_seconds=one.lost_seconds + RESTART_SECONDS,
        consolidation=plan,
        size_milli=size,
        nodes=list(one.nodes),
        amounts=dict(one.amounts),
    )
    detail = {
        "from": one.movable.run.cluster,
        "expected": one.cluster,
        "cause": Move.Cause.CONSOLIDATION.value,
        "for": str(plan.beneficiary_id),
        "plan": str(plan.id),
        "lost_seconds": one.lost_seconds,
    }
    record_audit(
        SYSTEM, "job.migrate", object_kind="job", object_id=str(job.id), tenant_id=job.tenant_id, detail=detail
    )


def _tell(larger: Job, plan: Consolidation, decision: values.Consolidation, snapshot: Snapshot) -> None:
    claim = next(
        one for one in load_plan_claims(snapshot.now) if one.id == plan.id and one.job_id == plan.beneficiary_id
    )
    message = plan_text(claim, snapshot)
    Job.objects.filter(id=larger.id).update(
        reason_code=ReasonCode.WAITING_FOR_CONSOLIDATION, reason_message=message, reason_at=Now(), explanation={}
    )
    gain = f"It gains about {decision.gain / 3600:.2f} GPU-hours"
    if decision.otherwise_at is not None:
        gain = f"{gain}: otherwise it would start about {decision.otherwise_at:%Y-%m-%d %H:%M} UTC"
    insert_rows(
        [JobEvent(job_id=larger.id, kind="consolidating", message=f"{message[0].upper()}{message[1:]}. {gain}.")]
    )
