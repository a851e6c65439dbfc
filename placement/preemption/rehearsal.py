"""The rehearsal of moves on a copy: would a waiting job fit if some running jobs had stopped, and would each of these still
have a place beside it?

The waiting job is placed first, by the quota that is there now: what jobs hold that move is not available to it, because
they take it again. Then each of them is placed in the order of the queue, with its own hold returned. All are judged as a
cycle judges them (`trial`), each in the fleet that it sees.

Nodes are kept by name, not by the pods that go there, and the jobs come in any order. So a job shares no node with another one
of the plan on which it could put more of its pods than it was given there.
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from typing import NamedTuple
from uuid import UUID

from placement.cycle.cycle import Cycle
from placement.cycle.scopes import Scopes
from placement.fleet.fleet_state import FleetState
from placement.fleet.limits import LimitBook, Lines
from placement.fleet.pools import UNITS
from placement.fleet.siting import Need, Site
from placement.values.consolidation import Movable
from placement.values.decisions import Placement
from placement.values.model import JobRequest, Snapshot
from placement.values.preemption import RunningJob
from quotas.engine.borrowing import obstacle

from .trial import Trial


class Take(NamedTuple):
    """A pod set on nodes of a pool."""

    pool: int
    need: Need
    site: Site


class _Spot(NamedTuple):
    """A place that a job takes in a rehearsal, and the quota for it."""

    takes: tuple[Take, ...]
    limits: Lines
    amounts: Mapping[str, int]


class Rehearsal:
    """One waiting job, and running ones that may move for it. `requests` are those with which they would wait again."""

    def __init__(self, snapshot: Snapshot, cycle: Cycle, job: JobRequest, requests: Mapping[UUID, JobRequest]) -> None:
        self._snapshot, self._cycle, self._requests = snapshot, cycle, requests
        self.trial = Trial(snapshot, cycle, job)
        self._places = {job_id: place for place, job_id in enumerate(requests)}
        self._trials: dict[UUID, Trial] = {}
        self._affordable: dict[int, list[int]] = {}
        self.count = 0
        """How often something was tried."""

    def has_enough_free(self) -> bool:
        """A quick check: whether the job could be placed, and the fleet has as many free devices as it needs. Where devices are
        shared, it does not say no.
        """
        state, ways = self.trial.bench.state, [way for n in self.trial.clusters for way in self.trial.candidates(n)]
        if not ways:
            return False
        pools = state.fleet.pools
        free = sum(int(state.free(n)[UNITS].sum()) for n, pool in enumerate(pools) if pool.flavor.gpu_model)
        for number, nodes in self.trial.bench.kept:
            hidden = state.pool(number).hidden
            free += sum(int(hidden[node][UNITS]) for node in nodes if node in hidden)
        if any(pool.flavor.sharing != "whole" for pool in pools if pool.flavor.gpu_model):
            return True
        return free >= min(sum(need.units * need.count for need in self.trial.ways(way)[1]) for way in ways)

    def frees(self, cluster: int, moved: Sequence[Movable]) -> bool:
        """Whether the job has a place on the cluster after these have stopped; where they go does not count. If it has one,
        it also has one after more have stopped.
        """
        self.count += 1
        state = self.trial.state_after([cluster], [one.run for one in moved])
        return any(state.site(*self.trial.ways(way)) is not None for way in self._ways(cluster))

    def _ways(self, cluster: int) -> list[int]:
        """The ways to place the job there that quota allows."""
        found = self._affordable.get(cluster)
        if found is None:
            limits = _limits(self.trial, cluster)
            found = self._affordable[cluster] = [
                way for way in self.trial.candidates(cluster) if obstacle(limits, self.trial.amounts_at(way)) is None
            ]
        return found

    def stuck(self, cluster: int, moved: Sequence[Movable]) -> list[Movable] | None:
        """The first of them that has no place beside the job on the cluster; empty if all have one, None if the job has none."""
        self.count += 1
        room = _Room(self.trial, moved)
        with ExitStack() as stack:
            spot = self._spot(self.trial, room, self._ways(cluster), cluster)
            if spot is None:
                return None
            self._take(room, spot, self.trial.job, stack)
            for one in self._in_order(moved):
                trial = self._trial_of(one)
                stack.enter_context(self.trial.returned([one.run]))
                found = self._first_spot(one, trial, room)
                if found is None:
                    return [one]
                self._take(room, found, trial.job, stack)
        return []

    def _first_spot(self, one: Movable, trial: Trial, room: "_Room") -> _Spot | None:
        for cluster in trial.clusters:
            limits = _limits(trial, cluster)
            ways = [
                way
                for way in trial.candidates(cluster)
                if self._resumes(one, trial, way) and obstacle(limits, trial.amounts_at(way)) is None
            ]
            spot = self._spot(trial, room, ways, cluster)
            if spot is not None:
                return spot
        return None

    def _resumes(self, one: Movable, trial: Trial, way: int) -> bool:
        if not one.flavors:
            return True
        pools = trial.bench.state.fleet.pools
        return pools[trial.ways(way)[0][0]].flavor.name in one.flavors

    def _spot(self, trial: Trial, room: "_Room", ways: Iterable[int], cluster: int) -> _Spot | None:
        state = room.seen_by(trial)
        for way in ways:
            pools, needs = trial.ways(way)
            sites = state.site(pools, needs)
            if sites is not None:
                takes = tuple(Take(*one) for one in zip(pools, needs, sites, strict=True))
                if room.allows(takes):
                    return _Spot(takes, _limits(trial, cluster), trial.amounts_at(way))
        return None

    def _take(self, room: "_Room", spot: _Spot, job: JobRequest, stack: ExitStack) -> None:
        """Takes the place and its quota until the rehearsal ends."""
        room.take(spot.takes)
        book: LimitBook = self.trial.book
        book.take(spot.limits, spot.amounts, job.constraints.reservation)
        stack.callback(book.give_back, spot.limits, spot.amounts, job.constraints.reservation)

    def placements(self, moved: Sequence[Movable]) -> tuple[Placement, dict[UUID, Placement]] | None:
        """The places that a cycle would give the job, and each of these by job, if they had stopped; None if one has none."""
        room, scopes = _Room(self.trial, moved, is_whole=True), _AllScopes(self._snapshot)
        found: dict[UUID, Placement] = {}
        with ExitStack() as stack:
            first = self._seat(self.trial, room, scopes, stack)
            if first is None:
                return None
            for one in self._in_order(moved):
                stack.enter_context(self.trial.returned([one.run]))
                placed = self._seat(self._trial_of(one), room, scopes, stack)
                if placed is None or (one.flavors and placed.pod_sets[0].flavor not in one.flavors):
                    return None
                found[one.run.job_id] = placed
        return first, found

    def _seat(self, trial: Trial, room: "_Room", scopes: "_AllScopes", stack: ExitStack) -> Placement | None:
        if trial.bench.is_closed:
            return None
        seat = self._cycle.seat(trial.job, scopes.of(room.seen_by(trial)))
        if seat is None:
            return None
        placed, choice = seat
        parts = zip(choice.terms.pools, choice.terms.needs, choice.sites, strict=True)
        spot = _Spot(tuple(Take(*one) for one in parts), choice.limits, choice.terms.amounts)
        if not room.allows(spot.takes):
            return None
        self._take(room, spot, trial.job, stack)
        budgets, flavors = trial.bench.budgets, choice.terms.flavors
        budgets.charge(trial.job, flavors)
        stack.callback(budgets.refund, trial.job, flavors)
        return placed

    def _in_order(self, moved: Iterable[Movable]) -> list[Movable]:
        """In the order in which they would wait."""
        return sorted(moved, key=lambda one: self._places[one.run.job_id])

    def _trial_of(self, one: Movable) -> Trial:
        found = self._trials.get(one.run.job_id)
        if found is None:
            request = self._requests[one.run.job_id]
            found = self._trials[one.run.job_id] = Trial(self._snapshot, self._cycle, request)
        return found

    def runs_on(self, cluster: int, run: RunningJob) -> bool:
        """Whether its pods are on this cluster, which takes new work."""
        return self.trial.number_of(run) == cluster


class _Room:
    """The fleet after these runs have stopped, as each job sees it. What one job takes is taken for all."""

    def __init__(self, first: Trial, moved: Sequence[Movable], *, is_whole: bool = False) -> None:
        self._runs = [one.run for one in moved]
        self._kept = first.bench.kept
        self._fleet = first.bench.state.fleet
        numbers = (first.number_of(run) for run in self._runs)
        self._touched = {number for number in numbers if number is not None}
        if is_whole:
            self._touched = set(range(len(self._fleet.clusters)))
        self._touched |= {self._fleet.cluster_of_pool.item(pool) for pool, _ in self._kept}
        self._seen: dict[int, tuple[FleetState, set[int]]] = {}
        self._taken: list[tuple[Take, ...]] = []
        self._nodes: set[tuple[int, str]] = set()
        """The nodes on which something was taken, each with its cluster."""

    def seen_by(self, trial: Trial) -> FleetState:
        """What is free for the trial's job now."""
        base = trial.bench.state
        found = self._seen.get(id(base))
        if found is None:
            state = trial.state_after(self._touched, self._runs, self._kept)
            found = self._seen[id(base)] = state, set(self._touched)
            for takes in self._taken:
                self._take_in(*found, takes)
        return found[0]

    def allows(self, takes: Sequence[Take]) -> bool:
        """Whether a job with this place would leave the others theirs, whichever comes first."""
        return self._named(self._loose(takes)).isdisjoint(self._nodes)

    def take(self, takes: tuple[Take, ...]) -> None:
        """Deducts pods in every view."""
        self._taken.append(takes)
        self._nodes |= self._named((one.pool, node) for one in takes for node, _ in one.site.pods)
        for state, copied in self._seen.values():
            self._take_in(state, copied, takes)

    def _take_in(self, state: FleetState, copied: set[int], takes: tuple[Take, ...]) -> None:
        for one in takes:
            cluster = self._fleet.cluster_of_pool.item(one.pool)
            if cluster not in copied:
                copied.add(cluster)
                for pool in range(*self._fleet.first_pool_of_cluster[cluster : cluster + 2]):
                    state.states[pool] = state.pool(pool).copy()
            state.take(one.pool, one.need, one.site)
        for place in self._loose(takes):
            for pool, node in self._everywhere(*place):
                state.close(pool, [node])

    def _loose(self, takes: Sequence[Take]) -> set[tuple[int, int]]:
        """The nodes of the place, each with its pool, on which pods of the job could be that are elsewhere now."""
        counts = [(one.pool, one.need.count, dict(one.site.pods)) for one in takes]
        places = {(one.pool, node) for one in takes for node, _ in one.site.pods}
        return {
            place
            for place in places
            for pool, node in (self._everywhere(*place) if len(places) > 1 else ())
            if any(own == pool and on.get(node, 0) < count for own, count, on in counts)
        }

    def _everywhere(self, pool: int, node: int) -> list[tuple[int, int]]:
        """The node in each pool that contains it."""
        pools, at = self._fleet.pools, self._fleet.cluster_of_pool.item(pool)
        siblings = pools[pool].siblings.get(node, ())
        of_cluster = range(*self._fleet.first_pool_of_cluster[at : at + 2]) if siblings else ()
        numbers = {pools[number].flavor.name: number for number in of_cluster}
        return [(pool, node), *((numbers[flavor], position) for flavor, position in siblings)]

    def _named(self, places: Iterable[tuple[int, int]]) -> set[tuple[int, str]]:
        """The nodes by cluster and name."""
        fleet = self._fleet
        return {(fleet.cluster_of_pool.item(pool), fleet.pools[pool].node_names[node]) for pool, node in places}


class _AllScopes:
    """The scopes of each view."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._found: dict[int, Scopes] = {}

    def of(self, state: FleetState) -> Scopes:
        found = self._found.get(id(state))
        if found is None:
            found = self._found[id(state)] = Scopes(self._snapshot, state)
        return found


def _limits(trial: Trial, cluster: int) -> Lines:
    return trial.book.open_to(trial.job, trial.name_of(cluster), trial.bench.counted)
