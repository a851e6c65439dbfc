"""The trial of placement on a copy: would the job fit if some running jobs had ended?

The copy is the cycle's final state with the pods of these jobs given back to their nodes, and their holds to the quota
limits. The job is judged as a cycle judges it: the same visibility, candidates, sites and limits. A hold on a limit that
was reduced below its use frees nothing until the use is below the limit again. Units of devices that are shared in parts
(`divisible`) are not counted as freed.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import replace
from typing import NamedTuple, TypeAlias
from uuid import UUID

import numpy as np

from placement.cycle.cycle import Bench, Cycle
from placement.cycle.scopes import Choice, Scopes
from placement.cycle.timeline import Seeker
from placement.fleet.amounts import amounts_of
from placement.fleet.fleet import Fleet
from placement.fleet.fleet_state import FleetState
from placement.fleet.limits import LimitBook, Lines
from placement.fleet.pools import CPU, MEMORY, PODS, RESOURCES, UNITS, Ints
from placement.fleet.siting import Need, tightness
from placement.values.decisions import Placement
from placement.values.model import JobRequest, LimitState, Snapshot
from placement.values.preemption import HeldPods, RunningJob
from placement.values.sizes import largest
from quotas.engine.borrowing import Chain, Line, falls, obstacle, rises

Changes: TypeAlias = Callable[[Chain[LimitState], int], list[tuple[Line[LimitState], int]]]
"""What an amount changes along a chain of limits: `rises` or `falls`."""


class Trial:
    """One waiting job, tried on copies of a cycle's final state."""

    def __init__(self, snapshot: Snapshot, cycle: Cycle, job: JobRequest) -> None:
        self._snapshot, self._cycle = snapshot, cycle
        self._bench: Bench = cycle.bench(job)
        self.job = self._bench.job
        self._fleet = self._bench.state.fleet
        self._numbers = {cluster.id: number for number, cluster in enumerate(self._fleet.clusters)}
        self._seeker: Seeker = self._bench.scopes.seeker(self.job)
        self.count = 0
        """How often `fits` was asked."""
        self._candidates: dict[int, list[int]] = {}
        """By cluster, in the order of the job's ranking, those that could hold it when empty and that its budgets allow."""
        self._amounts: dict[int, Mapping[str, int]] = {}
        self._parts: dict[UUID, Mapping[int, _Part]] = {}
        for number in self._seeker.ranked if not self._bench.is_closed else ():
            if self._is_affordable(number):
                self._candidates.setdefault(int(self._seeker.cluster_of[number]), []).append(number)

    @property
    def book(self) -> LimitBook:
        """The quota limits after the cycle."""
        return self._bench.book

    def most_amounts(self, cluster: int) -> Mapping[str, int]:
        """The most that the hold of the job takes of each resource on the cluster."""
        found: dict[str, int] = {}
        for number in self._candidates[cluster]:
            for resource, amount in self.amounts_at(number).items():
                found[resource] = max(amount, found.get(resource, 0))
        return found

    @property
    def bench(self) -> Bench:
        """What the trial starts from."""
        return self._bench

    @property
    def clusters(self) -> list[int]:
        """The numbers of the clusters that could hold the job when empty, in the order of its ranking."""
        return list(self._candidates)

    def candidates(self, cluster: int) -> Sequence[int]:
        """The ways to place it there, in the order of its ranking."""
        return self._candidates.get(cluster, ())

    def ways(self, candidate: int) -> tuple[list[int], tuple[Need, ...]]:
        """The pools of one way, and what each pod set needs there."""
        return self._seeker.ask.pools[candidate].tolist(), self._seeker.ask.needs(candidate)

    def name_of(self, cluster: int) -> str:
        """The cluster's name."""
        return self._fleet.clusters[cluster].name

    def number_of(self, run: RunningJob) -> int | None:
        """The number of its cluster; None if that takes no new work, is silent, or was removed."""
        number = self._numbers.get(run.cluster_id)
        if number is None:
            return None
        first, end = self._fleet.first_pool_of_cluster[number : number + 2]
        return number if first < end and bool(self._fleet.is_open[first]) else None

    def fits(self, cluster: int, ended: Sequence[RunningJob]) -> bool:
        """Whether the job would get a place on the cluster."""
        self.count += 1
        state = self.state_after([cluster], [run for run in ended if self._numbers.get(run.cluster_id) == cluster])
        name = self._fleet.clusters[cluster].name
        with self.returned(ended):
            limits = self._bench.book.open_to(self.job, name, self._bench.counted)
            for number in self._candidates[cluster]:
                if obstacle(limits, self.amounts_at(number)) is not None:
                    continue
                if state.site(*self.ways(number)) is not None:
                    return True
        return False

    def place(self, ended: Sequence[RunningJob]) -> Placement | None:
        """The place that a cycle would give the job."""
        seat = self.seat(ended)
        return None if seat is None else seat[0]

    def seat(self, ended: Sequence[RunningJob]) -> tuple[Placement, Choice] | None:
        """Likewise, with the choice that it is made from."""
        scopes = self._scopes_after(ended)
        with self.returned(ended):
            return self._cycle.seat(self.job, scopes)

    def widest_place(self, ended: Sequence[RunningJob]) -> Placement | None:
        """Likewise, for the largest size of the job that has one."""
        scopes = self._scopes_after(ended)
        with self.returned(ended):
            found = largest(self.job, lambda sized: self._cycle.placed_in(sized, scopes))
        return None if found is None else found[1]

    def _scopes_after(self, ended: Sequence[RunningJob]) -> Scopes:
        clusters = sorted({number for run in ended if (number := self._numbers.get(run.cluster_id)) is not None})
        return Scopes(self._snapshot, self.state_after(clusters, ended))

    def short_limits(self) -> set[int]:
        """The identities of the quota limits that have too little left for the job now."""
        short: set[int] = set()
        of_tenant = replace(self.job, user=None, class_name="")
        for cluster, candidates in self._candidates.items():
            limits = self._bench.book.open_to(of_tenant, self._fleet.clusters[cluster].name, self._bench.counted)
            for number in candidates:
                rising = _along(limits, self.amounts_at(number), rises)
                short |= {id(line.of or line) for line, rise in rising if line.held + rise > line.limit.cap}
        return short

    def _is_affordable(self, number: int) -> bool:
        """Whether the budgets leave enough for the job there. What victims hold of them does not count as freed."""
        flavors = tuple([self._fleet.pools[pool].flavor for pool in self._seeker.ask.pools[number].tolist()])
        return self._bench.budgets.refusing(self.job, flavors) is None

    def amounts_at(self, number: int) -> Mapping[str, int]:
        """What the hold of the job takes there."""
        found = self._amounts.get(number)
        if found is None:
            pools = self._seeker.ask.pools[number].tolist()
            pairs = zip(self.job.pod_sets, pools, strict=True)
            flavors = {pod_set.name: self._fleet.pools[pool].flavor for pod_set, pool in pairs}
            found = self._amounts[number] = amounts_of(self.job, flavors)
        return found

    def holds(self, run: RunningJob, lines: set[int]) -> bool:
        """Whether its hold counts against one of these lines."""
        own = self._bench.book.chains(run.tenant_path, run.cluster)
        return any(id(line) in lines for line, _ in _along(own, run.amounts, falls))

    def state_after(
        self,
        clusters: Iterable[int],
        ended: Iterable[RunningJob],
        kept: Sequence[tuple[int, tuple[int, ...]]] | None = None,
    ) -> FleetState:
        """The state after these runs have ended. Only the pools of these clusters are copied, and of those where nodes are
        kept: for this job, unless others are named.
        """
        base, shown = self._bench.state, self._bench.kept if kept is None else kept
        state = copy(base)
        state.free_share, state.cluster_free = base.free_share.copy(), base.cluster_free.copy()
        state.versions, state.bounds, state.placed = base.versions.copy(), base.bounds.copy(), base.placed.copy()
        state.shared_reasons, state.lendable = {}, {}
        state.states = base.states.copy()
        for cluster in {*clusters, *(self._fleet.cluster_of_pool.item(pool) for pool, _ in shown)}:
            for pool in range(*self._fleet.first_pool_of_cluster[cluster : cluster + 2]):
                state.states[pool] = base.pool(pool).copy()
        for pool, nodes in shown:
            _show(state, pool, nodes)
        parts: dict[int, list[_Part]] = defaultdict(list)
        for run in ended:
            for pool, part in self._parts_of(run).items():
                parts[pool].append(part)
        for pool, given in parts.items():
            _give(state, pool, given)
        return state

    def _parts_of(self, run: RunningJob) -> Mapping[int, "_Part"]:
        """What the run gives back, by pool; computed once."""
        found = self._parts.get(run.attempt_id)
        if found is None:
            found = self._parts[run.attempt_id] = _parts(self._fleet, self._numbers[run.cluster_id], run)
        return found

    @contextmanager
    def returned(self, ended: Sequence[RunningJob]) -> Iterator[None]:
        """The limits while the holds of these runs count as ended."""
        before: dict[int, tuple[Line[LimitState], int]] = {}
        for run in ended:
            limits = self._bench.book.chains(run.tenant_path, run.cluster, run.user, run.class_name)
            for line, fall in _along(limits, run.amounts, falls):
                before.setdefault(id(line), (line, line.held))
                line.held -= fall
            self._bench.book.use(run.reservation, run.amounts, -1)
        for line, held in before.values():
            line.held += min(held - line.held, self._snapshot.overdrawn.get(line.limit.id, 0))
        try:
            yield
        finally:
            for line, held in before.values():
                line.held = held
            for run in ended:
                self._bench.book.use(run.reservation, run.amounts)


