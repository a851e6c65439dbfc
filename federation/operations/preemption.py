"""Stops running jobs for another one of their organisation, as a cycle decides (`placement.preemption`): a more urgent one,
or one whose tenant reclaims the quota that they borrowed.

One transaction marks the victims, records why, and keeps the nodes for the beneficiary. A victim is stopped like an
interrupted attempt: on its cluster first, with time for a checkpoint, and it ends only when nothing of it is left there.
Until then its nodes and its hold count as used, so a cluster that falls silent frees nothing. The claim on the nodes
ends when the beneficiary is placed, does not wait any more, or the deadline has passed: rows decide, so it does not
matter where an earlier round was interrupted. Victims continue with their place in the queue.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import connection, transaction
from django.db.models.functions import Now

import quotas.operations
from federation.engine.lifecycle import AttemptState, JobState
from federation.locks import lock_jobs_and_attempts
from federation.models import Attempt, Job, JobEvent, Preemption, PreemptionVictim
from federation.queries.preemption import load_claims
from federation.queries.standstill import is_dispatch_closed
from foundation.outbox import announce
from foundation.rows import insert_rows
from foundation.transactions import retried
from placement.cycle.cycle import Cycle
from placement.preemption.plan import claim_text, explained, plan
from placement.values import preemption as values
from placement.values.decisions import Wait
from placement.values.model import Snapshot
from placement.values.preemption import MILLI, KeptPlace, Loan, Victim, organisation_of
from placement.values.quantities import duration_text
from placement.values.reason_codes import ReasonCode
from quotas.engine.amounts import format_amount
from tenancy.models import Tenant

from . import transitions

END = """
UPDATE federation_preemption AS preemption
   SET ended_at = now(),
       outcome = CASE WHEN job.state IN ('dispatching', 'running', 'succeeded', 'failed') THEN 'placed'
                      WHEN job.state <> 'queued' THEN 'withdrawn' ELSE 'expired' END
  FROM federation_job AS job
 WHERE preemption.ended_at IS NULL AND job.id = preemption.beneficiary_id
   AND (job.state <> 'queued' OR preemption.deadline_at <= now())
RETURNING job.id, preemption.outcome
"""
STILL_BORROWED = "SELECT bool_and(federation_is_borrowed(attempt, %s)) FROM unnest(%s::uuid[]) AS attempt"


def end_claims() -> int:
    """The number of preemptions that ended: the beneficiary was placed or does not wait any more, or the deadline passed."""
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(END)
        ended = cursor.fetchall()
        told = "Other jobs were stopped for it, but it could not start in time. Its nodes are kept no longer."
        insert_rows(
            [JobEvent(job_id=job, kind="claim_expired", message=told) for job, how in ended if how == "expired"]
        )
    return len(ended)


def preempt(snapshot: Snapshot, cycle: Cycle, waits: Sequence[Wait]) -> tuple[Wait, ...]:
    """Stops what the cycle's final state asks for. Returns its waits, with what preemption does for them."""
    planned = plan(snapshot, cycle, waits)
    claims = snapshot.claims
    if planned.decision is not None and _apply(planned.decision, snapshot):
        claims = load_claims(snapshot.now)
    return explained(waits, claims, planned.why_not, snapshot)


@retried
def _apply(decision: values.Preemption, snapshot: Snapshot) -> bool:
    """Whether the victims were marked: not if one of them, or the beneficiary, has changed since the snapshot."""
    victims = {one.run.attempt_id: one for one in decision.victims}
    with transaction.atomic():
        ids = [decision.job_id, *(one.run.job_id for one in decision.victims)]
        jobs, attempts = lock_jobs_and_attempts(ids, victims)
        beneficiary = jobs.get(decision.job_id)
        if beneficiary is None or not _still_holds(beneficiary, jobs, attempts, victims):
            return False
        if any(one.loan is not None for one in decision.victims):
            quotas.operations.keep_limits_at(beneficiary.tenant_id)
        row = _record(decision, beneficiary)
        for attempt_id, victim in victims.items():
            _stop(attempts[attempt_id], victim, beneficiary)
        if not _is_still_borrowed(decision, beneficiary):
            transaction.set_rollback(True)
            return False
        record_victims(row, victims.values(), snapshot.now)
        _tell(beneficiary, row, decision, snapshot)
        announce("cycle")
    return True


def _still_holds(
    beneficiary: Job, jobs: Mapping[UUID, Job], attempts: Mapping[UUID, Attempt], victims: Mapping[UUID, Victim]
) -> bool:
    """Whether what was decided is still allowed, now that the rows are locked."""
    if beneficiary.state != JobState.QUEUED or is_dispatch_closed():
        return False
    if Preemption.objects.filter(beneficiary=beneficiary, ended_at=None).exists():
        return False
    paths = dict(Tenant.objects.filter(id__in={job.tenant_id for job in jobs.values()}).values_list("id", "path"))
    organisation = organisation_of(paths[beneficiary.tenant_id])
    return all(
        (attempt := attempts.get(attempt_id)) is not None
        and attempt.state == AttemptState.RUNNING
        and attempt.stop_requested_at is None
        and (job := jobs[victim.run.job_id]).state == JobState.RUNNING
        and job.suspend_requested_at is None
        and (victim.loan is not None or job.priority < beneficiary.priority)
        and organisation_of(paths[job.tenant_id]) == organisation
        for attempt_id, victim in victims.items()
    )


