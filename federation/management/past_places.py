"""Which nodes the demo's past jobs ran on: nodes that were free, so that no hour of a node was charged twice."""

import random
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class Stay:
    """`pods` pods of `units` each, one a node, on some of these equal nodes of a cluster with `capacity` units each."""

    cluster: str
    nodes: Sequence[str]
    pods: int
    units: int
    capacity: int
    start: datetime
    until: datetime


class PastPlaces:
    """What past jobs use of each node: of GPUs, which."""

    def __init__(self) -> None:
        self._taken: dict[tuple[str, str], list[tuple[Stay, frozenset[int]]]] = defaultdict(list)

    def take(self, stay: Stay, chance: random.Random) -> Mapping[str, Sequence[int]]:
        """The nodes of a stay with the units of each, which are its own from now on; none if too few are free all the time."""
        first = chance.randrange(len(stay.nodes))
        free = [node for node in (*stay.nodes[first:], *stay.nodes[:first]) if self._has_room(node, stay)]
        nodes = free[: stay.pods] if len(free) >= stay.pods else []
        units = {node: self._some(node, stay) for node in nodes}
        for node, own in units.items():
            self._taken[stay.cluster, node].append((stay, frozenset(own)))
        return units

    def _some(self, node: str, stay: Stay) -> Sequence[int]:
        """Other ones each time, as far as others are free."""
        first = 3 * len(self._taken[stay.cluster, node])
        return sorted(sorted(self._free(node, stay), key=lambda one: (one - first) % stay.capacity)[: stay.units])

    def _has_room(self, node: str, stay: Stay) -> bool:
        return len(self._free(node, stay)) >= stay.units

    def _free(self, node: str, stay: Stay) -> frozenset[int]:
        beside = (
            own for one, own in self._taken[stay.cluster, node] if one.start < stay.until and one.until > stay.start
        )
        return frozenset(range(stay.capacity)).difference(*beside)
