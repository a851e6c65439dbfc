"""The fleet as arrays: for each cluster and flavor one pool of nodes, built once and kept while its cluster is unchanged.

A pool's matrices have a row per resource (UNITS, CPU, MEMORY, PODS, BARE, PART) and a column per node. BARE is ADMITTED on
nodes that take pods without a device, else 0; nothing is ever deducted from it. PART is the largest free part of one
device in thousandths, where devices are divisible, else 0. Nothing here is ever changed after it was built: a cycle
deducts what it decides from copies (`ledger`).
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeAlias
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

from .amounts import milli_gpu_per_unit, portion_of
from .eligibility import exclusion
from .model import Constraints, FleetCluster, FleetFlavor, FleetNode, GpuRequest
from .policies import NO_POLICY, Policy
from .prices import rates_of

UNITS, CPU, MEMORY, PODS, BARE, PART = RESOURCES = range(6)
WHOLE = 1000
ADMITTED = 2**31
"""More pods than any node has room for."""
WIDTH_OF_LEVEL = {"node": 0, "clique": 1, "rack": 2, "block": 3, "zone": 4, "cluster": 5}
OPEN_STATES = frozenset({"ready", "degraded"})

Ints: TypeAlias = NDArray[np.int64]
Floats: TypeAlias = NDArray[np.float64]
Mask: TypeAlias = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Domains:
    """The domains of one level in a pool: each node's domain number (-1 where unknown), and each domain's path."""

    level: str
    code_of_node: Ints
    paths: tuple[tuple[str, ...], ...]
    is_complete: bool


@dataclass(frozen=True, eq=False)
class Pool:
    """The nodes of one cluster that offer one flavor, ordered by domain and name."""

    cluster: FleetCluster
    flavor: FleetFlavor
    node_names: tuple[str, ...]
    node_domains: tuple[tuple[str, ...], ...]
    capacity: Ints
    """What each node has when empty, whether usable now or not."""
    free: Ints
    """What is free on each node now; nothing on a node that is not usable."""
    devices: Ints | None
    """For a divisible flavor, what is free of each device in thousandths: a row per device, a column per node."""
    domains: tuple[Domains, ...]
    """Levels between node and cluster that are known here, from narrow to wide."""
    is_open: Mask
    """Per node whether pods that take this flavor's devices can stand there."""
    is_open_bare: Mask
    """Per node whether pods that take no device can."""
    unusable: Mapping[str, int]
    """How many nodes are not open to pods that take this flavor's devices, by reason."""
    unusable_bare: Mapping[str, int]
    """How many are not open to pods that take no device, by reason."""
    siblings: Mapping[int, tuple[tuple[str, int], ...]]
    """The same node in the pools of the cluster's other flavors: (flavor name, position), by position here."""

    @cached_property
    def whole_devices(self) -> Ints | None:
        """`devices` of the empty nodes."""
        if self.devices is None:
            return None
        rows = np.arange(self.devices.shape[0])[:, None]
        return np.where(rows < self.capacity[UNITS], WHOLE, 0)

    @cached_property
    def size(self) -> int:
        """What fullness is measured against: all units, or all millicores where there are no devices."""
        return int(self.capacity[UNITS if self.flavor.gpu_model else CPU].sum()) or 1

    @cached_property
    def largest_free(self) -> Ints:
        """Per resource the most that is free on any one node: an upper bound, not one node's figures."""
        return _largest(self.free)

    @cached_property
    def largest_capacity(self) -> Ints:
        return _largest(self.capacity)


def _largest(matrix: Ints) -> Ints:
    largest: Ints = matrix.max(axis=1, initial=0)
    return largest


def pools_of(cluster: FleetCluster) -> tuple[Pool, ...]:
    """The cluster's pools in the order of their flavors' names."""
    nodes = sorted(cluster.nodes, key=lambda node: (node.domain, node.clique, node.name))
    members = {
        name: [node for node in nodes if name in node.total]
        for name in sorted(cluster.flavors)
        if name in cluster.flavors
    }
    siblings = _siblings(members)
    return tuple(
        _pool(cluster, cluster.flavors[name], offering, siblings.get(name, {})) for name, offering in members.items()
    )


def _pool(
    cluster: FleetCluster,
    flavor: FleetFlavor,
    nodes: Sequence[FleetNode],
    siblings: Mapping[int, tuple[tuple[str, int], ...]],
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
        capacity=_matrix([_full_row(node, flavor.name, part) for node in nodes]),
        free=_matrix([_free_row(node, flavor.name, part) for node in nodes]),
        devices=_devices(nodes, flavor.name) if is_divisible else None,
        domains=tuple(_known_domains(nodes)),
        is_open=np.array([not reason for reason in why_not], dtype=np.bool_),
        is_open_bare=np.array([not reason for reason in why_not_bare], dtype=np.bool_),
        unusable=_counted(why_not),
        unusable_bare=_counted(why_not_bare),
        siblings=siblings,
    )


