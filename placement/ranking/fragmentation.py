"""The number of idle GPUs that become unusable when a pod takes a place; packing minimizes it.

Three parts, all in GPUs:

- The fragmentation measure of Weng et al., "Beware of Fragmentation" (USENIX ATC 2023): for each usual kind of pod, the
  idle devices of a node that it could not use, weighted by its frequency.
- Idle GPUs beyond those that the node's free cores can serve, at the usual cores per GPU. If nodes run out of cores
  before devices, the first part detects it only afterwards.
- For divisible devices, the usual final waste of their leftovers (`leftovers`). The first part checks only whether one
  more pod fits, so it then counts less.
"""

from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np

from placement.fleet.amounts import MILLI, milli_gpu_per_unit
from placement.fleet.fleet import Fleet
from placement.fleet.pools import UNITS, WHOLE, Floats, Ints, Mask
from placement.values.model import GpuRequest, JobRequest, PodSetRequest, TypicalPod

from .leftovers import STEPS, Kind, usual_waste
from .misfits import NOT_SERVED, Misfits

BESIDE_LEFTOVERS = 0.3
"""The weight of the first part if the third part is known."""
COVERED = 0.95
"""The rarest kinds of pods, one pod in twenty in total, are omitted, as in the published measure."""


def typical_of(queue: Iterable[JobRequest]) -> tuple[TypicalPod, ...]:
    """The kinds of pods that are queued."""
    counted: Counter[object] = Counter()
    kinds: dict[object, PodSetRequest] = {}
    for job in queue:
        for pod_set in job.pod_sets:
            kind = (pod_set.cpu_millicores, pod_set.memory_mib, pod_set.gpu)
            kinds.setdefault(kind, pod_set)
            counted[kind] += pod_set.count
    return tuple(TypicalPod(kinds[kind], weight) for kind, weight in counted.items())


