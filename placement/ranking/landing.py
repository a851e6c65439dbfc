"""For each candidate of a job of one pod set: the nodes it would get now, and the number of GPUs that would be
stranded.

Landings are computed only where something changed since the last time, and only if no lower bound (`floors`) shows that another
candidate is better. In a cluster whose own scheduler spreads pods (`FleetCluster.fills`), only the candidate with the
node that this scheduler would pick is real; the others are masked.
"""

from typing import NamedTuple

import numpy as np

from placement.fleet.fleet_state import FleetState, PoolState
from placement.fleet.pools import CPU, UNITS, WHOLE, Floats, Ints, Mask
from placement.fleet.siting import Need, Site, has_room

from .candidates import Ask
from .floors import DIGITS, SCARCITY_WEIGHT, WHOLE_IDLE_WEIGHT, WHOLE_WEIGHT, Floors

_NEVER = -1
IDLE_WEIGHT = 0.2
"""Of nodes that strand equally many GPUs, the fuller one is chosen: an idle node counts as 0.2 stranded GPUs."""
MICRO = 1_000_000
FEW = 2
"""Close bounds cost more than this number of landings."""


class _Order(NamedTuple):
    """The packing order of a pool's nodes, what a pod would strand on each, and how much of the pool's history that includes."""

    state: PoolState
    changes: int
    order: Ints
    stranding: Floats


class Landings:
    """The landings of one ask's candidates."""

    def __init__(self, ask: Ask, state: FleetState, floors: Floors | None) -> None:
        self._ask = ask
        self._state = state
        self._floors = floors
        self._meter = None if floors is None else floors.meter
        count = len(ask.pools)
        self.sites: list[Site | None] = [None] * count
        """Of the candidates that are settled; None if the job has no room there."""
        self.stranding: Floats = np.zeros(count)
        """A lower bound until the candidate is settled."""
        self.is_masked: Mask = np.zeros(count, dtype=np.bool_)
        self._is_settled: Mask = np.zeros(count, dtype=np.bool_)
        self._is_close: Mask = np.zeros(count, dtype=np.bool_)
        """Whether the bound is a close one."""
        self._seen: Ints = np.full(count, _NEVER, dtype=np.int64)
        self._rank: list[tuple[int, str]] = [(0, "")] * count
        self._cluster = state.fleet.cluster_of_pool[ask.lead]
        self._is_picked: Mask = state.fleet.spreads[self._cluster] & (ask.pod_sets[0].count == 1)
        """Whether the cluster's own scheduler picks the candidate's node."""
        self._orders: dict[int, _Order] = {}
        """By pool."""

    def look(self, is_in: Mask) -> None:
        """Updates the bounds of all candidates that are in, and settles those among which a cluster's own scheduler
        picks.
        """
        versions = self._state.versions[self._ask.lead]
        stale = np.flatnonzero(is_in & (versions != self._seen))
        if not stale.size:
            return
        self._seen[stale] = versions[stale]
        self._is_settled[stale] = self._is_close[stale] = False
        is_picked = self._is_picked[stale]
        if self._floors is not None and not is_picked.all():
            self.stranding[stale[~is_picked]] = self._floors.quick(self._ask, stale[~is_picked])
        picked = stale[is_picked].tolist()
        for candidate in picked:
            self._settle(candidate)
        for cluster in {int(self._cluster[candidate]) for candidate in picked}:
            self._mask(np.flatnonzero(is_in & (self._cluster == cluster)).tolist())

    def is_settled(self, candidate: int) -> bool:
        """Whether `stranding` is what the candidate would strand, not a bound."""
        return bool(self._is_settled[candidate])

    def approach(self, candidate: int, score: Floats, tries: int) -> None:
        """Settles the candidate with the lowest score so far, or computes close bounds if some were settled in vain.

        `score` includes `stranding`; only candidates that may be better than each settled one get a close bound.
        """
        if tries > FEW and self._floors is not None and not self._is_close[candidate]:
            best = score[self._is_settled].min(initial=np.inf)
            nearer = np.flatnonzero((score <= best) & np.isfinite(score) & ~self._is_settled & ~self._is_close)
            self.stranding[nearer] = self._floors.close(self._ask, nearer)
            self._is_close[nearer] = True
        else:
            self._settle(candidate)

    def _settle(self, candidate: int) -> None:
        self._is_settled[candidate] = True
        self._land(candidate)

    def _land(self, candidate: int) -> None:
        number = int(self._ask.lead[candidate])
        need = self._ask.needs(candidate)[0]
        state = self._state.pool(number)
        packing = None
        if self._meter is not None and need.count == 1 and state.pool.cluster.fills == "hinted":
            packing = self._packing_order(state, number, need)
        order = state.order(need) if packing is None else packing.order
        found = state.site(need, order)
        self.sites[candidate] = found
        if found is None:
            return
        node = found.pods[0][0]
        self._rank[candidate] = (int(order[node]), state.pool.node_names[node])
        if self._meter is not None:
            nodes, counts = np.array(found.pods, dtype=np.int64).T
            each = self._stranding(state, number, need, nodes, counts) if packing is None else packing.stranding[nodes]
            stranding = each.sum()
            if state.devices is None:
                stranding += WHOLE_IDLE_WEIGHT * _idle_part(state, nodes).sum()
                stranding += SCARCITY_WEIGHT * self._meter.scarcity[number]
            self.stranding[candidate] = np.round(stranding, DIGITS)

    def _mask(self, candidates: list[int]) -> None:
        landing = [candidate for candidate in candidates if self.sites[candidate] is not None]
        pick = min(landing, key=lambda candidate: self._rank[candidate], default=None)
        self.is_masked[candidates] = True
        if pick is not None:
            self.is_masked[pick] = False

    def _packing_order(self, state: PoolState, number: int, need: Need) -> _Order:
        """Nodes by the GPUs that the pod would strand there, the fuller first among equals; only the hinted follow it.

        It is computed again only for nodes that have changed since the last time.
        """
        known, seen = self._orders.get(number), len(state.changes)
        if known is None or known.state is not state:
            width = state.free.shape[1]
            known = _Order(state, seen, np.zeros(width, dtype=np.int64), np.zeros(width))
            changed = np.arange(width)
        else:
            changed = np.unique(np.array(state.changes[known.changes :], dtype=np.int64))
            known = known._replace(changes=seen)
        self._orders[number] = known
        fitting = changed[has_room(state.free[:, changed], need, changed)]
        if fitting.size:
            terms = self._stranding(state, number, need, fitting, np.ones_like(fitting))
            known.stranding[fitting] = terms
            terms += (WHOLE_IDLE_WEIGHT if state.devices is None else IDLE_WEIGHT) * _idle_part(state, fitting)
            known.order[fitting] = np.rint(np.round(terms, DIGITS) * MICRO).astype(np.int64)
        return known

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
