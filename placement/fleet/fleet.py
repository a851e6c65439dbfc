"""The fleet as arrays: the pools of all clusters, with values that every cycle would otherwise compute again."""

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from uuid import UUID

import numpy as np

from clusters.engine.health import OPEN_STATES
from placement.values.gpu_needs import lack_of
from placement.values.model import Constraints, FleetCluster, GpuRequest

from .amounts import milli_gpu_per_unit, portion_of
from .eligibility import exclusion
from .emissions import emitted_by
from .policies import NO_POLICY, Policy
from .pools import CPU, RESOURCES, UNITS, WHOLE, Floats, Ints, Mask, Pool, pools_of, resource_names
from .prices import Rates, rates_of
from .totals import Totals, totals_of


def sees(tenant_path: str, owner_path: str) -> bool:
    """True if a tenant may see and use what `owner_path` owns: the tenant is the owner or below it."""
    return not owner_path or tenant_path == owner_path or tenant_path.startswith(f"{owner_path}/")


@dataclass(frozen=True, eq=False)
class Audience:
    """The clusters that some tenants may see, by number, and per constraints and policy the pools they may use."""

    clusters: tuple[int, ...]
    lawful: dict[tuple[Constraints, Policy], Mask] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Fleet:
    """All pools, ordered by cluster id and flavor name, with values that every cycle would otherwise compute again."""

    clusters: tuple[FleetCluster, ...]
    pools: tuple[Pool, ...]
    cluster_of_pool: Ints
    first_pool_of_cluster: tuple[int, ...]
    largest_free: Ints
    """A row per resource, a column per pool."""
    largest_capacity: Ints
    rates: Floats
    """The prices of a unit, a core and a GiB for pods without a GPU, and for pods with one; a column per pool, NaN
    without a price."""
    has_gpu: Mask
    """Per pool."""
    slice_hosts: Ints
    """Per pool."""
    minutes_unseen: Ints
    """Per pool: of its cluster."""
    size: Ints
    """Per pool: all its units (all its millicores if it has no GPU)."""
    free_share: Floats
    """Per pool: the free part of its units (of its cores if it has no GPU)."""
    part_of_cluster: Floats
    """Per pool: its part of its cluster's GPUs (of the cores, in a cluster without GPUs)."""
    is_open: Mask
    """Per pool whether its cluster takes new work."""
    resources: tuple[str, ...] = ()
    """The other resources that some node has: the further rows of the pools."""
    totals: tuple[Totals, ...] = ()
    """Per cluster, all that its nodes have."""
    _serving: dict[GpuRequest | None, tuple[Ints, Ints]] = field(default_factory=dict)
    _admitted: dict[tuple[int, GpuRequest], Mask] = field(default_factory=dict)
    _asked: dict[int, tuple[Rates | None, Rates | None]] = field(default_factory=dict)
    _audiences: dict[str, Audience] = field(default_factory=dict)
    _shared: dict[tuple[int, ...], Audience] = field(default_factory=dict)

    @cached_property
    def spreads(self) -> Mask:
        """Per cluster whether its own scheduler picks nodes."""
        return np.array([cluster.fills == "spread" for cluster in self.clusters], dtype=np.bool_)

    @cached_property
    def has_spreading(self) -> bool:
        """True if some cluster's own scheduler picks nodes."""
        return bool(self.spreads.any())

    @cached_property
    def emitted(self) -> Floats:
        """What a unit, a core and a GiB emit in an hour, laid out as `rates`; NaN where that is not known."""
        return _by_pods(
            [[emitted_by(pool.flavor, with_gpu=with_gpu) for pool in self.pools] for with_gpu in (False, True)]
        )

    def asked(self, pool: int) -> tuple[Rates | None, Rates | None]:
        """The prices in a pool of pods without a GPU and of pods with one; None without a price."""
        found = self._asked.get(pool)
        if found is None:
            flavor = self.pools[pool].flavor
            found = self._asked[pool] = (rates_of(flavor, with_gpu=False), rates_of(flavor, with_gpu=True))
        return found

    def serving(self, gpu: GpuRequest | None) -> tuple[Ints, Ints]:
        """Per pool what a pod with this request uses: units (-1 if no node can serve it), and a part of one."""
        found = self._serving.get(gpu)
        if found is None:
            each = (portion_of(gpu, pool.flavor) if self._admits(n, gpu) else None for n, pool in enumerate(self.pools))
            portions = np.array([portion or (-1, 0) for portion in each], dtype=np.int64)
            found = self._serving[gpu] = (portions.reshape(-1, 2)[:, 0], portions.reshape(-1, 2)[:, 1])
        return found

    def admitted(self, pool: int, gpu: GpuRequest | None) -> Mask | None:
        """Per node of a pool whether its devices are known to be what the request needs; None if it needs nothing."""
        if gpu is None or gpu.needs is None:
            return None
        found = self._admitted.get((pool, gpu))
        if found is None:
            fitting = [lack_of(gpu.needs, facts) is None for facts in self.pools[pool].facts]
            found = self._admitted[pool, gpu] = np.array(fitting, dtype=np.bool_)
        return found

    def _admits(self, pool: int, gpu: GpuRequest | None) -> bool:
        admitted = self.admitted(pool, gpu)
        return admitted is None or bool(admitted.any())

    def audience(self, tenant_path: str) -> Audience:
        """The clusters that a tenant may see; the identical object for all tenants that see the same clusters."""
        audience = self._audiences.get(tenant_path)
        if audience is None:
            seen = tuple(n for n, cluster in enumerate(self.clusters) if sees(tenant_path, cluster.owner_path))
            audience = self._shared.setdefault(seen, Audience(seen))
            self._audiences[tenant_path] = audience
        return audience

    def lawful(self, audience: Audience, constraints: Constraints, policy: Policy = NO_POLICY) -> Mask:
        """Per pool whether the audience, its policy and the job's constraints allow it, whatever the state of its
        cluster.
        """
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


