"""The gateway stops running elastic jobs that ask for it, so that they continue with more pods in idle room (ADR 57).

One run in a round at most: the next round sees what is kept for it. It is stopped as a run that the gateway moves (`operations.relocation`):
one transaction, in which the decision is made again on the locked rows. Its place is kept while it stops.
"""

from fractions import Fraction

from django.conf import settings
from django.db import transaction

from federation.engine.growth import Growth, growth
from federation.locks import lock_jobs_and_attempts
from federation.models import Attempt, Job, Move
from federation.queries.growth import GrowingRun, growing_runs, larger_place, left_seconds
from federation.queries.moves import can_resume
from federation.queries.standstill import is_dispatch_closed
from foundation.clock import database_now
from foundation.transactions import retried
from placement.values.decisions import Placement
from placement.values.preemption import RunningJob
from placement.values.quantities import duration_text
from placement.values.reason_codes import ReasonCode
from tenancy.operations import record_audit
from tenancy.queries import SYSTEM

from . import figures, transitions
from .migration import kept_for, may_be_moved

MOST_TRIALS = 5
"""The most runs for which one round looks for a larger place: each trial costs a part of a scheduling round."""


def grow_jobs() -> int:
    """The number of jobs whose runs are now being stopped so that they continue with more pods: 0 or 1."""
    if not Fraction(settings.RELOCATION_SHARE) or is_dispatch_closed():
        return 0
    for one in growing_runs()[:MOST_TRIALS]:
        found = larger_place(one)
        if found is not None and can_resume(Job.objects.get(id=one.job_id), found[1]) and _stop(one, *found):
            return 1
    return 0


@retried
def _stop(one: GrowingRun, run: RunningJob, place: Placement, more: int) -> bool:
    """Whether the run is now being stopped: not if it has changed, if a job waits now, or if it does not pay."""
    with transaction.atomic():
        jobs, attempts = lock_jobs_and_attempts([run.job_id], [run.attempt_id])
        job, attempt = jobs.get(run.job_id), attempts.get(run.attempt_id)
        if job is None or attempt is None or not may_be_moved(job, attempt) or growing_runs(run.attempt_id) != [one]:
            return False
        decision = _decided(job, attempt, run, one.pods, more)
        if decision is None:
            return False
        message, told = _texts(decision, place)
        transitions.interrupt([attempt], ReasonCode.MIGRATED, message, told)
        Move.objects.create(
            attempt=attempt,
            job=job,
            cause=Move.Cause.GROWTH,
            expected_id=place.cluster_id,
            lost_seconds=decision.lost_seconds,
            cost_seconds=decision.cost_seconds,
            stay_seconds=decision.saved_seconds,
            **kept_for(place),
        )
        detail = {
            "cause": Move.Cause.GROWTH.value,
            "cluster": place.cluster,
            "pods": decision.pods,
            "more": decision.more,
            "cost_seconds": decision.cost_seconds,
            "saved_seconds": decision.saved_seconds,
        }
        record_audit(
            SYSTEM, "job.migrate", object_kind="job", object_id=str(job.id), tenant_id=job.tenant_id, detail=detail
        )
    figures.RELOCATED.labels(Move.Cause.GROWTH.value).inc()
    return True


def _decided(job: Job, attempt: Attempt, run: RunningJob, pods: int, more: int) -> Growth | None:
    now = database_now()
    left = left_seconds(job, attempt, now)
    return None if left is None else growth(pods, more, left, run.lost_seconds(now))


def _texts(decision: Growth, place: Placement) -> tuple[str, str]:
    message = f"Moved to run with {decision.more} pods instead of {decision.pods}"
    saved, cost = duration_text(decision.saved_seconds), duration_text(decision.cost_seconds)
    nodes = len({name for pod_set in place.pod_sets for name in pod_set.nodes})
    kept = (
        f"{nodes} nodes of {place.cluster} are kept for it"
        if nodes > 1
        else f"1 node of {place.cluster} is kept for it"
    )
    return message, f"{message}; that saves it about {saved} and costs about {cost}. {kept}."
