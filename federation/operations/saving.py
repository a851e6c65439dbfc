"""The gateway moves running jobs to cheaper places, and to places where they meet their deadlines (ADR 63).

`placement.answers.cheaper` and `placement.answers.in_time` decide, on a place that placement's trial has for the job now: so neither
quota, budget nor share is exceeded. A run is stopped as one that the gateway moves (`operations.relocation`): one transaction, in
which the decision is made again on the locked rows and with the prices of then. Its place is kept while it stops. If its cluster does not
answer as long as that, the stop is revoked (`operations.consolidation.withdraw_move`).
"""

from collections import Counter
from fractions import Fraction
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import transaction

from federation.engine.relocation import most_leaving
from federation.locks import lock_jobs_and_attempts
from federation.models import Job, Move
from federation.queries.consolidation import Searches
from federation.queries.moves import can_resume
from federation.queries.preemption import load_run
from federation.queries.queue import to_save
from federation.queries.relocation import Destinations
from federation.queries.saving import (
    Brakes,
    Saver,
    SavingRun,
    flavors_of,
    is_free,
    load_brakes,
    saver_of,
    saving_runs,
)
from federation.queries.standstill import is_dispatch_closed
from foundation.caches import reset_with
from foundation.transactions import retried
from placement.answers import cheaper, in_time
from placement.values.decisions import Placement
from placement.values.model import Snapshot
from placement.values.moving import CheaperMove, TimelyMove
from placement.values.quantities import duration_text
from placement.values.reason_codes import ReasonCode
from tenancy.operations import record_audit
from tenancy.queries import SYSTEM

from . import figures, transitions
from .migration import kept_for, may_be_moved, what_follows

MOST_TRIALS = 10
"""The most jobs that one round tries to place elsewhere: each trial costs a part of a scheduling round."""
searches = Searches()
reset_with(searches.forget)


def save_jobs() -> int:
    """The number of jobs whose runs are now being stopped so that they finish in time or cost less elsewhere. One query while no
    running job asks for that; after a long search in vain, the next rounds do not search.
    """
    share = Fraction(settings.RELOCATION_SHARE)
    if not share or searches.are_resting or is_dispatch_closed():
        return 0
    runs = saving_runs()
    if not runs:
        return 0
    searches.begin()
    moved = _Round(runs, share).move()
    searches.end({}, in_vain=not moved)
    return moved


class _Round:
    """One round over all these runs. Those that may miss their deadlines go first."""

    def __init__(self, runs: list[SavingRun], share: Fraction) -> None:
        self._brakes: Brakes = load_brakes(runs)
        self._share = share
        self._destinations = Destinations()
        self._leaving: Counter[UUID] = Counter(self._brakes.leaving)
        known = [self._saver(row) for row in runs]
        self._savers = [one for one in known if one is not None]

    def _saver(self, row: SavingRun) -> Saver | None:
        run = load_run(row.job_id)
        if run is None or run.attempt_id != row.attempt_id:
            return None
        return saver_of(row, run, self._destinations.snapshot)

    def move(self) -> int:
        """The number of runs that are now being stopped."""
        flavors = flavors_of(self._destinations.snapshot)
        pressed = [one for one in self._savers if in_time.is_pressed(one.here, one.course, one.paces[1], one.row.now)]
        saving = [
            one
            for one in self._savers
            if one.row.may_save
            and one not in pressed
            and cheaper.may_be_cheaper(one.request.pod_sets, one.here, flavors, one.course, one.paces[0], one.row.now)
        ]
        wanted = [(one, False) for one in pressed] + [(one, True) for one in saving]
        return sum(self._move(one, is_saving=is_saving) for one, is_saving in wanted[:MOST_TRIALS])

    def _move(self, saver: Saver, *, is_saving: bool) -> bool:
        row = saver.row
        most = most_leaving(self._brakes.live.get(row.cluster_id, 0), self._share)
        if self._leaving[row.cluster_id] >= most or (is_saving and not self._brakes.may_save(row.user_id)):
            return False
        request = to_save(saver.request) if is_saving else saver.request
        place = self._destinations.place(saver.run, row.user_id, request)
        job = Job.objects.get(id=row.job_id)
        if not isinstance(place, Placement) or not can_resume(job, place):
            return False
        if decided(saver, place, self._destinations.snapshot, is_saving=is_saving) is None:
            return False
        if not _stop(saver, place, self._destinations, is_saving=is_saving):
            return False
        self._leaving[row.cluster_id] += 1
        self._brakes.lately[row.user_id] += is_saving
        return True