def _along(limits: Lines, amounts: Mapping[str, int], changes: Changes) -> Iterator[tuple[Line[LimitState], int]]:
    """The changes that amounts make at each limit. Those of one chain are computed together, and of no other."""
    for resource, amount in amounts.items():
        for chain in limits.get(resource, ()):
            yield from changes(chain, amount)


def _show(state: FleetState, number: int, nodes: Sequence[int]) -> None:
    """Makes nodes available that the cycle keeps for the job itself, in all pools that contain them."""
    fleet = state.fleet
    cluster = int(fleet.cluster_of_pool[number])
    numbers = {fleet.pools[n].flavor.name: n for n in range(*fleet.first_pool_of_cluster[cluster : cluster + 2])}
    places = [(number, node) for node in nodes]
    places += [(numbers[flavor], at) for node in nodes for flavor, at in fleet.pools[number].siblings.get(node, ())]
    for pool, node in places:
        own = state.pool(pool)
        if node in own.hidden and node not in own.reserved and own.devices is None:
            own.unhide([node])
            state.bounds[:, pool] = np.maximum(state.bounds[:, pool], own.free[:, node])


class _Part(NamedTuple):
    """What a run gives back in a pool: for each of some nodes, a column in the order of the pool's rows."""

    nodes: Ints
    amounts: Ints


