"""The ways in which a job could be placed: for each cluster, one pool of nodes for each of its pod sets.

What depends only on the pods (`Ask`) is separate from what depends on the tenant and the constraints. So jobs of a
thousand tenants with equal requests share what the cycle learns about them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice, pairwise, product
from math import prod

import numpy as np

from placement.fleet.fleet import Fleet
from placement.fleet.pools import BARE, CPU, MEMORY, PART, RESOURCES, UNITS, WHOLE, Floats, Ints, Mask
from placement.fleet.prices import MIB_PER_GIB, MILLICORES_PER_CORE
from placement.fleet.siting import Need, need_of
from placement.values.model import PodSetRequest, Topology

MOST_COMBINATIONS = 256
"""The most candidates per cluster of a job whose pod sets could each run on several flavors: the first ones by name."""


@dataclass(frozen=True)
class Ask:
    """What a job's pods need, and the candidates: a row each, with a column per pod set."""

    fleet: Fleet
    pod_sets: tuple[PodSetRequest, ...]
    pools: Ints
    units: Ints
    parts: Ints
    """What a pod uses of each pool: units, and thousandths of one more unit."""
    slice_hosts: Ints
    """Of the pools' flavors."""
    lead: Ints
    """Per candidate the lead pool: that of the first pod set with GPUs, else that of the first pod set."""
    lead_share: Floats
    """Per candidate, the part of the lead pool's total capacity that the job uses."""
    is_alive: Mask
    """Per candidate; False for the rest of the cycle after it did not fit once."""
    hourly_cost: Floats
    """Per candidate; NaN if some flavor has no price."""
    borrows_gpu_nodes: Mask
    """Per candidate: whether pods without a GPU would run on nodes with GPUs."""
    topology: Topology
    is_complete: bool
    """False if some combinations were omitted."""
    _needs: dict[bytes, tuple[Need, ...]] = field(default_factory=dict)

    def needs(self, candidate: int) -> tuple[Need, ...]:
        """What each pod set needs of its pool."""
        portions = self._portions[candidate]
        key = portions.tobytes()
        if self._is_choosy:
            key += self.pools[candidate].tobytes()
        needs = self._needs.get(key)
        if needs is None:
            fleet = self.fleet
            each = zip(self.pod_sets, self.pools[candidate].tolist(), *portions.tolist(), strict=True)
            needs = self._needs[key] = tuple(
                need_of(pods, (unit, part), self.topology, host, fleet.resources, fleet.admitted(pool, pods.gpu))
                for pods, pool, unit, part, host in each
            )
        return needs

    @cached_property
    def hourly_emissions(self) -> Floats:
        """Per candidate, grams an hour; NaN if they are not known. Only strategies that count carbon ask for it."""
        return _hourly(self.fleet.emitted, self.pod_sets, self.pools, self.units + self.parts / WHOLE)

    @cached_property
    def _is_choosy(self) -> bool:
        """Whether what the pods need depends on the nodes of a pool."""
        return any(pod_set.gpu is not None and pod_set.gpu.needs is not None for pod_set in self.pod_sets)

    @cached_property
    def _portions(self) -> Ints:
        """Per candidate its rows of `units`, `parts` and `slice_hosts`."""
        return np.stack((self.units, self.parts, self.slice_hosts), axis=1)


def ask_of(fleet: Fleet, pod_sets: tuple[PodSetRequest, ...], topology: Topology, largest: Ints) -> Ask:
    """The candidates in the order of cluster ids and flavor names. `largest` (a row per resource, a column per pool)
    rules out pools in which no node has enough of a resource. It is what is free now, or the capacity.
    """
    served = [fleet.serving(pod_set.gpu) for pod_set in pod_sets]
    possible = [
        np.flatnonzero(_is_possible(p, *portion, largest, fleet.resources))
        for p, portion in zip(pod_sets, served, strict=True)
    ]
    pools, is_complete = _combinations(fleet, possible)
    units, parts = (np.stack([served[n][k][pools[:, n]] for n in range(len(pod_sets))], axis=1) for k in (0, 1))
    leader = next((n for n, pod_set in enumerate(pod_sets) if pod_set.gpu is not None), 0)
    return Ask(
        fleet=fleet,
        pod_sets=pod_sets,
        pools=pools,
        units=units,
        parts=parts,
        slice_hosts=fleet.slice_hosts[pools],
        lead=pools[:, leader],
        lead_share=_lead_share(fleet, pod_sets[leader], pools[:, leader], (units + parts / WHOLE)[:, leader]),
        is_alive=np.ones(len(pools), dtype=np.bool_),
        hourly_cost=_hourly(fleet.rates, pod_sets, pools, units + parts / WHOLE),
        borrows_gpu_nodes=_borrows_gpu_nodes(fleet, pod_sets, pools),
        topology=topology,
        is_complete=is_complete,
    )


def _is_possible(pod_set: PodSetRequest, units: Ints, parts: Ints, largest: Ints, resources: tuple[str, ...]) -> Mask:
    mask: Mask = (units >= 0) & (largest[UNITS] >= units) & (largest[PART] >= parts)
    mask &= (largest[CPU] >= pod_set.cpu_millicores) & (largest[MEMORY] >= pod_set.memory_mib)
    if pod_set.gpu is None:
        mask &= largest[BARE] > 0
    for name, amount in pod_set.resources:
        mask &= largest[len(RESOURCES) + resources.index(name)] >= amount if name in resources else False
    return mask


def _combinations(fleet: Fleet, possible: Sequence[Ints]) -> tuple[Ints, bool]:
    if len(possible) == 1:
        return possible[0][:, None], True
    rows: list[tuple[int, ...]] = []
    is_complete = True
    bounds = fleet.first_pool_of_cluster
    for first, end in pairwise(bounds):
        own = [pools[np.searchsorted(pools, first) : np.searchsorted(pools, end)].tolist() for pools in possible]
        rows.extend(islice(product(*own), MOST_COMBINATIONS))
        is_complete = is_complete and prod(len(pools) for pools in own) <= MOST_COMBINATIONS
    return np.array(rows, dtype=np.int64).reshape(-1, len(possible)), is_complete


def _lead_share(fleet: Fleet, pod_set: PodSetRequest, lead: Ints, units: Floats) -> Floats:
    """See `Ask.lead_share`: by devices, or by cores where a pool has none; 0 for pods without a GPU
    on nodes with some.
    """
    per_pod = units if pod_set.gpu is not None else np.where(fleet.has_gpu[lead], 0, pod_set.cpu_millicores)
    share: Floats = per_pod * pod_set.count / fleet.size[lead]
    return share


def _hourly(rates: Floats, pod_sets: Sequence[PodSetRequest], pools: Ints, units: Floats) -> Floats:
    cost = np.zeros(len(pools))
    for n, pod_set in enumerate(pod_sets):
        unit, cpu, memory = rates[int(pod_set.gpu is not None)][:, pools[:, n]]
        cores, gib = pod_set.cpu_millicores / MILLICORES_PER_CORE, pod_set.memory_mib / MIB_PER_GIB
        cost += (unit * units[:, n] + cpu * cores + memory * gib) * pod_set.count
    return cost


def _borrows_gpu_nodes(fleet: Fleet, pod_sets: Sequence[PodSetRequest], pools: Ints) -> Mask:
    columns = [n for n, pod_set in enumerate(pod_sets) if pod_set.gpu is None]
    mask: Mask = np.any(fleet.has_gpu[pools[:, columns]], axis=1)
    return mask
