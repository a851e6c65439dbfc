"""Lower bounds of what candidates would strand, computed for many candidates at the same time.

To find the landing of a candidate costs a search in its pool. With a bound for each candidate, the search is needed only where the
bound is lower than the best landing that was found. There are two:

- the quick one is computed on pools: each node that pods use costs at least what the cheapest one of the pool costs before it is
  used, and a job uses at least as many nodes as if all were as free as the freest;
- the close one is computed on nodes. It is exact for one pod, and for pods that one node holds together, in clusters that follow
  hints. For pods on several nodes it counts only the nodes that have room.

There are no bounds for divisible devices: a value there depends on the free parts of each device.
"""

import numpy as np

from placement.fleet.pools import CPU, UNITS, WHOLE, Floats, Ints, Mask
from placement.fleet.siting import NOT_A_CHOICE, TIGHTNESS_OF_A_UNIT

from .candidates import Ask
from .fragmentation import Fragmentation
from .node_table import NodeTable, Stretch, of_nodes

WHOLE_WEIGHT, WHOLE_IDLE_WEIGHT, SCARCITY_WEIGHT = 0.05, 0.3, 0.3
"""Where devices are whole, fragments count little: it matters more that idle nodes remain idle and scarce models
free."""
DIGITS = 9
"""What landings strand is rounded to them, so that equal landings are equal in whatever order their parts are added."""
UNBOUNDED = -1e15
"""Less than any landing, and still a number to which a tier can be added."""
_ROUNDING = 1e-12


class Floors:
    """The bounds of a cycle's candidates. What they are computed from is updated only in pools that have changed."""

    def __init__(self, table: NodeTable, meter: Fragmentation) -> None:
        pools = table.state.fleet.pools
        self.meter = meter
        self._table = table
        nodes = table.pool.size
        capacity = [pool.capacity[UNITS] for pool in pools]
        self._capacity: Ints = np.maximum(1, np.concatenate([np.zeros(0, dtype=np.int64), *capacity]))
        """Per node, like the next two."""
        self._stranded: Floats = np.zeros(nodes)
        """Already, before any pod of the job takes the node."""
        self._idle: Floats = np.zeros(nodes)
        """The cost of using an idle node, by its idle part."""
        self._least: Floats = np.full((2, len(pools)), np.inf)
        """Per pool the least that using a node costs: any node, and one with free units."""
        self._seen: Ints = np.full(len(pools), -1, dtype=np.int64)
        """Per pool, the version that these are of."""
        self._is_divisible: Mask = np.array([pool.devices is not None for pool in pools], dtype=np.bool_)

    def quick(self, ask: Ask, candidates: Ints) -> Floats:
        """Per candidate of a job of one pod set the quick bound; infinite if it has no room, UNBOUNDED if no bound is
        known.
        """
        self._refresh()
        pools, units, count = ask.lead[candidates], ask.units[candidates, 0], ask.pod_sets[0].count
        most = np.where(units > 0, self._table.state.bounds[UNITS, pools] // np.maximum(units, 1), count)
        least = self._least[(units > 0).astype(np.int64), pools]
        found = _over_nodes(least, most, count) + SCARCITY_WEIGHT * self.meter.scarcity[pools]
        return np.where(self._is_divisible[pools], UNBOUNDED, np.where(most > 0, np.round(found, DIGITS), np.inf))

    def close(self, ask: Ask, candidates: Ints) -> Floats:
        """Likewise the close bound; the candidates are in ascending order."""
        self._refresh()
        found: Floats = np.full(candidates.size, UNBOUNDED)
        is_bounded = ~self._is_divisible[ask.lead[candidates]]
        if is_bounded.any():
            found[is_bounded] = self._on_nodes(ask, candidates[is_bounded])
        return found

    def _refresh(self) -> None:
        self._table.refresh()
        changed = self._table.changed_since(self._seen)
        if changed is None:
            return
        nodes = changed.nodes
        units = self._table.free[UNITS, nodes]
        self._stranded[nodes] = self._stranded_with(nodes, units, self._table.free[CPU, nodes])
        self._idle[nodes] = WHOLE_IDLE_WEIGHT * (units / self._capacity[nodes])
        unused = self._idle[nodes] - self._stranded[nodes]
        self._least[0, changed.pools] = np.minimum.reduceat(unused, changed.starts)
        self._least[1, changed.pools] = np.minimum.reduceat(np.where(units > 0, unused, np.inf), changed.starts)

    def _stranded_with(self, nodes: Ints | slice, units: Ints, cpu: Ints) -> Floats:
        return self.meter.stranded_whole(self._table.pool[nodes], units, cpu, WHOLE_WEIGHT)

    def _on_nodes(self, ask: Ask, candidates: Ints) -> Floats:
        stretch, count = self._table.stretch_of(ask, candidates), ask.pod_sets[0].count
        room = self._table.room(ask, candidates, stretch)
        holds_all = room >= count
        if count > 1:
            holds_all &= self._is_tightest(stretch, holds_all)
        found = self._on_one_node(ask, candidates, stretch, np.flatnonzero(holds_all))
        if count > 1:
            found = np.where(np.isinf(found), self._on_several(stretch, room, count), found)
        found += SCARCITY_WEIGHT * self.meter.scarcity[stretch.pools]
        return np.round(found, DIGITS)

    def _is_tightest(self, stretch: Stretch, holds_all: Mask) -> Mask:
        """Per node whether it comes first in its pool by `siting.tightness`, among those that hold all pods."""
        units, cpu = self._table.free[UNITS, stretch.nodes], self._table.free[CPU, stretch.nodes]
        order = np.where(holds_all, units * (WHOLE * TIGHTNESS_OF_A_UNIT) + cpu, NOT_A_CHOICE)
        mask: Mask = order == np.repeat(np.minimum.reduceat(order, stretch.starts), stretch.lengths)
        return mask

    def _on_one_node(self, ask: Ask, candidates: Ints, stretch: Stretch, holding: Ints) -> Floats:
        """Per pool the least that all pods together strand on one of these nodes; infinite without any."""
        terms = np.full(int(stretch.lengths.sum()), np.inf)
        nodes = holding if isinstance(stretch.nodes, slice) else stretch.nodes[holding]
        pods = ask.pod_sets[0]
        units = of_nodes(ask.units[candidates, 0] * pods.count, stretch.lengths)
        taken = units if isinstance(units, int) else units[holding]
        cpu = self._table.free[CPU, nodes] - pods.cpu_millicores * pods.count
        after = self._stranded_with(nodes, self._table.free[UNITS, nodes] - taken, cpu)
        terms[holding] = after - self._stranded[nodes] + self._idle[nodes]
        least: Floats = np.minimum.reduceat(terms, stretch.starts)
        return least

    def _on_several(self, stretch: Stretch, room: Ints, count: int) -> Floats:
        """Per pool a bound for pods on several nodes; infinite if it has too little room for all."""
        most, held = np.maximum.reduceat(room, stretch.starts), np.add.reduceat(room, stretch.starts)
        unused = np.where(room > 0, self._idle[stretch.nodes] - self._stranded[stretch.nodes], np.inf)
        least = np.minimum.reduceat(unused, stretch.starts)
        return np.where(held < count, np.inf, _over_nodes(least, most, count))


def _over_nodes(least: Floats, most: Ints, count: int) -> Floats:
    """A bound for `count` pods on nodes that hold at most `most` of them each and cost at least `least` each."""
    fewest = -(-count // np.maximum(most, 1))
    found: Floats = least * np.where(least < 0, count, fewest) - _ROUNDING
    return found
