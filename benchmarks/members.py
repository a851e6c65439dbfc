"""A plain model of nodes with divisible GPUs and of the schedulers that clusters run: the yardstick of `benchmarks.openb`.

Nothing of the engine is used here. Nodes keep the run's fixed random order; every tie goes to the first in it.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np

from .traces import WHOLE, TraceNode, TracePod

COVERED = 0.95
PODS_PER_NODE = 1001
SPREAD_BASE = 2**20


class Fleet:
    """Nodes and what is free on them."""

    def __init__(self, nodes: Sequence[TraceNode], cluster_of_node: np.ndarray, typical: Sequence[TracePod]) -> None:
        models = sorted({node.model for node in nodes})
        self.model_bits = {model: 1 << number for number, model in enumerate(models)}
        self.cpu_size = np.array([node.cpu_milli for node in nodes])
        self.memory_size = np.array([node.memory_mib for node in nodes])
        self.cpu, self.memory = self.cpu_size.copy(), self.memory_size.copy()
        self.gpus = np.array([node.gpus for node in nodes])
        self.model = np.array([self.model_bits[node.model] for node in nodes])
        self.devices = np.where(np.arange(self.gpus.max()) < self.gpus[:, None], WHOLE, 0)
        self.pods = np.full(len(nodes), PODS_PER_NODE)
        self.cluster = cluster_of_node
        self.capacity = int(self.gpus.sum()) * WHOLE
        self._typical = _Typical(typical, self)
        self.changes: list[int] = []

    def bits(self, pod: TracePod) -> int:
        return sum(self.model_bits.get(model, 0) for model in pod.models) if pod.models else ~0

    def feasible(self, pod: TracePod) -> np.ndarray:
        fits = (self.cpu >= pod.cpu_milli) & (self.memory >= pod.memory_mib) & (self.pods > 0)
        if pod.gpus:
            enough = (self.devices >= pod.gpu_milli).sum(axis=1) >= pod.gpus
            fits &= enough & ((self.model & self.bits(pod)) != 0)
        return fits

    def tightest(self, node: int, pod: TracePod) -> list[int]:
        """The devices the pod takes: the first whole ones, or the tightest that has the part."""
        devices = self.devices[node]
        if pod.gpu_milli == WHOLE:
            free: list[int] = np.flatnonzero(devices == WHOLE)[: pod.gpus].tolist()
            return free
        if not pod.gpus:
            return []
        return [int(np.where(devices >= pod.gpu_milli, devices, WHOLE + 1).argmin())]

    def place(self, node: int, pod: TracePod, devices: Sequence[int]) -> None:
        assert len(devices) == pod.gpus
        assert self.cpu[node] >= pod.cpu_milli
        assert self.memory[node] >= pod.memory_mib
        assert self.pods[node]
        assert all(self.devices[node, device] >= pod.gpu_milli for device in devices)
        self.devices[node, list(devices)] -= pod.gpu_milli
        self.cpu[node] -= pod.cpu_milli
        self.memory[node] -= pod.memory_mib
        self.pods[node] -= 1
        self.changes.append(node)

    def fragmented(self, nodes: np.ndarray, devices: np.ndarray, cpu: np.ndarray) -> np.ndarray:
        """F of the published measure, in milli-GPU, for `nodes` as they would be with these devices and cores free."""
        return self._typical.fragmented(self.model[nodes], devices, cpu)


class _Typical:
    """The most frequent kinds of pods."""

    def __init__(self, pods: Sequence[TracePod], fleet: Fleet) -> None:
        counted = Counter((pod.cpu_milli, pod.gpu_milli, pod.gpus, fleet.bits(pod)) for pod in pods)
        kept, covered = [], 0
        for kind, count in counted.most_common():
            if covered >= COVERED * len(pods):
                break
            kept.append((*kind, count))
            covered += count
        self.cpu, self.milli, self.gpus, self.bits, counts = np.array(kept).T
        self.weight = counts / covered

    def fragmented(self, model: np.ndarray, devices: np.ndarray, cpu: np.ndarray) -> np.ndarray:
        large = devices[:, None, :] >= np.maximum(self.milli, 1)[:, None]
        fits = (large.sum(axis=2) >= self.gpus) & (cpu[:, None] >= self.cpu) & (self.gpus > 0)
        fits &= (model[:, None] & self.bits) != 0
        small = np.where(large, 0, devices[:, None, :]).sum(axis=2)
        stranded: np.ndarray = np.where(fits, small, devices.sum(axis=1)[:, None]) @ self.weight
        return stranded


Choice: TypeAlias = tuple[int, list[int]]
"""A node and the devices taken there."""
Scheduler: TypeAlias = Callable[[TracePod, np.ndarray], Choice]
"""Chooses among the nodes of a mask, which is not empty."""


def random_scheduler(fleet: Fleet, rng: np.random.Generator) -> Scheduler:
    def choose(pod: TracePod, feasible: np.ndarray) -> Choice:
        node = int(rng.choice(np.flatnonzero(feasible)))
        fitting = np.flatnonzero(fleet.devices[node] >= pod.gpu_milli)
        if pod.gpus == 1 and pod.gpu_milli < WHOLE:
            return node, [int(rng.choice(fitting))]
        return node, fleet.tightest(node, pod)

    return choose


def bestfit_scheduler(fleet: Fleet) -> Scheduler:
    def choose(pod: TracePod, feasible: np.ndarray) -> Choice:
        nodes = np.flatnonzero(feasible)
        cpu_left = (fleet.cpu[nodes] - pod.cpu_milli) / 128_000
        gpu_left = (fleet.devices[nodes].sum(axis=1) - pod.asked_milli) / 8_000
        score = np.trunc(100 * (1 - cpu_left / 2 - gpu_left / 2))
        low, high = score.min(), score.max()
        if high > low:
            score = np.trunc((score - low) * 100 / (high - low))
        node = int(nodes[score.argmax()])
        return node, fleet.tightest(node, pod)

    return choose


def spread_score(fleet: Fleet, pod: TracePod) -> np.ndarray:
    """kube-scheduler's LeastAllocated over CPU and memory, 0 to 100."""
    cpu = (fleet.cpu - pod.cpu_milli) * 100 // np.maximum(fleet.cpu_size, 1)
    memory = (fleet.memory - pod.memory_mib) * 100 // np.maximum(fleet.memory_size, 1)
    score: np.ndarray = (cpu + memory) // 2
    return score