def _is_still_borrowed(decision: values.Preemption, beneficiary: Job) -> bool:
    """Whether those that are stopped for what they borrowed still borrow that much, now that they are marked."""
    borrowers = [one.run.attempt_id for one in decision.victims if one.loan is not None]
    if not borrowers:
        return True
    with connection.cursor() as cursor:
        cursor.execute(STILL_BORROWED, [beneficiary.tenant_id, borrowers])
        ((holds,),) = cursor.fetchall()
    return bool(holds)


def _record(decision: values.Preemption, beneficiary: Job) -> Preemption:
    return Preemption.objects.create(
        beneficiary=beneficiary,
        cluster_id=decision.cluster_id,
        organisation=organisation_of(beneficiary.tenant.path),
        amounts=dict(decision.amounts),
        nodes=list(decision.nodes),
        cost_gpu_seconds=decision.cost,
        is_exact=decision.is_exact,
        considered=[shown(one) for one in decision.considered],
        alternatives=[
            {"cluster": one.cluster, "victims": one.victims, "cost_gpu_seconds": round(one.cost, 3)}
            for one in decision.alternatives
        ],
        deadline_at=Now() + timedelta(seconds=settings.PREEMPTION_KEEP_SECONDS),
    )


def shown(one: Victim) -> dict[str, Any]:
    """A candidate as a decision stores it."""
    return {
        "job": str(one.run.job_id),
        "priority": one.run.priority,
        "gpus": one.run.gpu_milli / MILLI,
        "lost_seconds": one.lost_seconds,
        "times_preempted": one.run.times_preempted,
        "loan": _loan(one.loan),
        "cost_gpu_seconds": round(one.cost, 3),
    }


def _loan(loan: Loan | None) -> dict[str, Any] | None:
    if loan is None:
        return None
    return {
        "tenant": loan.tenant_path,
        "resource": loan.resource,
        "clusters": list(loan.clusters),
        "held": format_amount(loan.resource, loan.held),
        "nominal": format_amount(loan.resource, loan.nominal),
        "is_overdue": loan.is_overdue,
        "weight": loan.weight,
    }


def loan_text(loan: Loan) -> str:
    """`acme/b holds 12 gpu, of which 8 are its own`."""
    held, nominal = (format_amount(loan.resource, amount) for amount in (loan.held, loan.nominal))
    late = ", and this job has run longer than its estimate" if loan.is_overdue else ""
    return f"{loan.tenant_path} holds {held} {loan.resource}, of which {nominal} are its own{late}"


def record_victims(row: Preemption, victims: Iterable[Victim], now: datetime) -> None:
    """Writes who is stopped by a decision. The database refuses those that may not be."""
    insert_rows(
        [
            PreemptionVictim(
                attempt_id=one.run.attempt_id,
                preemption_id=row.id,
                job_id=one.run.job_id,
                lost_seconds=one.lost_seconds,
                ran_seconds=int((now - one.run.started_at).total_seconds()),
                shield_seconds=int((one.run.shield_until - one.run.started_at).total_seconds()),
                times_preempted=one.run.times_preempted,
                gpu_milli=one.run.gpu_milli,
                cost_gpu_seconds=one.cost,
                loan=_loan(one.loan),
                nodes=[] if one.kept is None else list(one.kept.nodes),
                amounts={} if one.kept is None else dict(one.kept.amounts),
            )
            for one in victims
        ]
    )


def _stop(attempt: Attempt, victim: Victim, beneficiary: Job) -> None:
    message = f"Preempted for job {beneficiary.id}"
    if victim.loan is None:
        why = f"which has priority {beneficiary.priority}; this job has {victim.run.priority}"
    else:
        why = f"whose tenant takes back quota that it lent: {loan_text(victim.loan)}"
    transitions.interrupt([attempt], ReasonCode.PREEMPTED_FOR_JOB, message, f"{message}, {why}. {what_follows(victim)}")


def what_follows(victim: Victim) -> str:
    """What it means for a job that it is stopped."""
    lost = duration_text(victim.lost_seconds) if victim.lost_seconds else "no time"
    told = f"About {lost} of work is repeated. It keeps its place in the queue."
    return told if victim.kept is None else f"{told} {kept_text(victim.kept, victim.run.cluster)}"


def kept_text(kept: KeptPlace, cluster: str) -> str:
    """`It can go on with 2 pods: 2 nodes of c1 are kept for it.`"""
    pods = "1 pod" if kept.pods == 1 else f"{kept.pods} pods"
    nodes = f"1 node of {cluster} is" if len(kept.nodes) == 1 else f"{len(kept.nodes)} nodes of {cluster} are"
    return f"It can go on with {pods}: {nodes} kept for it."


def _tell(beneficiary: Job, row: Preemption, decision: values.Preemption, snapshot: Snapshot) -> None:
    claim = next(one for one in load_claims(snapshot.now) if one.id == row.id and one.job_id == beneficiary.id)
    message = claim_text(claim, snapshot)
    Job.objects.filter(id=beneficiary.id).update(
        reason_code=ReasonCode.WAITING_FOR_PREEMPTION, reason_message=message, reason_at=Now(), explanation={}
    )
    cost = f"They repeat about {decision.cost / 3600:.2f} GPU-hours of work."
    insert_rows(
        [JobEvent(job_id=beneficiary.id, kind="preempting", message=f"{message[0].upper()}{message[1:]}. {cost}")]
    )