def _why_not(node: FleetNode, flavor: str) -> str:
    """Why pods on this flavor's devices (empty: on none) cannot stand on the node; empty if they can."""
    return node.repels.get(flavor, "") if node.is_usable else node.why_unusable or "not usable"


def _counted(reasons: Iterable[str]) -> dict[str, int]:
    return dict(Counter(reason for reason in reasons if reason))


Row: TypeAlias = tuple[int, int, int, int, int, int]


def _matrix(rows: list[Row]) -> Ints:
    matrix = np.ascontiguousarray(np.array(rows, dtype=np.int64).reshape(-1, len(RESOURCES)).T)
    matrix.setflags(write=False)
    return matrix


def _full_row(node: FleetNode, flavor: str, part: int) -> Row:
    units = node.total[flavor]
    return units, node.cpu_millicores, node.memory_mib, node.pods, ADMITTED, part if units else 0


def _free_row(node: FleetNode, flavor: str, part: int) -> Row:
    if not node.is_usable:
        return 0, 0, 0, 0, 0, 0
    units, cpu, memory, pods = node.free.get(flavor, 0), node.free_cpu_millicores, node.free_memory_mib, node.free_pods
    part = max(node.device_free_milli.get(flavor, (part,) * units), default=0)
    bare = 0 if "" in node.repels else ADMITTED
    if flavor in node.repels:
        units = part = 0
    return max(0, units), max(0, cpu), max(0, memory), max(0, pods), bare, part


def _devices(nodes: Sequence[FleetNode], flavor: str) -> Ints:
    most = max((node.total[flavor] for node in nodes), default=0)
    devices = np.zeros((most, len(nodes)), dtype=np.int64)
    for column, node in enumerate(nodes):
        if node.is_usable and flavor not in node.repels:
            free = node.device_free_milli.get(flavor, (WHOLE,) * node.free.get(flavor, 0))
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
    return Domains(level, np.array(codes, dtype=np.int64), tuple(numbers), None not in keys)


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


def sees(tenant_path: str, owner_path: str) -> bool:
    """True if a tenant may know of and use what `owner_path` owns: it is the owner or below it."""
    return not owner_path or tenant_path == owner_path or tenant_path.startswith(f"{owner_path}/")


@dataclass(frozen=True, eq=False)
class Audience:
    """The clusters that some tenants may know of, by number, and per constraints and policy the pools they may use."""

    clusters: tuple[int, ...]
    lawful: dict[tuple[Constraints, Policy], Mask] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Fleet:
    """All pools, ordered by cluster id and flavor name, with what every cycle would otherwise compute again."""

    clusters: tuple[FleetCluster, ...]
    pools: tuple[Pool, ...]
    cluster_of_pool: Ints
    first_pool_of_cluster: tuple[int, ...]
    largest_free: Ints
    """A row per resource, a column per pool."""
    largest_capacity: Ints
    rates: Floats
    """What pods without a GPU, and those with one, are asked: prices of a unit, a core and a GiB; a column per pool, NaN where
    there is no price."""
    has_gpu: Mask
    """Per pool."""
    slice_hosts: Ints
    """Per pool."""
    minutes_unseen: Ints
    """Per pool: of its cluster."""
    size: Ints
    """Per pool: all its units (all its millicores where it has no GPU)."""
    free_share: Floats
    """Per pool: which part of its units is free (of its cores where it has no GPU)."""
    part_of_cluster: Floats
    """Per pool: which part of its cluster's GPUs it has (of its cores, in a cluster without GPUs)."""
    is_open: Mask
    """Per pool whether its cluster takes new work."""
    _serving: dict[GpuRequest | None, tuple[Ints, Ints]] = field(default_factory=dict)
    _audiences: dict[str, Audience] = field(default_factory=dict)
    _shared: dict[tuple[int, ...], Audience] = field(default_factory=dict)

    @cached_property
    def has_spreading(self) -> bool:
        """True if some cluster picks nodes by itself."""
        return any(cluster.fills == "spread" for cluster in self.clusters)

    def serving(self, gpu: GpuRequest | None) -> tuple[Ints, Ints]:
        """Per pool what a pod with this request takes: units (-1 where the flavor cannot serve it), and a part of one."""
        found = self._serving.get(gpu)
        if found is None:
            portions = np.array([portion_of(gpu, pool.flavor) or (-1, 0) for pool in self.pools], dtype=np.int64)
            found = self._serving[gpu] = (portions.reshape(-1, 2)[:, 0], portions.reshape(-1, 2)[:, 1])
        return found

    def audience(self, tenant_path: str) -> Audience:
        """What a tenant may know of; the identical object for all tenants that see the same clusters."""
        audience = self._audiences.get(tenant_path)
        if audience is None:
            seen = tuple(n for n, cluster in enumerate(self.clusters) if sees(tenant_path, cluster.owner_path))
            audience = self._shared.setdefault(seen, Audience(seen))
            self._audiences[tenant_path] = audience
        return audience

    def lawful(self, audience: Audience, constraints: Constraints, policy: Policy = NO_POLICY) -> Mask:
        """Per pool whether the audience, its policy and the job's constraints allow it, however its cluster is."""
        mask = audience.lawful.get((constraints, policy))
        if mask is None:
            allowed = np.zeros(len(self.clusters), dtype=np.bool_)
            known = [(n, self.clusters[n]) for n in audience.clusters]
            allowed[[n for n, one in known if not (exclusion(constraints, one) or policy.cluster_fault(one))]] = True
            mask = allowed[self.cluster_of_pool]
            types = constraints.capacity_types
            if types:
                mask &= np.array([pool.flavor.capacity_type in types for pool in self.pools], dtype=np.bool_)
            if policy.path:
                mask &= np.array([not policy.flavor_fault(pool.flavor) for pool in self.pools], dtype=np.bool_)
            audience.lawful[constraints, policy] = mask
        return mask


