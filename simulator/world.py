"""Nodes in virtual time: what is free on each, device by device. Independent of the engine."""

from collections.abc import Sequence

import numpy as np

from placement.fleet.pools import Floats, Ints, Mask

from .values import WHOLE, ClusterPlan, Machine, TraceJob


class Layout:
    """The constant properties of the nodes of all clusters, which are numbered in one sequence."""

    def __init__(self, plans: Sequence[ClusterPlan]) -> None:
        self.plans = tuple(plans)
        self.machines: tuple[Machine, ...] = tuple(machine for plan in plans for machine in plan.machines)
        sizes = [len(plan.machines) for plan in plans]
        self.first = np.cumsum([0, *sizes])
        self.cluster: Ints = np.repeat(np.arange(len(plans)), sizes).astype(np.int64)
        self.gpus: Ints = np.array([machine.gpus for machine in self.machines], dtype=np.int64)
        self.cpu: Ints = np.array([machine.cpu_millicores for machine in self.machines], dtype=np.int64)
        self.memory: Ints = np.array([machine.memory_mib for machine in self.machines], dtype=np.int64)
        self.pods: Ints = np.array([machine.pods for machine in self.machines], dtype=np.int64)
        self.most_gpus = int(self.gpus.max(initial=0))
        self.number = {
            (n, m.name): self.first[n] + i for n, plan in enumerate(plans) for i, m in enumerate(plan.machines)
        }
        self._models = {machine.model for machine in self.machines}
        self._suiting: dict[tuple[str, ...], Mask] = {}
        self.gpus_of_cluster: Ints = np.bincount(self.cluster, self.gpus, len(plans)).astype(np.int64)

    @property
    def capacity(self) -> int:
        """The total number of GPUs."""
        return int(self.gpus.sum())

    def slice(self, cluster: int) -> slice:
        """The numbers of a cluster's nodes."""
        return slice(int(self.first[cluster]), int(self.first[cluster + 1]))

    def suiting(self, models: tuple[str, ...]) -> Mask:
        """Per node whether its model is one of these; all nodes if none is named."""
        mask = self._suiting.get(models)
        if mask is None:
            allowed = [not models or machine.model in models for machine in self.machines]
            mask = self._suiting[models] = np.array(allowed, dtype=np.bool_)
        return mask


class Shelves:
    """What is free on the nodes: the real state, or a gateway's view of it."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.cpu, self.memory, self.pods = layout.cpu.copy(), layout.memory.copy(), layout.pods.copy()
        self.devices: Ints = np.where(np.arange(layout.most_gpus) < layout.gpus[:, None], WHOLE, 0).astype(np.int64)
        self.is_down: Mask = np.zeros(len(layout.machines), dtype=np.bool_)

    def copy_cluster(self, other: "Shelves", nodes: slice) -> None:
        """Copies the state of these nodes from the other."""
        for name in ("cpu", "memory", "pods", "devices", "is_down"):
            getattr(self, name)[nodes] = getattr(other, name)[nodes]

    def extract(self, nodes: slice) -> Ints:
        """The state of these nodes, a row each."""
        columns = (self.cpu, self.memory, self.pods, self.is_down)
        return np.column_stack([self.devices[nodes], *(column[nodes] for column in columns)])

    def room(self, job: TraceJob, nodes: slice) -> Ints:
        """The number of the job's pods that each of these nodes has room for now."""
        room: Ints = np.where(self.is_down[nodes], 0, self.pods[nodes])
        for asked, free in ((job.cpu_millicores, self.cpu), (job.memory_mib, self.memory)):
            if asked:
                room = np.minimum(room, free[nodes] // asked)
        if job.gpus:
            devices = self.devices[nodes]
            whole = job.gpu_milli == WHOLE
            free_devices = (
                (devices == WHOLE).sum(axis=1) // job.gpus if whole else (devices // job.gpu_milli).sum(axis=1)
            )
            room = np.minimum(room, free_devices)
            room = np.where(self.layout.suiting(job.models)[nodes], room, 0)
        return np.maximum(room, 0)

    def idle(self, nodes: slice) -> Floats:
        """Free GPUs of each node."""
        idle: Floats = self.devices[nodes].sum(axis=1) / WHOLE
        return idle

    def take(self, node: int, job: TraceJob, *, is_believed: bool = False) -> list[int]:
        """Takes one pod's devices on a node: the first free whole ones, or a part of the tightest device that has it.

        A gateway's view may go below zero; the real state may not.
        """
        self.cpu[node] -= job.cpu_millicores
        self.memory[node] -= job.memory_mib
        self.pods[node] -= 1
        devices = self.devices[node]
        if job.gpu_milli == WHOLE:
            taken: list[int] = np.flatnonzero(devices == WHOLE)[: job.gpus].tolist()
        else:
            taken = [int(np.where(devices >= job.gpu_milli, devices, WHOLE + 1).argmin())] if job.gpus else []
        devices[taken] -= job.gpu_milli
        if is_believed:
            np.maximum(devices, 0, out=devices)
        else:
            assert len(taken) == job.gpus
            assert devices.min(initial=0) >= 0
            assert min(self.cpu[node], self.memory[node], self.pods[node]) >= 0
        return taken

    def give_back(self, node: int, job: TraceJob, devices: Sequence[int]) -> None:
        """Undoes a `take`."""
        self.cpu[node] += job.cpu_millicores
        self.memory[node] += job.memory_mib
        self.pods[node] += 1
        self.devices[node, list(devices)] += job.gpu_milli