def fleet_of(
    clusters: Sequence[FleetCluster],
    pools: Mapping[UUID, tuple[Pool, ...]] | None = None,
    resources: tuple[str, ...] = (),
    totals: Mapping[UUID, Totals] | None = None,
) -> Fleet:
    """The fleet of these clusters; `pools` may contain pools that were built before for these `resources`, by cluster
    id, and `totals` what was counted before.
    """
    ordered = tuple(sorted(clusters, key=lambda cluster: cluster.id))
    if pools is None:
        resources = tuple(sorted(resource_names(node for cluster in ordered for node in cluster.nodes)))
    every: list[Pool] = []
    cluster_of_pool: list[int] = []
    first: list[int] = []
    for number, cluster in enumerate(ordered):
        own = pools[cluster.id] if pools is not None else pools_of(cluster, resources)
        first.append(len(every))
        every.extend(own)
        cluster_of_pool.extend([number] * len(own))
    return Fleet(
        clusters=ordered,
        pools=tuple(every),
        cluster_of_pool=np.array(cluster_of_pool, dtype=np.int64),
        first_pool_of_cluster=(*first, len(every)),
        resources=resources,
        totals=tuple((totals or {}).get(cluster.id) or totals_of(cluster) for cluster in ordered),
        largest_free=_stacked([pool.largest_free for pool in every], len(resources)),
        largest_capacity=_stacked([pool.largest_capacity for pool in every], len(resources)),
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
    return _by_pods([[rates_of(pool.flavor, with_gpu=with_gpu) for pool in pools] for with_gpu in (False, True)])


def _by_pods(kinds: Sequence[Sequence[Rates | None]]) -> Floats:
    """Of pods without a GPU and of pods with one, a row for each of unit, core and GiB, a column per pool; NaN for None."""
    nothing = (np.nan,) * 3
    found = np.array([[rates or nothing for rates in each] for each in kinds], dtype=np.float64)
    return found.reshape(2, -1, 3).transpose(0, 2, 1)


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


def _stacked(columns: list[Ints], others: int) -> Ints:
    return np.stack(columns, axis=1) if columns else np.zeros((len(RESOURCES) + others, 0), dtype=np.int64)


class FleetIndex:
    """Keeps the arrays of clusters between cycles. A cluster that is the same object as last time costs nothing.

    Several threads may use it: each gets the fleet of its own clusters.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seen: dict[UUID, FleetCluster] = {}
        self._pools: dict[UUID, tuple[Pool, ...]] = {}
        self._names: dict[UUID, frozenset[str]] = {}
        """The other resources of each cluster."""
        self._totals: dict[UUID, Totals] = {}
        self._fleet: Fleet | None = None

    def fleet(self, clusters: Sequence[FleetCluster]) -> Fleet:
        """The fleet of these clusters. Only changed ones are rebuilt; all of them if they have other resources than
        before.
        """
        with self._lock:
            return self._fleet_of(clusters)

    def _fleet_of(self, clusters: Sequence[FleetCluster]) -> Fleet:
        changed = [cluster for cluster in clusters if self._seen.get(cluster.id) is not cluster]
        if self._fleet is not None and not changed and len(clusters) == len(self._seen):
            return self._fleet
        self._names |= {cluster.id: resource_names(cluster.nodes) for cluster in changed}
        self._names = {cluster.id: self._names[cluster.id] for cluster in clusters}
        self._totals |= {cluster.id: totals_of(cluster) for cluster in changed}
        self._totals = {cluster.id: self._totals[cluster.id] for cluster in clusters}
        resources = tuple(sorted(frozenset().union(*self._names.values())))
        if self._fleet is None or resources != self._fleet.resources:
            changed = list(clusters)
        kept = {cluster.id: self._pools[cluster.id] for cluster in clusters if cluster.id in self._pools}
        kept.update({cluster.id: pools_of(cluster, resources) for cluster in changed})
        self._seen = {cluster.id: cluster for cluster in clusters}
        self._pools = kept
        self._fleet = fleet_of(clusters, kept, resources, self._totals)
        return self._fleet