def fleet_of(clusters: Sequence[FleetCluster], pools: Mapping[UUID, tuple[Pool, ...]] | None = None) -> Fleet:
    """The fleet of these clusters; `pools` may bring those that were built before, by cluster id."""
    ordered = tuple(sorted(clusters, key=lambda cluster: cluster.id))
    every: list[Pool] = []
    cluster_of_pool: list[int] = []
    first: list[int] = []
    for number, cluster in enumerate(ordered):
        own = pools[cluster.id] if pools is not None else pools_of(cluster)
        first.append(len(every))
        every.extend(own)
        cluster_of_pool.extend([number] * len(own))
    return Fleet(
        clusters=ordered,
        pools=tuple(every),
        cluster_of_pool=np.array(cluster_of_pool, dtype=np.int64),
        first_pool_of_cluster=(*first, len(every)),
        largest_free=_stacked([pool.largest_free for pool in every]),
        largest_capacity=_stacked([pool.largest_capacity for pool in every]),
        rates=_rates(every),
        size=np.array([pool.size for pool in every], dtype=np.int64),
        part_of_cluster=_parts_of_clusters(every, cluster_of_pool, len(ordered)),
        free_share=np.array([_free_share(pool) for pool in every], dtype=np.float64),
        is_open=np.array([pool.cluster.state in OPEN_STATES for pool in every], dtype=np.bool_),
        has_gpu=np.array([bool(pool.flavor.gpu_model) for pool in every], dtype=np.bool_),
        minutes_unseen=np.array([pool.cluster.minutes_unseen for pool in every], dtype=np.int64),
        slice_hosts=np.array([pool.flavor.slice_hosts for pool in every], dtype=np.int64),
    )


def _rates(pools: Sequence[Pool]) -> Floats:
    nothing = (np.nan,) * 3
    kinds = [[rates_of(pool.flavor, with_gpu=with_gpu) or nothing for pool in pools] for with_gpu in (False, True)]
    return np.array(kinds, dtype=np.float64).reshape(2, len(pools), 3).transpose(0, 2, 1)


def _parts_of_clusters(pools: Sequence[Pool], cluster_of_pool: Sequence[int], clusters: int) -> Floats:
    owner = np.array(cluster_of_pool, dtype=np.int64)
    gpus, cores = np.zeros(len(pools)), np.zeros(len(pools))
    for number, pool in enumerate(pools):
        if pool.flavor.gpu_model:
            milli, parts = milli_gpu_per_unit(pool.flavor)
            gpus[number] = pool.size * milli / parts
        else:
            cores[number] = pool.size
    all_gpus, all_cores = (np.bincount(owner, size, minlength=clusters)[owner] for size in (gpus, cores))
    part: Floats = np.where(all_gpus > 0, gpus, cores) / np.maximum(1, np.where(all_gpus > 0, all_gpus, all_cores))
    return part


def _free_share(pool: Pool) -> float:
    if pool.devices is not None:
        return int(pool.devices.sum()) / WHOLE / pool.size
    return int(pool.free[UNITS if pool.flavor.gpu_model else CPU].sum()) / pool.size


def _stacked(columns: list[Ints]) -> Ints:
    return np.stack(columns, axis=1) if columns else np.zeros((len(RESOURCES), 0), dtype=np.int64)


class FleetIndex:
    """Keeps the arrays of clusters between cycles. A cluster that is the identical object as last time costs nothing.

    Not safe for use by several threads at once.
    """

    def __init__(self) -> None:
        self._seen: dict[UUID, FleetCluster] = {}
        self._pools: dict[UUID, tuple[Pool, ...]] = {}
        self._fleet: Fleet | None = None

    def fleet(self, clusters: Sequence[FleetCluster]) -> Fleet:
        """The fleet of these clusters, with only the changed ones built anew."""
        changed = [cluster for cluster in clusters if self._seen.get(cluster.id) is not cluster]
        if self._fleet is not None and not changed and len(clusters) == len(self._seen):
            return self._fleet
        kept = {cluster.id: self._pools[cluster.id] for cluster in clusters if cluster.id in self._pools}
        kept.update({cluster.id: pools_of(cluster) for cluster in changed})
        self._seen = {cluster.id: cluster for cluster in clusters}
        self._pools = kept
        self._fleet = fleet_of(clusters, kept)
        return self._fleet