def _parts(fleet: Fleet, cluster: int, run: RunningJob) -> dict[int, _Part]:
    """On nodes that still exist and may be used: in the pool of the flavor all, in the nodes' other pools what they share."""
    first, end = fleet.first_pool_of_cluster[cluster : cluster + 2]
    numbers = {fleet.pools[number].flavor.name: number for number in range(first, end)}
    wanted = {name for held in run.pods for name in held.nodes}
    columns: dict[int, list[tuple[int, Ints]]] = defaultdict(list)
    for held in run.pods:
        number = numbers.get(held.flavor)
        if number is None:
            continue
        pool, each = fleet.pools[number], _each(fleet, held)
        positions = {name: node for node, name in enumerate(pool.node_names) if name in wanted}
        shared = each.copy()
        shared[UNITS] = 0
        for name, count in held.nodes.items():
            node = positions.get(name)
            if node is None or not pool.is_open[node]:
                continue
            columns[number].append((node, (each if pool.devices is None else shared) * count))
            for flavor, position in pool.siblings.get(node, ()):
                columns[numbers[flavor]].append((position, shared * count))
    return {
        number: _Part(np.array([node for node, _ in own]), np.stack([column for _, column in own], axis=1))
        for number, own in columns.items()
    }


def _each(fleet: Fleet, held: HeldPods) -> Ints:
    each = np.zeros(len(RESOURCES) + len(fleet.resources), dtype=np.int64)
    each[[UNITS, CPU, MEMORY, PODS]] = held.units, held.cpu_millicores, held.memory_mib, 1
    for name, amount in held.resources:
        if name in fleet.resources:
            each[len(RESOURCES) + fleet.resources.index(name)] = amount
    return each


def _give(state: FleetState, number: int, parts: Sequence[_Part]) -> None:
    """Adds what runs used of the nodes of a pool, up to their capacity; except on hidden and closed nodes. The pool's
    state is a copy that nothing was derived from yet.
    """
    own, pool = state.pool(number), state.fleet.pools[number]
    nodes = np.concatenate([part.nodes for part in parts])
    added = np.zeros_like(own.free)
    np.add.at(added.T, nodes, np.concatenate([part.amounts for part in parts], axis=1).T)
    kept = [*own.hidden, *own.closed]
    added[:, kept] = 0
    added[[row for row in range(len(RESOURCES)) if row not in (UNITS, CPU, MEMORY, PODS)]] = 0
    touched = np.unique(nodes)
    most = np.maximum(own.free[:, touched], pool.capacity[:, touched])
    own.free[:, touched] = np.minimum(own.free[:, touched] + added[:, touched], most)
    own.tight[touched] = tightness(own.free[:, touched], None if own.devices is None else own.devices[:, touched])
    own.bounds = np.maximum(own.bounds, own.free[:, touched].max(axis=1)).tolist()
    state.bounds[:, number] = np.maximum(state.bounds[:, number], own.bounds)
    share = int(own.free[UNITS if pool.flavor.gpu_model else CPU].sum()) / pool.size
    state.free_share[number] = max(float(state.free_share[number]), share)
