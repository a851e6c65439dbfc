"""For each candidate of a job of one pod set: the nodes it would get now, and the number of GPUs that would be
stranded.

Landings are computed only where something changed since the last time. In a cluster whose own scheduler spreads pods
(`FleetCluster.fills`), only the candidate with the node that this scheduler would pick is real; the others are masked.
"""

import numpy as np

from placement.fleet.fleet_state import FleetState, PoolState
from placement.fleet.pools import CPU, UNITS, WHOLE, Floats, Ints, Mask
from placement.fleet.siting import Need, Site, has_room

from .candidates import Ask
from .fragmentation import Fragmentation

_NEVER = -1
IDLE_WEIGHT = 0.2
"""Of nodes that strand equally many GPUs, the fuller one is chosen: an idle node counts as 0.2 stranded GPUs."""
WHOLE_WEIGHT, WHOLE_IDLE_WEIGHT, SCARCITY_WEIGHT = 0.05, 0.3, 0.3
"""Where devices are whole, fragments count little: it matters more that idle nodes remain idle and scarce models
free."""
MICRO = 1_000_000


class Landings:
    """The landings of one ask's candidates."""

    def __init__(self, ask: Ask, state: FleetState, meter: Fragmentation | None) -> None:
        self._ask = ask
        self._state = state
        self._meter = meter
        count = len(ask.pools)
        self.sites: list[Site | None] = [None] * count
        self.stranding: Floats = np.zeros(count)
        self.is_masked: Mask = np.zeros(count, dtype=np.bool_)
        self._seen: Ints = np.full(count, _NEVER, dtype=np.int64)
        self._rank: list[tuple[int, str]] = [(0, "")] * count
        self._cluster = state.fleet.cluster_of_pool[ask.lead]
        self._orders: dict[int, tuple[PoolState, int, Ints]] = {}
        """By pool: the packing order there, and the part of the pool's history that it includes."""

    def look(self, is_in: Mask) -> None:
        """Updates the landings of all candidates that are in; a candidate without one has `sites` None."""
        versions = self._state.versions[self._ask.lead]
        stale = np.flatnonzero(is_in & (versions != self._seen)).tolist()
        for candidate in stale:
            self._land(candidate)
        self._seen[stale] = versions[stale]
        if self._ask.pod_sets[0].count > 1:
            return
        for cluster in {int(self._cluster[candidate]) for candidate in stale}:
            if self._state.fleet.clusters[cluster].fills == "spread":
                self._mask(np.flatnonzero(is_in & (self._cluster == cluster)).tolist())

    def _land(self, candidate: int) -> None:
        number = int(self._ask.lead[candidate])
        need = self._ask.needs(candidate)[0]
        state = self._state.pool(number)
        order = state.order(need)
        if self._meter is not None and need.count == 1 and state.pool.cluster.fills == "hinted":
            order = self._packing_order(state, number, need)
        found = state.site(need, order)
        self.sites[candidate] = found
        if found is None:
            return
        node = found.pods[0][0]
        self._rank[candidate] = (int(order[node]), state.pool.node_names[node])
        if self._meter is not None:
            nodes, counts = np.array(found.pods, dtype=np.int64).T
            self.stranding[candidate] = self._stranding(state, number, need, nodes, counts).sum()
            if state.devices is None:
                self.stranding[candidate] += WHOLE_IDLE_WEIGHT * _idle_part(state, nodes).sum()
                self.stranding[candidate] += SCARCITY_WEIGHT * self._meter.scarcity[number]

    def _mask(self, candidates: list[int]) -> None:
        landing = [candidate for candidate in candidates if self.sites[candidate] is not None]
        pick = min(landing, key=lambda candidate: self._rank[candidate], default=None)
        self.is_masked[candidates] = True
        if pick is not None:
            self.is_masked[pick] = False

    def _packing_order(self, state: PoolState, number: int, need: Need) -> Ints:
        """Nodes by the GPUs that the pod would strand there, the fuller first among equals; only the hinted follow it.

        It is computed again only for nodes that have changed since the last time.
        """
        known = self._orders.get(number)
        if known is None or known[0] is not state:
            order = np.zeros(state.free.shape[1], dtype=np.int64)
            changed = np.arange(order.size)
        else:
            order = known[2]
            changed = np.unique(np.array(state.changes[known[1] :], dtype=np.int64))
        self._orders[number] = (state, len(state.changes), order)
        fitting = changed[has_room(state.free[:, changed], need, changed)]
        if fitting.size:
            order[fitting] = self._packing_terms(state, number, need, fitting)
        return order

    def _packing_terms(self, state: PoolState, number: int, need: Need, nodes: Ints) -> Ints:
        terms = self._stranding(state, number, need, nodes, np.ones_like(nodes))
        terms += (WHOLE_IDLE_WEIGHT if state.devices is None else IDLE_WEIGHT) * _idle_part(state, nodes)
        order: Ints = np.rint(terms * MICRO).astype(np.int64)
        return order

    def _stranding(self, state: PoolState, number: int, need: Need, nodes: Ints, counts: Ints) -> Floats:
        """The GPUs that `counts` pods would strand on each of these nodes."""
        assert self._meter is not None
        units, cpu = state.free[UNITS, nodes], state.free[CPU, nodes]
        devices = None if state.devices is None else state.devices[:, nodes]
        left = None if devices is None else np.concatenate([devices, devices_after(devices, need, counts)], axis=1)
        measured = self._meter.stranded(
            number,
            np.concatenate([units, units - need.units * counts]),
            left,
            np.concatenate([cpu, cpu - need.cpu_millicores * counts]),
            WHOLE_WEIGHT if left is None else 1.0,
        )
        return measured[nodes.size :] - measured[: nodes.size]


def _idle_part(state: PoolState, nodes: Ints) -> Floats:
    """The free part of each node's devices."""
    idle = state.free[UNITS, nodes] if state.devices is None else state.devices[:, nodes].sum(axis=0) / WHOLE
    part: Floats = idle / np.maximum(1, state.pool.capacity[UNITS, nodes])
    return part


def devices_after(devices: Ints, need: Need, counts: Ints) -> Ints:
    """Devices (a row each, a column per node) after `counts` pods have taken their shares: see `PoolState`."""
    left = devices.copy()
    for taken in range(int(counts.max()) if need.part_milli else 0):
        nodes = np.flatnonzero(counts > taken)
        shared = left[:, nodes]
        left[np.where(shared >= need.part_milli, shared, WHOLE + 1).argmin(axis=0), nodes] -= need.part_milli
    if need.units:
        whole = devices == WHOLE
        left[whole & (np.cumsum(whole, axis=0) <= need.units * counts)] = 0
    return left