def decided(saver: Saver, place: Placement, snapshot: Snapshot, *, is_saving: bool) -> CheaperMove | TimelyMove | None:
    """The move of the run to this place; None if it stays."""
    there = saver.side_of(place, snapshot)
    if there is None:
        return None
    if is_saving:
        return cheaper.decide(saver.request.pod_sets, saver.here, there, saver.course, saver.row.now)
    return in_time.decide(saver.here, there, saver.course, saver.row.now)


@retried
def _stop(saver: Saver, place: Placement, destinations: Destinations, *, is_saving: bool) -> bool:
    """Whether the run is now being stopped: not if it has changed, if its place is taken, or if it does not pay any more."""
    run, snapshot = saver.run, destinations.snapshot
    with transaction.atomic():
        jobs, attempts = lock_jobs_and_attempts([run.job_id], [run.attempt_id])
        job, attempt = jobs.get(run.job_id), attempts.get(run.attempt_id)
        if job is None or attempt is None or not may_be_moved(job, attempt) or job.suspend_requested_at is not None:
            return False
        if not is_free(place, destinations.loaded_at):
            return False
        again = _again(run.attempt_id, snapshot)
        decision = None if again is None else decided(again, place, snapshot, is_saving=is_saving)
        if decision is None:
            return False
        message, told = _texts(decision, place)
        transitions.interrupt([attempt], ReasonCode.MIGRATED, message, told)
        cause = Move.Cause.PRICE if is_saving else Move.Cause.DEADLINE
        Move.objects.create(
            attempt=attempt,
            job=job,
            cause=cause,
            expected_id=place.cluster_id,
            lost_seconds=decision.lost_seconds,
            cost_seconds=decision.lost_seconds + cheaper.STOP_SECONDS,
            **kept_for(place),
            **_figures(decision),
        )
        detail = {"from": run.cluster, "expected": place.cluster, "cause": cause.value} | _detail(decision)
        record_audit(
            SYSTEM, "job.migrate", object_kind="job", object_id=str(job.id), tenant_id=job.tenant_id, detail=detail
        )
    figures.RELOCATED.labels(cause.value).inc()
    return True


def _again(attempt_id: UUID, snapshot: Snapshot) -> Saver | None:
    """The run as it is now, with its rows locked."""
    rows = saving_runs(attempt_id)
    run = load_run(rows[0].job_id) if rows else None
    return None if run is None else saver_of(rows[0], run, snapshot)


def _figures(decision: CheaperMove | TimelyMove) -> dict[str, Any]:
    if isinstance(decision, TimelyMove):
        return {"finish_by": decision.finish_by, "late_at": decision.ends_here_at}
    return {
        "price_from": decision.price_here,
        "price_to": decision.price_there,
        "currency": decision.currency,
        "saving": decision.saving,
        "price_of_move": decision.cost,
    }


def _detail(decision: CheaperMove | TimelyMove) -> dict[str, Any]:
    return {"lost_seconds": decision.lost_seconds} | {name: str(value) for name, value in _figures(decision).items()}


def _texts(decision: CheaperMove | TimelyMove, place: Placement) -> tuple[str, str]:
    """Why the job is moved, in a clause, and for its timeline, with the numbers."""
    follows = what_follows(place, decision.lost_seconds)
    if isinstance(decision, TimelyMove):
        message = f"Moved so that it finishes by {decision.finish_by:%Y-%m-%d %H:%M} UTC"
        if_taken = " if its spot capacity is taken away" if decision.is_off_spot else ""
        late, there = decision.ends_here_at, decision.ends_there_at
        ends = f"where it runs it could end at {late:%Y-%m-%d %H:%M}{if_taken}, there at {there:%Y-%m-%d %H:%M} at the latest"
        return message, f"{message}; {ends}. {follows}"
    money = decision.currency
    message = (
        f"Moved to a cheaper place: {decision.price_there:.2f} instead of {decision.price_here:.2f} {money} an hour"
    )
    counted = duration_text(decision.counted_seconds)
    saves = (
        f"in {counted} that saves about {decision.saving:.2f} {money}, and the move costs {decision.cost:.2f} {money}"
    )
    often = f"The gateway moves it for its price at most {cheaper.MOST_SAVING_MOVES_A_DAY} times a day."
    return message, f"{message}; {saves}. {follows} {often}"