def spread_scheduler(fleet: Fleet) -> Scheduler:
    def choose(pod: TracePod, feasible: np.ndarray) -> Choice:
        node = int(np.where(feasible, spread_score(fleet, pod), -SPREAD_BASE).argmax())
        return node, fleet.tightest(node, pod)

    return choose


class FgdScheduler:
    """FGD: the node, and for a part of a GPU the device, whose fragmentation grows least, in 101 steps of a sigmoid."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._scores: dict[TracePod, tuple[np.ndarray, np.ndarray, int]] = {}

    def __call__(self, pod: TracePod, feasible: np.ndarray) -> Choice:
        fleet = self._fleet
        size = len(fleet.cpu)
        score, device, seen = self._scores.get(pod) or (np.full(size, -1), np.zeros(size, dtype=int), None)
        stale = np.arange(size) if seen is None else np.unique(np.array(fleet.changes[seen:], dtype=int))
        stale = stale[feasible[stale]]
        if stale.size:
            score[stale], device[stale] = self._score(pod, stale)
        self._scores[pod] = (score, device, len(fleet.changes))
        node = int(np.where(feasible, score, -1).argmax())
        if pod.gpus == 1 and pod.gpu_milli < WHOLE:
            return node, [int(device[node])]
        return node, fleet.tightest(node, pod)

    def _score(self, pod: TracePod, nodes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        fleet = self._fleet
        devices, cpu = fleet.devices[nodes], fleet.cpu[nodes] - pod.cpu_milli
        before = fleet.fragmented(nodes, devices, fleet.cpu[nodes])
        if pod.gpus == 1 and pod.gpu_milli < WHOLE:
            tried = [self._after_part(pod, nodes, devices, cpu, device) for device in range(devices.shape[1])]
            after = np.stack(tried, axis=1)
            best = after.argmin(axis=1)
            return _steps(before - after[np.arange(len(nodes)), best]), best
        whole = devices == WHOLE
        left = np.where(whole & (np.cumsum(whole, axis=1) <= pod.gpus), 0, devices) if pod.gpus else devices
        return _steps(before - fleet.fragmented(nodes, left, cpu)), np.zeros(len(nodes), dtype=int)

    def _after_part(
        self, pod: TracePod, nodes: np.ndarray, devices: np.ndarray, cpu: np.ndarray, device: int
    ) -> np.ndarray:
        fits = devices[:, device] >= pod.gpu_milli
        left = devices.copy()
        left[:, device] -= np.where(fits, pod.gpu_milli, 0)
        return np.where(fits, self._fleet.fragmented(nodes, left, cpu), np.inf)


def _steps(gain: np.ndarray) -> np.ndarray:
    return np.trunc(100 / (1 + np.exp(-gain / WHOLE))).astype(int)


def emptiest_first(fleet: Fleet, clusters: int, member: Scheduler) -> Scheduler:
    """A gateway that sends each pod to the cluster with the largest free share of GPUs where it fits."""
    size = np.bincount(fleet.cluster, weights=fleet.gpus, minlength=clusters) * WHOLE

    def choose(pod: TracePod, feasible: np.ndarray) -> Choice:
        free = np.bincount(fleet.cluster, weights=fleet.devices.sum(axis=1), minlength=clusters) / np.maximum(size, 1)
        fits = np.bincount(fleet.cluster, weights=feasible, minlength=clusters) > 0
        return member(pod, feasible & (fleet.cluster == int(np.where(fits, free, -1).argmax())))

    return choose
