"""Which running jobs are stopped because a limit was lowered below what is held there, and its delay has passed.

All such limits of an organisation are judged together. What they hold is counted as if all that is being stopped, or has
ended, were gone. Victims are searched as for a waiting job (`search`): the cheapest set after whose end no such limit holds
more than it may. No victim is unnecessary: without it, a limit would still hold too much.

Jobs whose shield lasts are chosen only if the others do not suffice. A job that is chosen and shielded is left until its
shield ends; meanwhile only the rest of the same choice is stopped. If all jobs together do not suffice (others hold the
rest, on a silent cluster for example), they are stopped as far as each of them helps. The brake limits what of a choice is
stopped now: the cheapest first. What remains is chosen again later.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from placement.values.limits import LimitState
from placement.values.preemption import MOST_TIMES_PREEMPTED, Allowance, Leaving, RunningJob, Surplus, Victim
from quotas.engine.borrowing import Book, Line, falls, give_back

from .plan import MOST_CANDIDATES, MOST_SHOWN, is_preemptible
from .search import EXACT, Chosen, Problem, cheapest, shortlist


@dataclass(frozen=True, slots=True)
class Beyond:
    """An organisation with lowered limits: all its limits, the due ones, and what runs there. `going` is what jobs that
    are being stopped, or have ended, still hold.
    """

    now: datetime
    organisation: str
    limits: tuple[LimitState, ...]
    due: tuple[Surplus, ...]
    running: tuple[RunningJob, ...]
    going: tuple[Leaving, ...]
    allowance: Allowance


@dataclass(frozen=True, slots=True)
class Reduction:
    """A decision: these jobs are stopped because of lowered limits, `limits`."""

    organisation: str
    limits: tuple[Surplus, ...]
    victims: tuple[Victim, ...]
    considered: tuple[Victim, ...]
    """Other jobs that count at these limits, the cheapest first."""
    is_exact: bool
    """Whether no cheaper choice exists; else it is the best that was found."""

    @property
    def cost(self) -> float:
        """In GPU-seconds."""
        return sum(one.cost for one in self.victims)


def reduce(given: Beyond, *, exact: int = EXACT) -> Reduction | None:
    """What to stop now; None if nothing has to go, or nothing may be stopped yet."""
    scales = _Scales(given)
    pool = [run for run in given.running if run.times_preempted < MOST_TIMES_PREEMPTED and scales.helps(run)]
    if not pool or given.allowance.most_victims < 1:
        return None
    chosen = _chosen(given, scales, pool, exact)
    stopped = _within(given, [run for run in chosen if is_preemptible(run, given.now)])
    if not stopped:
        return None
    others = [run for run in _by_cost(given, pool) if run not in stopped]
    return Reduction(
        organisation=given.organisation,
        limits=tuple(one for one in scales.beyond if any(one.counts(run) for run in stopped)),
        victims=tuple(_victim(given, scales, run) for run in stopped),
        considered=tuple(_victim(given, scales, run) for run in others[:MOST_SHOWN]),
        is_exact=len(pool) <= exact,
    )


class _Scales:
    """What the due limits would hold after some jobs have ended."""

    def __init__(self, given: Beyond) -> None:
        self._book: Book[LimitState] = Book(given.limits)
        for one in given.going:
            give_back(self._book.chains(one.tenant_path, one.cluster), one.amounts)
        by_id = {limit.id: limit for limit in given.limits}
        # One that was removed or moved between two queries is not there.
        due = [one for one in given.due if one.limit_id in by_id]
        self._lines = {one.limit_id: self._book.chain(by_id[one.limit_id])[0] for one in due}
        self.most: Mapping[UUID, int] = {one.limit_id: one.most for one in due}
        self.beyond = tuple(one for one in due if self._lines[one.limit_id].held > one.most)
        """The due limits for which what is being stopped does not suffice: only they need more."""

    def held_after(self, ended: Sequence[RunningJob]) -> Mapping[UUID, int]:
        """By due limit, what is held there then."""
        before: dict[int, tuple[Line[LimitState], int]] = {}
        for run in ended:
            for resource, amount in run.amounts.items():
                for chain in self._book.chains(run.tenant_path, run.cluster).get(resource, ()):
                    for line, fall in falls(chain, amount):
                        before.setdefault(id(line), (line, line.held))
                        line.held -= fall
        found = {limit_id: line.held for limit_id, line in self._lines.items()}
        for line, held in before.values():
            line.held = held
        return found

    def helps(self, run: RunningJob) -> bool:
        """Whether its end takes something from a limit that holds too much. What guarantees keep is not given back."""
        then = self.held_after([run])
        return any(line.held > max(self.most[one], then[one]) for one, line in self._lines.items())


def _chosen(given: Beyond, scales: _Scales, pool: Sequence[RunningJob], exact: int) -> list[RunningJob]:
    """The jobs that have to go, also those that are still shielded."""
    for runs in ([run for run in pool if is_preemptible(run, given.now)], pool):
        if _is_within(scales.held_after(runs), scales.most):
            return _cheapest(given, scales, scales.most, runs, exact)
    least = scales.held_after(pool)
    goals = {limit_id: max(most, least[limit_id]) for limit_id, most in scales.most.items()}
    return _cheapest(given, scales, goals, pool, exact)


def _cheapest(
    given: Beyond, scales: _Scales, goals: Mapping[UUID, int], runs: Sequence[RunningJob], exact: int
) -> list[RunningJob]:
    """The cheapest of these jobs after whose end no limit holds more than its goal; that is so after the end of all."""
    ordered = _by_cost(given, runs)
    if len(ordered) > MOST_CANDIDATES:
        kept = shortlist(_problem(given, scales, goals, ordered), MOST_CANDIDATES)
        ordered = [ordered[one] for one in kept]
    found = cheapest(_problem(given, scales, goals, ordered), exact=exact)
    return [ordered[one] for one in found or ()]


def _problem(given: Beyond, scales: _Scales, goals: Mapping[UUID, int], ordered: Sequence[RunningJob]) -> Problem:
    def fits(chosen: Chosen) -> bool:
        return _is_within(scales.held_after([ordered[one] for one in chosen]), goals)

    return Problem(
        costs=[run.cost(given.now) for run in ordered],
        sizes=[run.gpu_milli for run in ordered],
        fits=fits,
        most=len(ordered),
    )


def _is_within(held: Mapping[UUID, int], goals: Mapping[UUID, int]) -> bool:
    return all(held[limit_id] <= goal for limit_id, goal in goals.items())


def _within(given: Beyond, chosen: Sequence[RunningJob]) -> list[RunningJob]:
    """Those that the brake allows to be stopped now, the cheapest first."""
    left = given.allowance.left(given.organisation)
    stopped: list[RunningJob] = []
    for run in _by_cost(given, chosen):
        if len(stopped) == given.allowance.most_victims:
            break
        if left is None:
            stopped.append(run)
        elif run.gpu_milli <= left:
            stopped.append(run)
            left -= run.gpu_milli
    return stopped


def _by_cost(given: Beyond, runs: Sequence[RunningJob]) -> list[RunningJob]:
    return sorted(runs, key=lambda run: (run.cost(given.now), run.attempt_id))


def _victim(given: Beyond, scales: _Scales, run: RunningJob) -> Victim:
    surplus = next((one for one in scales.beyond if one.counts(run)), None)
    return Victim(run, run.lost_seconds(given.now), run.cost(given.now), surplus=surplus)
