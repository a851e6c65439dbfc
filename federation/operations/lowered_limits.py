"""Stops running jobs because a limit was lowered below what is held there, after the delay that its manager chose.

`placement.preemption.surplus` decides. Victims are stopped as for a waiting job (`operations.preemption`): on their cluster
first, with time for a checkpoint, and their holds count until nothing of them is left. They continue with their place in the
queue when they fit under the limit. Nothing is claimed.

One transaction marks the victims and records why. The tenants of the limits are locked first, so a limit that is raised
meanwhile is read as it is then: the decision is dropped. Rows decide, so an interrupted round leaves nothing to repair.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import connection, transaction
from django.db.models.functions import Now

import quotas.operations
from federation.engine.lifecycle import AttemptState, JobState
from federation.locks import lock_jobs_and_attempts
from federation.models import Attempt, Job, Preemption
from federation.models.preemptions import REDUCED
from federation.queries.lowered_limits import load_beyond
from federation.queries.standstill import is_dispatch_closed
from foundation.transactions import retried
from placement.preemption.surplus import Reduction, reduce
from placement.values.preemption import Surplus, Victim
from placement.values.reason_codes import ReasonCode
from quotas.engine.amounts import format_amount
from tenancy.operations import record_audit
from tenancy.queries import SYSTEM

from . import transitions
from .preemption import record_victims, shown, what_follows

STILL_BEYOND = "SELECT bool_and(federation_is_beyond(attempt, now())) FROM unnest(%s::uuid[]) AS attempt"


def take_back_surplus() -> int:
    """The number of jobs that are now being stopped for lowered limits: one decision for each organisation."""
    if not settings.PREEMPTION_MOST_VICTIMS:
        return 0
    stopped = 0
    for beyond in load_beyond():
        decision = reduce(beyond)
        if decision is not None and _apply(decision, beyond.now):
            stopped += len(decision.victims)
    return stopped


@retried
def _apply(decision: Reduction, now: datetime) -> bool:
    """Whether the victims were marked: not if one of them, or a limit, has changed so that the decision is not needed."""
    victims = {one.run.attempt_id: one for one in decision.victims}
    with transaction.atomic():
        jobs, attempts = lock_jobs_and_attempts([one.run.job_id for one in decision.victims], victims)
        if is_dispatch_closed() or not all(_still_runs(one, jobs, attempts) for one in decision.victims):
            return False
        quotas.operations.keep_limits_at(*{one.tenant_id for one in decision.limits})
        row = _record(decision)
        for attempt_id, victim in victims.items():
            _stop(attempts[attempt_id], victim)
        if not _is_still_beyond(victims):
            transaction.set_rollback(True)
            return False
        record_victims(row, victims.values(), now)
        _audit(decision)
    return True


def _still_runs(victim: Victim, jobs: Mapping[UUID, Job], attempts: Mapping[UUID, Attempt]) -> bool:
    attempt, job = attempts.get(victim.run.attempt_id), jobs.get(victim.run.job_id)
    return (
        attempt is not None
        and attempt.state == AttemptState.RUNNING
        and attempt.stop_requested_at is None
        and job is not None
        and job.state == JobState.RUNNING
        and job.suspend_requested_at is None
    )


def _is_still_beyond(attempt_ids: Mapping[UUID, Victim]) -> bool:
    """Whether each of them is needed beside the others, now that they are marked and the limits do not change."""
    with connection.cursor() as cursor:
        cursor.execute(STILL_BEYOND, [list(attempt_ids)])
        ((holds,),) = cursor.fetchall()
    return bool(holds)


def _record(decision: Reduction) -> Preemption:
    return Preemption.objects.create(
        organisation=decision.organisation,
        limits=[_limit(one) for one in decision.limits],
        nodes=[],
        cost_gpu_seconds=decision.cost,
        is_exact=decision.is_exact,
        considered=[shown(one) for one in decision.considered],
        deadline_at=Now() + timedelta(seconds=1),  # nothing is claimed
        ended_at=Now(),
        outcome=REDUCED,
    )


def _limit(one: Surplus) -> dict[str, Any]:
    return {
        "limit": str(one.limit_id),
        "tenant": one.tenant_path,
        "resource": one.resource,
        "clusters": list(one.clusters),
        "held": format_amount(one.resource, one.held),
        "most": format_amount(one.resource, one.most),
        "lowered_by": one.lowered_by,
    }


def _stop(attempt: Attempt, victim: Victim) -> None:
    surplus = victim.surplus
    assert surplus is not None
    held, most = (format_amount(surplus.resource, amount) for amount in (surplus.held, surplus.most))
    message = f"Limit of {surplus.tenant_path} lowered by {surplus.lowered_by}"
    where = f" on {', '.join(surplus.clusters)}" if surplus.clusters else ""
    why = f"it allows {most} {surplus.resource}{where}, and {held} were held"
    transitions.interrupt([attempt], ReasonCode.LIMIT_LOWERED, message, f"{message}: {why}. {what_follows(victim)}")


def _audit(decision: Reduction) -> None:
    """One entry for each limit, with the jobs that count there."""
    for one in decision.limits:
        jobs = [str(victim.run.job_id) for victim in decision.victims if one.counts(victim.run)]
        detail = {
            "resource": one.resource,
            "clusters": list(one.clusters),
            "held": format_amount(one.resource, one.held),
            "most": format_amount(one.resource, one.most),
            "lowered_by": one.lowered_by,
            "jobs": jobs,
        }
        record_audit(
            SYSTEM,
            "quota.taken_back",
            object_kind="quota",
            object_id=one.limit_id,
            tenant_id=one.tenant_id,
            detail=detail,
        )
