"""The gateway itself moves jobs that would soon be stopped where they run, if their users allow it (ADR 31).

`engine.relocation` decides which, and in which order. A job is moved only if it can continue from a checkpoint where placement's
trial has room for it now. Then its run is stopped exactly as for a user's move (`operations.migration`): one transaction, in
which the decision is made again on the locked rows.
"""

from fractions import Fraction
from uuid import UUID

from django.conf import settings
from django.db import transaction

from federation.engine.relocation import MOST_MOVES_A_DAY, Cause, Relocation, chosen, decide
from federation.locks import lock_jobs_and_attempts
from federation.models import Job, Move
from federation.queries.moves import can_resume
from federation.queries.preemption import load_run
from federation.queries.relocation import Destinations, threatened_runs
from federation.queries.standstill import is_dispatch_closed
from foundation.transactions import retried
from placement.values.decisions import Placement
from placement.values.preemption import RunningJob
from placement.values.quantities import duration_text
from placement.values.reason_codes import ReasonCode
from tenancy.operations import record_audit
from tenancy.queries import SYSTEM

from . import figures, transitions
from .growth import grow_jobs
from .migration import may_be_moved, what_follows
from .pending_stops import carry_out_stops
from .saving import save_jobs

MOST_TRIALS = 20
"""The most jobs that one round tries to place elsewhere: each trial costs a part of a scheduling round."""
WHY = {
    Cause.DRAIN: "{cluster} is drained",
    Cause.MAINTENANCE: "maintenance that stops jobs begins on {cluster} {when}",
    Cause.SPOT: "its node on {cluster} is about to be taken away",
}


def relocate_jobs() -> int:
    """The number of jobs whose runs are now being stopped so that they continue elsewhere, or if there are none, with more pods.
    Stops that users wish and that waited for a checkpoint come first. Moves for deadlines and lower prices come after those of
    runs that would soon be stopped.
    """
    return carry_out_stops() + (_relocate() or save_jobs() or grow_jobs())


def _relocate() -> int:
    share = Fraction(settings.RELOCATION_SHARE)
    found = threatened_runs() if share else None
    if found is None or is_dispatch_closed():
        return 0
    wanted = chosen(found.runs, found.now, found.running, found.leaving, share)
    destinations = Destinations() if wanted else None
    moved = 0
    for one in wanted[:MOST_TRIALS]:
        run, job = load_run(one.run.job_id), Job.objects.filter(id=one.run.job_id).first()
        if run is None or job is None or destinations is None or run.attempt_id != one.run.attempt_id:
            continue
        place = destinations.place(run, job.created_by_id)
        if isinstance(place, Placement) and can_resume(job, place):
            moved += _stop(run, place)
    return moved


@retried
def _stop(run: RunningJob, place: Placement) -> bool:
    """Whether the run is now being stopped: not if it has changed, or if what threatened it has gone."""
    with transaction.atomic():
        jobs, attempts = lock_jobs_and_attempts([run.job_id], [run.attempt_id])
        job, attempt = jobs.get(run.job_id), attempts.get(run.attempt_id)
        if job is None or attempt is None or not may_be_moved(job, attempt) or job.suspend_requested_at is not None:
            return False
        decision = _decided_again(run.attempt_id)
        if decision is None:
            return False
        message, told = _texts(decision, run, place)
        transitions.interrupt([attempt], ReasonCode.MIGRATED, message, told)
        Move.objects.create(
            attempt=attempt,
            job=job,
            cause=decision.notice.cause,
            expected_id=place.cluster_id,
            lost_seconds=decision.lost_seconds,
            cost_seconds=decision.cost_seconds,
            stay_seconds=decision.stay_seconds,
        )
        detail = {
            "from": run.cluster,
            "expected": place.cluster,
            "cause": decision.notice.cause.value,
            "lost_seconds": decision.lost_seconds,
            "cost_seconds": decision.cost_seconds,
            "stay_seconds": decision.stay_seconds,
        }
        record_audit(
            SYSTEM, "job.migrate", object_kind="job", object_id=str(job.id), tenant_id=job.tenant_id, detail=detail
        )
    figures.RELOCATED.labels(decision.notice.cause.value).inc()
    return True


def _decided_again(attempt_id: UUID) -> Relocation | None:
    """The decision on the run as it is now, with its rows locked."""
    found = threatened_runs(attempt_id)
    return None if found is None else decide(found.runs[0], found.now)


def _texts(decision: Relocation, run: RunningJob, place: Placement) -> tuple[str, str]:
    """Why the job is moved, in a clause, and for its timeline, with the numbers."""
    notice = decision.notice
    when = f"at {notice.at:%Y-%m-%d %H:%M} UTC"
    message = f"Moved because {WHY[notice.cause].format(cluster=run.cluster, when=when)}"
    costs = (
        f"moving costs it about {duration_text(decision.cost_seconds)}, staying {duration_text(decision.stay_seconds)}"
    )
    today = f"The gateway moves it at most {MOST_MOVES_A_DAY} times a day."
    told = f"{message}; {costs}. {what_follows(place, decision.lost_seconds)} {today}"
    return message, told
