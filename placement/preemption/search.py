"""The cheapest set of victims after whose end a job fits.

The test whether it fits is a function of the set: the trial of placement on a copy (`trial`). It is monotone: to stop
more jobs never takes a place away. Up to `EXACT` candidates, sets are tried in the order of their costs, so the first
that fits is the cheapest. Beyond that, the search is greedy: it starts from sets that fit (all; the cheapest ones; those
on one node or in one domain) and drops every victim that is not needed, the most expensive first. What remains is
minimal by inclusion. Number partitioning reduces to the exact problem, so a bound on the number of trials is needed.
"""

import heapq
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

EXACT = 10
"""The most candidates among which the cheapest set is searched exactly."""
MOST_SEEDS = 24
"""The most sets on nodes and in domains that the greedy search starts from, the cheapest first."""

Chosen: TypeAlias = tuple[int, ...]
"""Positions of victims, ascending."""
Fits: TypeAlias = Callable[[Chosen], bool]


@dataclass(frozen=True, slots=True)
class Problem:
    """Costs and sizes of the candidates, and how many of them, of what total size, may be chosen (None: any)."""

    costs: Sequence[float]
    sizes: Sequence[int]
    fits: Fits
    most: int
    most_size: int | None = None
    areas: Sequence[Chosen] = ()
    """Sets of candidates that are on the same nodes."""
    is_lawful: Callable[[Chosen], bool] | None = None
    """Whether these may be stopped together; then so may any of them. The greedy search needs that all may."""

    def cost(self, chosen: Iterable[int]) -> float:
        """The total."""
        return sum(self.costs[one] for one in chosen)

    def allows(self, chosen: Chosen) -> bool:
        """Whether so much may be stopped."""
        if len(chosen) > self.most:
            return False
        if self.most_size is not None and sum(self.sizes[one] for one in chosen) > self.most_size:
            return False
        return self.is_lawful is None or self.is_lawful(chosen)


def cheapest(problem: Problem, *, exact: int = EXACT) -> Chosen | None:
    """The victims; None if the job does not fit even if all are stopped, or if more would have to be stopped than is
    allowed.
    """
    everything = tuple(range(len(problem.costs)))
    if not problem.fits(everything):
        return None
    return exactly(problem) if len(everything) <= exact else _greedily(problem, everything)


def shortlist(problem: Problem, most: int) -> Chosen:
    """At least `most` of the candidates, which are in the order of their costs, among which a job fits if it fits at all:
    those of the cheapest areas that suffice alone, and the cheapest ones up to the first that suffice together.
    """
    found: set[int] = set()
    tries = 0
    for area in sorted(problem.areas, key=lambda area: (problem.cost(area), area)):
        if len(area) > most or not problem.allows(area):
            continue
        if len(found) + len(area) > most or tries == MOST_SEEDS:
            break
        tries += 1
        if problem.fits(area):
            found.update(area)
    order = range(len(problem.costs))
    if not found:
        found.update(shortest(problem, order))
    by_choice = sorted(order, key=lambda one: one not in found)
    return tuple(sorted(by_choice[: max(most, len(found))]))


def exactly(problem: Problem) -> Chosen | None:
    """Uniform-cost search: a set is extended only by later candidates, so each is visited once."""
    count = len(problem.costs)
    waiting: list[tuple[float, int, Chosen]] = [(0.0, 0, ())]
    while waiting:
        cost, size, chosen = heapq.heappop(waiting)
        if problem.fits(chosen):
            return chosen
        for one in range(chosen[-1] + 1 if chosen else 0, count):
            larger = (*chosen, one)
            if problem.allows(larger):
                heapq.heappush(waiting, (cost + problem.costs[one], size + 1, larger))
    return None


def _greedily(problem: Problem, everything: Chosen) -> Chosen | None:
    by_cost = sorted(everything, key=lambda one: (problem.costs[one], one))
    by_size = sorted(everything, key=lambda one: (problem.costs[one] / max(1, problem.sizes[one]), one))
    seeds = [everything, shortest(problem, by_cost), shortest(problem, by_size)]
    areas = sorted(problem.areas, key=lambda area: (problem.cost(area), area))[:MOST_SEEDS]
    seeds += [area for area in areas if problem.fits(area)]
    found = {pruned(problem, seed) for seed in seeds}
    allowed = [one for one in found if problem.allows(one)]
    return min(allowed, key=lambda one: (problem.cost(one), len(one), one), default=None)


def shortest(problem: Problem, order: Sequence[int]) -> Chosen:
    """The shortest beginning of the order that suffices; by bisection, since the test is monotone."""
    low, high = 0, len(order)
    while low < high:
        middle = (low + high) // 2
        if problem.fits(tuple(sorted(order[:middle]))):
            high = middle
        else:
            low = middle + 1
    return tuple(sorted(order[:high]))


def pruned(problem: Problem, chosen: Chosen) -> Chosen:
    """Without the victims that are not needed; the most expensive ones are dropped first."""
    left = chosen
    for one in sorted(chosen, key=lambda one: (-problem.costs[one], one)):
        fewer = tuple(other for other in left if other != one)
        if problem.fits(fewer):
            left = fewer
    return left
