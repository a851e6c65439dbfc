"""The nodes of one cluster that offer one flavor, as arrays: a pool, built once and kept while its cluster is
unchanged.

A pool's matrices have a row per resource (UNITS, CPU, MEMORY, PODS, BARE, PART) and a column per node. BARE is ADMITTED
on nodes that accept pods without a device, else 0; nothing is deducted from it. PART is the largest free part of one
device in thousandths if devices are divisible, else 0. A pool does not change after it is built: a cycle deducts its
decisions from copies (`fleet_state`). Further rows are the other resources that some node of the fleet has, by name:
without any, there are none.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from clusters.engine.gpu_facts import NO_FACTS, GpuFacts
from placement.values.model import FleetCluster, FleetFlavor, FleetNode

UNITS, CPU, MEMORY, PODS, BARE, PART = RESOURCES = range(6)
WHOLE = 1000
ADMITTED = 2**31
"""More pods than any node has room for."""
WIDTH_OF_LEVEL = {"node": 0, "clique": 1, "rack": 2, "block": 3, "zone": 4, "cluster": 5}

Ints: TypeAlias = NDArray[np.int64]
Floats: TypeAlias = NDArray[np.float64]
Mask: TypeAlias = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Domains:
    """The domains of one level in a pool: each node's domain number (-1 if unknown), and each domain's path."""

    level: str
    code_of_node: Ints
    paths: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, eq=False)
class Pool:
    """The nodes of one cluster that offer one flavor, ordered by domain and name."""

    cluster: FleetCluster
    flavor: FleetFlavor
    node_names: tuple[str, ...]
    node_domains: tuple[tuple[str, ...], ...]
    capacity: Ints
    """The capacity of each node when empty, usable or not."""
    free: Ints
    """The free amounts of each node now; 0 on a node that is not usable."""
    devices: Ints | None
    """For a divisible flavor, the free part of each device in thousandths: a row per device, a column per node."""
    domains: tuple[Domains, ...]
    """Levels between node and cluster that are known here, from narrow to wide."""
    is_open: Mask
    """Per node whether pods that use this flavor's devices can run there."""
    is_open_bare: Mask
    """Per node whether pods that use no device can run there."""
    unusable: Mapping[str, int]
    """The number of nodes that are closed to pods that use this flavor's devices, by reason."""
    unusable_bare: Mapping[str, int]
    """The number of nodes that are closed to pods that use no device, by reason."""
    siblings: Mapping[int, tuple[tuple[str, int], ...]]
    """The same node in the pools of the cluster's other flavors: (flavor name, position), by position here."""
    facts: tuple[GpuFacts, ...]
    """What is known of each node's devices."""

    @cached_property
    def whole_devices(self) -> Ints | None:
        """`devices` of the empty nodes."""
        if self.devices is None:
            return None
        rows = np.arange(self.devices.shape[0])[:, None]
        return np.where(rows < self.capacity[UNITS], WHOLE, 0)

    @cached_property
    def size(self) -> int:
        """The total that fullness refers to: all units, or all millicores if there are no devices."""
        return int(self.capacity[UNITS if self.flavor.gpu_model else CPU].sum()) or 1

    @cached_property
    def largest_free(self) -> Ints:
        """Per resource the largest free amount on any node: an upper bound, not one node's figures."""
        return _largest(self.free)

    @cached_property
    def largest_capacity(self) -> Ints:
        return _largest(self.capacity)


def _largest(matrix: Ints) -> Ints:
    largest: Ints = matrix.max(axis=1, initial=0)
    return largest


def resource_names(nodes: Iterable[FleetNode]) -> frozenset[str]:
    """The other resources that some of these nodes have."""
    return frozenset().union(*(node.resources for node in nodes if node.resources))


def pools_of(cluster: FleetCluster, resources: Sequence[str] = ()) -> tuple[Pool, ...]:
    """The cluster's pools in the order of their flavors' names; `resources` are those of the further rows."""
    nodes = sorted(cluster.nodes, key=lambda node: (node.domain, node.clique, node.name))
    members = {name: [node for node in nodes if name in node.total] for name in sorted(cluster.flavors)}
    siblings = _siblings(members)
    return tuple(
        _pool(cluster, cluster.flavors[name], offering, siblings.get(name, {}), resources)
        for name, offering in members.items()
    )


