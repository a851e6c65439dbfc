"""What one cycle has allocated so far, node by node.

Within a cycle, only a decision that failed half-way gives back what it had taken. So a job that did not fit once does
not fit for the rest of the cycle; the cycle relies on this.
"""

from collections.abc import Collection, Mapping, Sequence
from copy import copy
from datetime import datetime
from typing import Any

import numpy as np

from placement.values.decisions import Closure, Reason

from .fleet import Fleet
from .pools import CPU, MEMORY, PART, PODS, RESOURCES, UNITS, WHOLE, Floats, Ints, Pool
from .siting import TIGHTNESS_OF_A_UNIT, Need, Site, has_room, room_for, site_gang, site_one, spread_order, tightness

_ENOUGH = 2**62


class PoolState:
    """A pool in a cycle: its matrices, copied on the first deduction."""

    __slots__ = (
        "bounds", "changes", "closed", "devices", "free", "hidden", "is_own", "notes", "pool", "reserved", "tight",
        "unit_rooms",
    )  # fmt: skip

    def __init__(self, pool: Pool, *, is_empty: bool) -> None:
        self.pool = pool
        self.free: Ints = pool.capacity if is_empty else pool.free
        self.devices = pool.whole_devices if is_empty else pool.devices
        self.tight = tightness(self.free, self.devices)
        self.hidden: dict[int, Ints] = {}
        """By node that is kept from later jobs: its free amounts."""
        self.reserved: dict[int, Closure] = {}
        """The hidden nodes that advance reservations or maintenance windows keep."""
        self.closed: frozenset[int] = frozenset()
        """Nodes that are closed to the jobs that see this state."""
        self.is_own = False
        """Whether the matrices are copies already."""
        self.bounds: list[int] = (pool.largest_capacity if is_empty else pool.largest_free).tolist()
        """Per resource, an upper bound of what any node has free."""
        self.unit_rooms: dict[int, int] = {}
        self.notes: dict[object, Any] = {}
        """Values that callers derived from what is free now."""
        self.changes: list[int] = []
        """Nodes on which something was taken or given back, one entry each time."""

    def may_hold(self, need: Need) -> bool:
        """False if a quick check shows that the pod set cannot fit."""
        if need.cpu_millicores > self.bounds[CPU] or need.memory_mib > self.bounds[MEMORY]:
            return False
        if need.others and any(amount > self.bounds[row] for row, amount in need.others):
            return False
        return not self.lacks_devices(need.units, need.part_milli, need.count)

    def lacks_devices(self, units: int, part_milli: int, count: int) -> bool:
        """True if there are not enough devices for `count` pods."""
        if units > self.bounds[UNITS] or part_milli > self.bounds[PART]:
            return True
        return count > 1 and self.unit_room(units) < count

    def unit_room(self, units: int) -> int:
        """The number of pods with `units` devices each that fit, counting devices only."""
        if not units:
            return _ENOUGH
        room = self.unit_rooms.get(units)
        if room is None:
            room = self.unit_rooms[units] = int((self.free[UNITS] // units).sum())
        return room

    def site(self, need: Need, order: Ints | None = None) -> Site | None:
        """Where a pod set would go now; a single pod goes to the first node in `order` that has room."""
        if not self.may_hold(need):
            return None
        if need.count == 1:
            found = site_one(self.pool, self.free, self.order(need) if order is None else order, need)
        else:
            found = site_gang(self.pool, self.room(need), self.tight, need)
        if found is None:
            self.bounds = self.free.max(axis=1, initial=0).tolist()
        return found

    def order(self, need: Need) -> Ints:
        """The order in which single pods fill the nodes."""
        if self.pool.cluster.fills == "spread":
            return spread_order(self.pool.capacity, self.free, need)
        return self.tight

    def room(self, need: Need) -> Ints:
        """The number of these pods that each node has room for."""
        return room_for(self.free, self.devices, need)

    def take(self, node: int, need: Need, count: int) -> None:
        """Deducts `count` pods from a node. On a hidden node, a job that may see the node took it."""
        if node in self.closed:
            return
        self._touch(node)
        if node in self.hidden:
            self._take_hidden(node, need, count, need.units)
            return
        free = self.free
        free[UNITS, node] -= need.units * count
        self.tight[node] -= need.units * count * (TIGHTNESS_OF_A_UNIT * WHOLE)
        if self.devices is not None:
            self._take_devices(node, need, count)
        self._take_rest(node, need, count)

    def take_beside(self, node: int, need: Need, count: int) -> None:
        """Deducts what `count` pods on another flavor's devices use of a node that both flavors share."""
        if node in self.closed:
            return
        self._touch(node)
        if node in self.hidden:
            self._take_hidden(node, need, count, 0)
            return
        self._take_rest(node, need, count)

    def _take_hidden(self, node: int, need: Need, count: int, units: int) -> None:
        left = self.hidden[node].copy()
        left[[UNITS, CPU, MEMORY, PODS]] -= np.array([units, need.cpu_millicores, need.memory_mib, 1]) * count
        for row, amount in need.others:
            left[row] -= amount * count
        self.hidden[node] = left

    def _touch(self, *nodes: int) -> None:
        if not self.is_own:
            self.is_own = True
            self.free = self.free.copy()
            self.devices = None if self.devices is None else self.devices.copy()
        self.changes += nodes
        self.unit_rooms.clear()
        self.notes.clear()

    def _take_rest(self, node: int, need: Need, count: int) -> None:
        free = self.free
        free[CPU, node] -= need.cpu_millicores * count
        free[MEMORY, node] -= need.memory_mib * count
        free[PODS, node] -= count
        for row, amount in need.others:
            free[row, node] -= amount * count
        self.tight[node] -= need.cpu_millicores * count

    def _take_devices(self, node: int, need: Need, count: int) -> None:
        """Takes the first free whole devices, and parts from the tightest device that has them."""
        assert self.devices is not None
        devices = self.devices[:, node]
        devices[np.flatnonzero(devices == WHOLE)[: need.units * count]] = 0
        if need.part_milli:
            for _ in range(count):
                tightest = int(np.where(devices >= need.part_milli, devices, WHOLE + 1).argmin())
                devices[tightest] -= need.part_milli
            self.tight[node] -= need.part_milli * count * TIGHTNESS_OF_A_UNIT
        self.free[UNITS, node] = np.count_nonzero(devices == WHOLE)
        self.free[PART, node] = devices.max()

    def give_back(self, node: int, amounts: Ints) -> None:
        """Adds what pods used of a node, in the order of a pool's rows, up to its capacity. Only for looking ahead."""
        self._touch(node)
        for rows in (slice(UNITS, PODS + 1), slice(len(RESOURCES), None)):
            self.free[rows, node] = np.minimum(self.free[rows, node] + amounts[rows], self.pool.capacity[rows, node])
        idle = self.free[UNITS, node] * WHOLE if self.devices is None else self.devices[:, node].sum()
        self.tight[node] = idle * TIGHTNESS_OF_A_UNIT + self.free[CPU, node]
        self.bounds = np.maximum(self.bounds, self.free[:, node]).tolist()

    def hide(self, nodes: Sequence[int]) -> None:
        """Makes nothing free on these nodes for the rest of the cycle."""
        self._touch(*nodes)
        for node in nodes:
            self.hidden.setdefault(node, self.free[:, node].copy())
        self.free[:, nodes] = 0
        if self.devices is not None:
            self.devices[:, nodes] = 0

    def unhide(self, nodes: Collection[int]) -> None:
        """Makes the free amounts of hidden nodes available again."""
        self._touch(*nodes)
        for node in nodes:
            self.free[:, node] = self.hidden.pop(node)
            self.bounds = np.maximum(self.bounds, self.free[:, node]).tolist()

    def reserve(self, nodes: Mapping[int, Closure]) -> None:
        """Hides nodes that advance reservations or maintenance windows keep."""
        self.hide(list(nodes))
        self.reserved = {**self.reserved, **nodes}

    def close(self, nodes: Collection[int]) -> None:
        """Makes nothing free on these nodes, permanently."""
        self._touch(*nodes)
        self.closed |= set(nodes)
        self.free[:, list(self.closed)] = 0
        if self.devices is not None:
            self.devices[:, list(self.closed)] = 0

    def had_hidden(self, need: Need, *, reserved: bool) -> bool:
        """True if hidden nodes would give the pod set room, topology aside; `reserved`: the reserved ones, else the
        others.
        """
        columns_of = {node: free for node, free in self.hidden.items() if reserved or node not in self.reserved}
        if not columns_of:
            return False
        columns, nodes = np.stack(list(columns_of.values()), axis=1), np.array(list(columns_of))
        if need.count == 1:
            return bool(has_room(columns, need, nodes).any())
        return int(room_for(columns, None, need, nodes).sum() + self.room(need).sum()) >= need.count

    def why_reserved(self, need: Need) -> Closure:
        """Why a reserved node is closed: one that has room for a pod, if any has."""
        nodes = list(self.reserved)
        columns = np.stack([self.hidden[node] for node in nodes], axis=1)
        room = room_for(columns, None, need, np.array(nodes))
        return self.reserved[nodes[int((room > 0).argmax())]]

    def copy(self) -> "PoolState":
        """A copy to try changes on."""
        other = object.__new__(PoolState)
        other.pool, other.is_own, other.bounds = self.pool, True, self.bounds
        other.free, other.tight = self.free.copy(), self.tight.copy()
        other.devices = None if self.devices is None else self.devices.copy()
        other.hidden, other.reserved, other.closed = dict(self.hidden), self.reserved, self.closed
        other.changes = self.changes.copy()
        other.unit_rooms, other.notes = {}, {}
        return other


class FleetState:
    """Every pool of the fleet in a cycle; nodes that several flavors share stay consistent.

    With `is_empty`, it is the fleet with nothing running and every node usable.
    """

    def __init__(self, fleet: Fleet, *, is_empty: bool = False) -> None:
        self.fleet = fleet
        self.is_empty = is_empty
        self.free_share: Floats = fleet.free_share.copy()
        """Per pool: the free part of its units (of its cores if it has no GPU)."""
        self.cluster_free: Floats = np.zeros(len(fleet.clusters))
        np.add.at(self.cluster_free, fleet.cluster_of_pool, fleet.part_of_cluster * fleet.free_share)
        """Per cluster: the free part of its GPUs (of its cores, if it has none)."""
        self.placed: Ints = np.zeros(len(fleet.clusters), dtype=np.int64)
        """Per cluster: the number of pod sets placed so far, which all wait to be dispatched."""
        self.versions: Ints = np.zeros(len(fleet.pools), dtype=np.int64)
        """Per pool: the number of deductions."""
        self.bounds: Ints = (fleet.largest_capacity if is_empty else fleet.largest_free).copy()
        """Resources by pools: an upper bound of what any node of the pool has free."""
        self.shared_reasons: dict[object, dict[int, tuple[float, Reason]]] = {}
        """Reasons that jobs of other shapes share, by cluster, with the cluster's version that they are valid for."""
        self.lendable: dict[int, dict[int, datetime]] = {}
        """By pool, the kept nodes that may be lent, and the time at which they are needed."""
        self.closures: dict[int, Closure] = {}
        """By number, the clusters that are closed as a whole."""
        self.states: list[PoolState | None] = [None] * len(fleet.pools)

    def cluster_versions(self) -> list[float]:
        """Per cluster: the number of deductions."""
        owners, clusters = self.fleet.cluster_of_pool, len(self.fleet.clusters)
        versions: list[float] = np.bincount(owners, weights=self.versions, minlength=clusters).tolist()
        return versions

    def pool(self, number: int) -> PoolState:
        """The state of a pool."""
        state = self.states[number]
        if state is None:
            state = self.states[number] = PoolState(self.fleet.pools[number], is_empty=self.is_empty)
        return state

    def free(self, number: int) -> Ints:
        """The free amounts of a pool's nodes now, as in `PoolState.free`."""
        state, pool = self.states[number], self.fleet.pools[number]
        if state is not None:
            return state.free
        return pool.capacity if self.is_empty else pool.free

    def site(self, pools: Sequence[int], needs: Sequence[Need]) -> list[Site] | None:
        """Where the pod sets of a job would go together, one pool each; None if they do not fit. Deducts nothing."""
        if len(pools) == 1:
            state = self.pool(pools[0])
            alone = state.site(needs[0])
            if alone is None:
                self.bounds[:, pools[0]] = state.bounds
                return None
            return [alone]
        if not all(self.pool(number).may_hold(need) for number, need in zip(pools, needs, strict=True)):
            return None
        before = self.states.copy()
        for number in self._involved(pools):
            self.states[number] = self.pool(number).copy()
        try:
            return self._site_in_turn(pools, needs)
        finally:
            self.states = before

    def _site_in_turn(self, pools: Sequence[int], needs: Sequence[Need]) -> list[Site] | None:
        sites: list[Site] = []
        for number, need in zip(pools, needs, strict=True):
            found = self.pool(number).site(need)
            if found is None:
                return None
            self._take_nodes(number, need, found)
            sites.append(found)
        return sites

    def _involved(self, pools: Sequence[int]) -> set[int]:
        """These pools and the pools that share nodes with them."""
        involved = set(pools)
        for number in pools:
            for places in self.fleet.pools[number].siblings.values():
                involved.update(self._number_of(number, flavor) for flavor, _ in places)
        return involved

    def take(self, number: int, need: Need, found: Site) -> None:
        """Deducts a pod set from its nodes."""
        self._take_nodes(number, need, found)
        pool = self.fleet.pools[number]
        taken = need.units + need.part_milli / WHOLE if pool.flavor.gpu_model else need.cpu_millicores
        share = taken * need.count / pool.size
        cluster = self.fleet.cluster_of_pool[number]
        self.free_share[number] -= share
        self.cluster_free[cluster] -= share * self.fleet.part_of_cluster[number]
        self.placed[cluster] += 1

    def _take_nodes(self, number: int, need: Need, found: Site) -> None:
        state = self.pool(number)
        siblings = state.pool.siblings
        self.versions[number] += 1
        for node, count in found.pods:
            state.take(node, need, count)
            for flavor, position in siblings.get(node, ()):
                other = self._number_of(number, flavor)
                self.versions[other] += 1
                self.pool(other).take_beside(position, need, count)

    def _number_of(self, number: int, flavor: str) -> int:
        cluster = int(self.fleet.cluster_of_pool[number])
        first, end = self.fleet.first_pool_of_cluster[cluster : cluster + 2]
        return next(n for n in range(first, end) if self.fleet.pools[n].flavor.name == flavor)

    def hide(self, number: int, nodes: Sequence[int], until: datetime | None = None) -> None:
        """Keeps nodes from every later job of the cycle, in all pools that contain them.

        `until` is when they are needed, None if unknown. They may be lent to jobs that end before it.
        """
        self._hide_in(number, nodes, until)
        for node in nodes:
            for flavor, position in self.fleet.pools[number].siblings.get(node, ()):
                self._hide_in(self._number_of(number, flavor), [position], until)

    def _hide_in(self, number: int, nodes: Sequence[int], until: datetime | None) -> None:
        self.pool(number).hide(nodes)
        self.versions[number] += 1
        if until is not None:
            self.lendable.setdefault(number, {}).update(dict.fromkeys(nodes, until))

    def reserve(self, number: int, nodes: Mapping[int, Closure]) -> None:
        """Keeps nodes of a pool from every job that sees this state."""
        self.pool(number).reserve(nodes)
        self.versions[number] += 1

    def close(self, number: int, nodes: Collection[int]) -> None:
        """Closes nodes of a pool."""
        self.pool(number).close(nodes)
        self.versions[number] += 1

    def close_cluster(self, number: int, why: Closure) -> None:
        """Closes all nodes of a cluster."""
        self.closures[number] = why
        for pool in range(*self.fleet.first_pool_of_cluster[number : number + 2]):
            self.close(pool, range(len(self.fleet.pools[pool].node_names)))

    def lend(self, end: datetime) -> dict[int, dict[int, datetime]]:
        """Makes the kept nodes that are not needed before `end` available; pass the result, by pool, to `take_back`."""
        lent: dict[int, dict[int, datetime]] = {}
        for number, nodes in self.lendable.items():
            fit = {node: until for node, until in nodes.items() if until >= end}
            if fit and self.pool(number).devices is None:
                lent[number] = fit
                self.pool(number).unhide(fit)
                self.versions[number] += 1
        return lent

    def take_back(self, lent: Mapping[int, Mapping[int, datetime]]) -> None:
        """Keeps the lent nodes again, less what was taken of them."""
        for number, nodes in lent.items():
            self.pool(number).hide(list(nodes))
            self.versions[number] += 1

    def copy(self) -> "FleetState":
        """A copy to try changes on."""
        other = copy(self)
        other.free_share, other.cluster_free = self.free_share.copy(), self.cluster_free.copy()
        other.versions, other.bounds, other.placed = self.versions.copy(), self.bounds.copy(), self.placed.copy()
        other.shared_reasons = {}
        other.lendable = {number: dict(nodes) for number, nodes in self.lendable.items()}
        other.states = [None if state is None else state.copy() for state in self.states]
        return other
