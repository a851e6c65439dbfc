"""What a cluster has in total, and how much of the fleet the tenants at and below a path could ever use."""

from collections import defaultdict
from collections.abc import Iterable
from typing import Protocol, TypeAlias

from placement.values.model import FleetCluster

from .amounts import milli_gpu_per_unit
from .policies import prefixes_of

Totals: TypeAlias = tuple[float, float, float]
"""Milli-GPU, millicores and MiB, in the order of `placement.values.shares.COUNTED`."""


def totals_of(cluster: FleetCluster) -> Totals:
    """Everything that its nodes have, whether free, used or unusable."""
    per_unit = {name: milli_gpu_per_unit(flavor) for name, flavor in cluster.flavors.items() if flavor.gpu_model}
    gpu = cpu = memory = 0.0
    for node in cluster.nodes:
        cpu += node.cpu_millicores
        memory += node.memory_mib
        for name, units in node.total.items():
            if name in per_unit:
                milli, parts = per_unit[name]
                gpu += units * milli / parts
    return gpu, cpu, memory


class Owned(Protocol):
    """A cluster, now or in the past."""

    @property
    def owner_path(self) -> str:
        """Only tenants at or below it may use the cluster."""


class Capacities:
    """The totals of the clusters that some tenant at or below a path may use."""

    def __init__(self, clusters: Iterable[tuple[Owned, Totals]]) -> None:
        self._owned: dict[str, Totals] = defaultdict(lambda: (0.0, 0.0, 0.0))
        self._below: dict[str, Totals] = defaultdict(lambda: (0.0, 0.0, 0.0))
        for cluster, totals in clusters:
            owner = cluster.owner_path
            self._owned[owner] = _sum(self._owned[owner], totals)
            for above in prefixes_of(owner)[:-1] if owner else ():
                self._below[above] = _sum(self._below[above], totals)

    def at(self, path: str) -> Totals:
        """Those of the clusters that serve the path, and of those that serve only tenants below it."""
        found = self._below.get(path, (0.0, 0.0, 0.0))
        for owner in ("", *prefixes_of(path)):
            if owner in self._owned:
                found = _sum(found, self._owned[owner])
        return found


def _sum(one: Totals, other: Totals) -> Totals:
    return one[0] + other[0], one[1] + other[1], one[2] + other[2]
