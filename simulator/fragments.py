"""The fragmentation measure of Weng et al., "Beware of Fragmentation" (USENIX ATC 2023).

It counts idle GPUs that the usual pods could not use where they are.
"""

from collections import Counter
from collections.abc import Sequence

import numpy as np

from placement.fleet.pools import Floats, Ints

from .values import WHOLE, TraceJob
from .world import Layout, Shelves

COVERED = 0.95
"""The share of all pods that the most frequent kinds together reach."""


class Fragments:
    """Measures nodes against the pods of a trace."""

    def __init__(self, layout: Layout, jobs: Sequence[TraceJob]) -> None:
        counted: Counter[tuple[int, int, int, tuple[str, ...]]] = Counter()
        for job in jobs:
            counted[job.cpu_millicores, job.gpu_milli if job.gpus else 0, job.gpus, job.models] += job.pods
        kept: list[tuple[int, int, int, tuple[str, ...]]] = []
        covered, total = 0, sum(counted.values())
        for kind, count in counted.most_common():
            if covered >= COVERED * total:
                break
            kept.append(kind)
            covered += count
        shape = (len(kept), 1)
        self._cpu: Ints = np.array([kind[0] for kind in kept], dtype=np.int64).reshape(shape)
        self._milli: Ints = np.array([kind[1] for kind in kept], dtype=np.int64).reshape(shape)
        self._gpus: Ints = np.array([kind[2] for kind in kept], dtype=np.int64).reshape(shape)
        self._suits = np.array([layout.suiting(kind[3]) for kind in kept], dtype=np.bool_)
        self._weight: Floats = np.array([counted[kind] / max(1, covered) for kind in kept])

    def of(self, nodes: Ints, devices: Ints, cpu: Ints) -> Floats:
        """Per node (a row of `devices` each) the unusable idle thousandths, if these devices and
        cores are free there.
        """
        if not len(self._weight):
            return np.zeros(len(nodes))
        large = devices[None, :, :] >= np.maximum(self._milli, 1)[:, :, None]
        fits = (large.sum(axis=2) >= self._gpus) & (cpu >= self._cpu) & (self._gpus > 0) & self._suits[:, nodes]
        small = np.where(large, 0, devices[None, :, :]).sum(axis=2)
        lost: Floats = self._weight @ np.where(fits, small, devices.sum(axis=1))
        return lost

    def share(self, shelves: Shelves) -> float:
        """The part of all the fleet's GPUs that is idle and unusable now."""
        up = np.flatnonzero(~shelves.is_down)
        lost = float(self.of(up, shelves.devices[up], shelves.cpu[up]).sum())
        return lost / WHOLE / max(1, shelves.layout.capacity)
