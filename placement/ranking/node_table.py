"""What is free on all nodes of a fleet in one table, to judge many candidates with a few operations on arrays."""

from itertools import accumulate
from typing import NamedTuple

import numpy as np

from placement.fleet.fleet_state import FleetState
from placement.fleet.pools import RESOURCES, UNITS, Ints

from .candidates import Ask

_NEVER = -1


class Stretch(NamedTuple):
    """The nodes of some pools, pool by pool."""

    pools: Ints
    nodes: Ints | slice
    """Their columns in the table."""
    starts: Ints
    """Where each pool's nodes begin among them."""
    lengths: Ints


class NodeTable:
    """The table of a fleet state. Only the columns of pools that have changed are copied again."""

    def __init__(self, state: FleetState) -> None:
        self.state = state
        pools = state.fleet.pools
        lengths = np.array([len(pool.node_names) for pool in pools], dtype=np.int64)
        self.first: Ints = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(lengths)])
        """By pool, its first column; one more at the end."""
        self.pool: Ints = np.repeat(np.arange(len(pools)), lengths)
        """By column."""
        self.free: Ints = np.zeros((len(RESOURCES) + len(state.fleet.resources), self.pool.size), dtype=np.int64)
        """A row per resource, as in a pool."""
        self._seen: Ints = np.full(len(pools), _NEVER, dtype=np.int64)
        self._domains: dict[str, tuple[Ints, Ints]] = {}

    def refresh(self) -> None:
        """Copies what has changed."""
        changed = np.flatnonzero(self._seen != self.state.versions)
        self._seen[changed] = self.state.versions[changed]
        for number in changed.tolist():
            self.free[:, self.first[number] : self.first[number + 1]] = self.state.free(number)

    def changed_since(self, versions: Ints) -> Stretch | None:
        """The nodes of pools that have other versions than these, which it updates; None if there are none."""
        changed = np.flatnonzero(versions != self.state.versions)
        if not changed.size:
            return None
        versions[changed] = self.state.versions[changed]
        stretch = self.stretch(changed[self.first[changed] < self.first[changed + 1]])
        return stretch if stretch.pools.size else None

    def domains(self, level: str) -> tuple[Ints, Ints]:
        """The domains of a level: for each node the number of its domain (-1 if unknown), and for each domain its pool."""
        found = self._domains.get(level)
        if found is None:
            pools = self.state.fleet.pools
            known = [next((one for one in pool.domains if one.level == level), None) for pool in pools]
            counts = [0 if one is None else len(one.paths) for one in known]
            codes = [
                np.full(len(pool.node_names), -1)
                if one is None
                else np.where(one.code_of_node < 0, -1, one.code_of_node + before)
                for pool, one, before in zip(pools, known, accumulate(counts, initial=0), strict=False)
            ]
            of_node: Ints = np.concatenate([np.zeros(0, dtype=np.int64), *codes])
            found = self._domains[level] = (of_node, np.repeat(np.arange(len(pools)), counts))
        return found

    def stretch(self, pools: Ints) -> Stretch:
        """The nodes of pools in ascending order, none of which is empty."""
        begins, lengths = self.first[pools], self.first[pools + 1] - self.first[pools]
        starts = np.cumsum(lengths) - lengths
        total = int(lengths.sum())
        if total == self.pool.size:
            return Stretch(pools, slice(None), starts, lengths)
        return Stretch(pools, np.repeat(begins - starts, lengths) + np.arange(total), starts, lengths)

    def stretch_of(self, ask: Ask, candidates: Ints) -> Stretch:
        """The nodes of candidates of one pod set, in ascending order; without nodes they would be no candidates."""
        return self.stretch(ask.lead[candidates])

    def room(self, ask: Ask, candidates: Ints, stretch: Stretch) -> Ints:
        """The number of the job's pods that each node of the candidates has room for, at most all of them."""
        (need,), lengths = ask.needs(int(candidates[0])), stretch.lengths
        room: Ints = np.full(int(lengths.sum()), need.count, dtype=np.int64)
        for row in np.arange(need.per_pod.size)[need.rows].tolist():
            each = of_nodes(ask.units[candidates, 0], lengths) if row == UNITS else need.per_pod.item(row)
            np.minimum(room, self.free[row, stretch.nodes] // each, out=room)
        if need.admitted is not None:
            admitted = [ask.needs(candidate)[0].admitted for candidate in candidates.tolist()]
            room[~np.concatenate([one for one in admitted if one is not None])] = 0
        return np.maximum(room, 0, out=room)


def of_nodes(of_pools: Ints, lengths: Ints) -> Ints | int:
    """The value of each node's pool; one number if all are equal, because numpy is faster with it."""
    first: int = of_pools.item(0)
    return first if (of_pools == first).all() else np.repeat(of_pools, lengths)
