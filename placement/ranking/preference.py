"""Which candidates keep a gang inside one domain of the level that it prefers.

This is known before the gang's nodes are chosen: some node has room for all its pods, or some domain of the level, or of a narrower
one. It is computed only of candidates that would be the best if they kept to it.
"""

import numpy as np

from placement.fleet.pools import WIDTH_OF_LEVEL, Floats, Ints, Mask
from placement.fleet.siting import domain_room
from placement.values.model import Topology

from .candidates import Ask
from .node_table import NodeTable

WIDER = 0.1
"""Added to the score of a candidate whose domain would be wider: under `balanced`, as if it were a tenth dearer."""
_NEVER = -1
_NONE: Ints = np.zeros(0, dtype=np.int64)


class Preference:
    """What is known of one ask's candidates."""

    def __init__(self, ask: Ask, table: NodeTable) -> None:
        self._ask = ask
        self._table = table
        self._widest = WIDTH_OF_LEVEL[ask.topology.level]
        self.cost: Floats = np.zeros(len(ask.pools))
        """Per candidate; 0 while unknown."""
        self._is_known: Mask = np.zeros(len(ask.pools), dtype=np.bool_)
        self._seen: Ints = np.full(len(ask.pools), _NEVER, dtype=np.int64)

    def look(self) -> None:
        """Forgets what is known of pools that have changed."""
        versions = self._table.state.versions[self._ask.lead]
        stale = versions != self._seen
        if stale.any():
            self._seen = versions
            self._is_known &= ~stale
            self.cost[stale] = 0.0

    def is_known(self, candidate: int) -> bool:
        """Whether `cost` is right for the candidate."""
        return bool(self._is_known[candidate])

    def learn(self, candidate: int, score: Floats) -> None:
        """Finds out about the candidate with the lowest score so far. `score` includes `cost`.

        If others are known already, all that may be better are judged at the same time.
        """
        if not self._is_known.any():
            self.cost[candidate] = 0.0 if self._keeps_to_it(candidate) else WIDER
            self._is_known[candidate] = True
            return
        best = score[self._is_known].min()
        asked = np.flatnonzero((score <= best) & np.isfinite(score) & ~self._is_known)
        self.cost[asked] = np.where(self._keep_to_it(asked), 0.0, WIDER)
        self._is_known[asked] = True

    def _keeps_to_it(self, candidate: int) -> bool:
        """Whether one domain that is narrow enough has room for all pods."""
        (need,), state = self._ask.needs(candidate), self._table.state.pool(int(self._ask.lead[candidate]))
        room = state.room(need)
        levels = [one for one in state.pool.domains if WIDTH_OF_LEVEL[one.level] <= self._widest]
        return bool(room.max() >= need.count or any(domain_room(one, room).max() >= need.count for one in levels))

    def _keep_to_it(self, candidates: Ints) -> Mask:
        """Likewise for several candidates, in ascending order."""
        self._table.refresh()
        ask, count = self._ask, self._ask.pod_sets[0].count
        stretch = self._table.stretch_of(ask, candidates)
        room = self._table.room(ask, candidates, stretch)
        keeps: Mask = np.maximum.reduceat(room, stretch.starts) >= count
        for level, width in WIDTH_OF_LEVEL.items():
            domain, pool = self._table.domains(level) if 0 < width <= self._widest else (_NONE, _NONE)
            if pool.size:
                held = np.bincount(domain[stretch.nodes] + 1, weights=room, minlength=pool.size + 1)[1:]
                keeps |= np.isin(stretch.pools, pool[held >= count])
        return keeps


def preference_of(ask: Ask, table: NodeTable) -> Preference | None:
    """For gangs of one pod set that prefer a domain and use no parts of divisible devices; else None."""
    is_gang = len(ask.pod_sets) == 1 and ask.pod_sets[0].count > 1 and not ask.parts.any()
    return Preference(ask, table) if is_gang and _prefers(ask.topology) else None


def _prefers(topology: Topology) -> bool:
    return topology.mode == "preferred" and topology.level != "cluster"