def _pool(
    cluster: FleetCluster,
    flavor: FleetFlavor,
    nodes: Sequence[FleetNode],
    siblings: Mapping[int, tuple[tuple[str, int], ...]],
    resources: Sequence[str],
) -> Pool:
    why_not = [_why_not(node, flavor.name) for node in nodes]
    why_not_bare = [_why_not(node, "") for node in nodes]
    is_divisible = flavor.sharing == "divisible"
    part = WHOLE if is_divisible else 0
    return Pool(
        cluster=cluster,
        flavor=flavor,
        node_names=tuple(node.name for node in nodes),
        node_domains=tuple(_padded(node.domain) for node in nodes),
        capacity=_matrix([_full_row(node, flavor.name, part, resources) for node in nodes], len(resources)),
        free=_matrix([_free_row(node, flavor.name, part, resources) for node in nodes], len(resources)),
        devices=_devices(nodes, flavor.name) if is_divisible else None,
        domains=tuple(_known_domains(nodes)),
        is_open=np.array([not reason for reason in why_not], dtype=np.bool_),
        is_open_bare=np.array([not reason for reason in why_not_bare], dtype=np.bool_),
        unusable=_counted(why_not),
        unusable_bare=_counted(why_not_bare),
        siblings=siblings,
        facts=tuple([node.gpu_facts.get(flavor.name, NO_FACTS) for node in nodes]),
    )


def _why_not(node: FleetNode, flavor: str) -> str:
    """Why pods on this flavor's devices (empty: on none) cannot run on the node; empty if they can."""
    return node.repels.get(flavor, "") if node.is_usable else node.why_unusable or "not usable"


def _counted(reasons: Iterable[str]) -> dict[str, int]:
    return dict(Counter(reason for reason in reasons if reason))


Row: TypeAlias = tuple[int, ...]


def _matrix(rows: list[Row], others: int) -> Ints:
    matrix = np.ascontiguousarray(np.array(rows, dtype=np.int64).reshape(-1, len(RESOURCES) + others).T)
    matrix.setflags(write=False)
    return matrix


def _full_row(node: FleetNode, flavor: str, part: int, resources: Sequence[str]) -> Row:
    units = node.total[flavor]
    row = units, node.cpu_millicores, node.memory_mib, node.pods, ADMITTED, part if units else 0
    return (*row, *(node.resources.get(name, 0) for name in resources)) if resources else row


def _free_row(node: FleetNode, flavor: str, part: int, resources: Sequence[str]) -> Row:
    if not node.is_usable:
        return (0,) * (len(RESOURCES) + len(resources))
    units, cpu, memory, pods = node.free[flavor], node.free_cpu_millicores, node.free_memory_mib, node.free_pods
    part = max(node.device_free_milli.get(flavor, (part,) * units), default=0)
    bare = 0 if "" in node.repels else ADMITTED
    if flavor in node.repels:
        units = part = 0
    row = max(0, units), max(0, cpu), max(0, memory), max(0, pods), bare, part
    return (*row, *(max(0, node.free_resources.get(name, 0)) for name in resources)) if resources else row


def _devices(nodes: Sequence[FleetNode], flavor: str) -> Ints:
    most = max((node.total[flavor] for node in nodes), default=0)
    devices = np.zeros((most, len(nodes)), dtype=np.int64)
    for column, node in enumerate(nodes):
        if node.is_usable and flavor not in node.repels:
            free = node.device_free_milli.get(flavor, (WHOLE,) * node.free[flavor])
            devices[: len(free), column] = free
    devices.setflags(write=False)
    return devices


def _padded(domain: tuple[str, ...]) -> tuple[str, ...]:
    return (*domain[:3], *("",) * (3 - len(domain)))


def _known_domains(nodes: Sequence[FleetNode]) -> list[Domains]:
    paths = [_padded(node.domain) for node in nodes]
    by_level = {
        "clique": [(*path, node.clique) if node.clique else None for node, path in zip(nodes, paths, strict=True)],
        "rack": [path if path[2] else None for path in paths],
        "block": [path[:2] if path[1] else None for path in paths],
        "zone": [path[:1] if path[0] else None for path in paths],
    }
    return [_domains(level, keys) for level, keys in by_level.items() if any(keys)]


def _domains(level: str, keys: Sequence[tuple[str, ...] | None]) -> Domains:
    numbers: dict[tuple[str, ...], int] = {}
    codes = [-1 if key is None else numbers.setdefault(key, len(numbers)) for key in keys]
    return Domains(level, np.array(codes, dtype=np.int64), tuple(numbers))


def _siblings(members: Mapping[str, Sequence[FleetNode]]) -> dict[str, dict[int, tuple[tuple[str, int], ...]]]:
    places: dict[str, list[tuple[str, int]]] = {}
    for flavor, nodes in members.items():
        for position, node in enumerate(nodes):
            places.setdefault(node.name, []).append((flavor, position))
    siblings: dict[str, dict[int, tuple[tuple[str, int], ...]]] = {}
    for shared in places.values():
        if len(shared) > 1:
            for flavor, position in shared:
                others = tuple(place for place in shared if place != (flavor, position))
                siblings.setdefault(flavor, {})[position] = others
    return siblings
