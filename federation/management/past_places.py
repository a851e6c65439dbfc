"""Which nodes the demo's past jobs ran on: nodes that were free, so that no hour of a node was charged twice."""

import random
from collections import defaultdict
from collections.abc import Sequence
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
    """What past jobs use of each node."""

    def __init__(self) -> None:
        self._taken: dict[tuple[str, str], list[Stay]] = defaultdict(list)

    def take(self, stay: Stay, chance: random.Random) -> Sequence[str]:
        """The nodes of a stay, which are its own from now on; none if too few are free all the time."""
        first = chance.randrange(len(stay.nodes))
        free = [node for node in (*stay.nodes[first:], *stay.nodes[:first]) if self._has_room(node, stay)]
        nodes = free[: stay.pods] if len(free) >= stay.pods else []
        for node in nodes:
            self._taken[stay.cluster, node].append(stay)
        return nodes

    def _has_room(self, node: str, stay: Stay) -> bool:
        beside = (one for one in self._taken[stay.cluster, node] if one.start < stay.until and one.until > stay.start)
        return sum(one.units for one in beside) + stay.units <= stay.capacity