class Fragmentation:
    """Measures the nodes of a fleet against the usual pods."""

    def __init__(self, fleet: Fleet, typical: Sequence[TypicalPod]) -> None:
        kept = _most_frequent(typical)
        weights = np.array([kind.weight for kind in kept], dtype=np.int64)
        requests = {gpu: number for number, gpu in enumerate(dict.fromkeys(kind.pod.gpu for kind in kept))}
        shape = (len(requests), len(fleet.pools))
        portions = [fleet.serving(gpu) for gpu in requests]
        self._fleet = fleet
        self._weight: Floats = weights / (int(weights.sum()) or 1)
        self._cpu: Ints = np.array([kind.pod.cpu_millicores for kind in kept], dtype=np.int64)
        self._request: Ints = np.array([requests[kind.pod.gpu] for kind in kept], dtype=np.int64)
        self._units: Ints = np.array([units for units, _ in portions], dtype=np.int64).reshape(shape)
        """By request and pool, like `_parts`; NOT_SERVED for pods without a GPU."""
        self._parts: Ints = np.array([parts for _, parts in portions], dtype=np.int64).reshape(shape)
        if None in requests:
            self._units[requests[None]] = NOT_SERVED
        most_units = int(fleet.largest_capacity[UNITS].max(initial=0))
        self._misfits = Misfits(weights, self._cpu, self._request, self._units, most_units)
        sizes = (milli_gpu_per_unit(pool.flavor) for pool in fleet.pools)
        self._gpus_per_unit: Floats = np.array([milli / parts / MILLI for milli, parts in sizes])
        self._cores_per_gpu = _cores_per_gpu(typical)
        self.scarcity: Floats = _scarcity(fleet, typical)
        """Per pool of whole GPUs: how many times its share of the free ones the pods want that could use it; else 0."""
        is_divisible = any(pool.devices is not None for pool in fleet.pools)
        self._by_pool: dict[int, tuple[Ints, Ints, Mask]] = {}
        self._waste: Floats = np.array(usual_waste(_sizes(typical)) if is_divisible else ()) / STEPS

    def stranded(self, pool: int, units: Ints, devices: Ints | None, cpu: Ints, weight: float = 1.0) -> Floats:
        """The unusable idle GPUs on each of some nodes of a pool, given what is free there; `weight` applies to the
        first part.

        `units` and `cpu` have an entry per node; `devices` has a row per device and a column per node, or is None if
        devices are not divisible.
        """
        if devices is None:
            return self.stranded_whole(pool, units, cpu, weight)
        idle: Floats = devices.sum(axis=0) / WHOLE
        lost = BESIDE_LEFTOVERS * weight * self._lost(pool, devices, cpu, idle)
        lost += self._waste[devices * STEPS // WHOLE].sum(axis=0)
        return lost + self._unfed(idle, cpu)

    def stranded_whole(self, pools: Ints | int, units: Ints, cpu: Ints, weight: float) -> Floats:
        """Likewise on nodes whose devices are not divisible; `pools` has an entry per node, or is the pool of all."""
        idle: Floats = units * self._gpus_per_unit[pools]
        return weight * idle * self._misfits.share(pools, units, cpu) + self._unfed(idle, cpu)

    def _unfed(self, idle: Floats, cpu: Ints) -> Floats:
        """The idle GPUs that the free cores cannot serve."""
        unfed: Floats = np.maximum(0.0, idle - cpu / self._cores_per_gpu)
        return unfed

    def _lost(self, pool: int, devices: Ints, cpu: Ints, idle: Floats) -> Floats:
        size, needed, is_served = self._kinds_on(pool)
        is_large = devices >= size
        usable = is_served & (cpu >= self._cpu[:, None]) & (is_large.sum(axis=1) >= needed)
        too_small = np.where(is_large, 0, devices).sum(axis=1) / WHOLE
        lost: Floats = self._weight @ np.where(usable, too_small, idle)
        return lost

    def _kinds_on(self, pool: int) -> tuple[Ints, Ints, Mask]:
        """Per kind of pod, on a divisible pool: what a device must have, how many such devices, whether it may run
        there.
        """
        known = self._by_pool.get(pool)
        if known is None:
            wanted, parts = self._units[self._request, pool, None], self._parts[self._request, pool, None]
            size, needed = np.where(parts > 0, parts, WHOLE)[:, None], np.where(parts > 0, 1, wanted)
            known = self._by_pool[pool] = (size, needed, wanted >= 0)
        return known


def _scarcity(fleet: Fleet, typical: Sequence[TypicalPod]) -> Floats:
    """Each kind's GPUs, spread over all free ones that would serve it; as shares, so that the queue's length has no
    effect.
    """
    wanted: Counter[GpuRequest] = Counter()
    for kind in typical:
        gpu = kind.pod.gpu
        if gpu is not None and not gpu.mig and not gpu.fraction_milli:
            wanted[gpu] += gpu.count * kind.weight
    is_whole = fleet.has_gpu & np.array([pool.flavor.sharing == "whole" for pool in fleet.pools], dtype=np.bool_)
    free = np.where(is_whole, fleet.size * fleet.free_share, 0.0)
    scarcity: Floats = np.zeros(len(fleet.pools))
    for gpu, count in wanted.items():
        serving = is_whole & (fleet.serving(gpu)[0] >= 0)
        supply = free[serving].sum()
        if supply:
            scarcity[serving] += count / wanted.total() * free.sum() / supply
    return scarcity


def _most_frequent(typical: Sequence[TypicalPod]) -> list[TypicalPod]:
    ranked = sorted(typical, key=lambda kind: -kind.weight)
    total = sum(kind.weight for kind in ranked)
    kept: list[TypicalPod] = []
    covered = 0
    for kind in ranked:
        if covered >= COVERED * total:
            break
        kept.append(kind)
        covered += kind.weight
    return kept


def _sizes(typical: Sequence[TypicalPod]) -> tuple[Kind, ...]:
    """The pods that could run on divisible devices, in the form that `leftovers` expects."""
    counted: Counter[tuple[int, int]] = Counter()
    for kind in typical:
        gpu = kind.pod.gpu
        if gpu is not None and not gpu.mig:
            size = -(-gpu.fraction_milli * STEPS // WHOLE) if gpu.fraction_milli else STEPS
            counted[size, 1 if gpu.fraction_milli else gpu.count] += kind.weight
    return tuple((size, devices, weight) for (size, devices), weight in sorted(counted.items()))


def _cores_per_gpu(typical: Sequence[TypicalPod]) -> float:
    """The millicores that all pods use per GPU that all pods use, including the cores of pods without a GPU."""
    cores = sum(kind.pod.cpu_millicores * kind.weight for kind in typical)
    gpus = sum(
        (kind.pod.gpu.fraction_milli or kind.pod.gpu.count * MILLI) * kind.weight for kind in typical if kind.pod.gpu
    )
    return max(1.0, cores * MILLI / gpus) if gpus else 1.0
