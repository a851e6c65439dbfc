"""EASY backfill on several clusters, as a comparison with the engine.

Jobs start in the order of the queue, each on the cheapest cluster that holds it. The first that fits nowhere gets a
reservation: the earliest time at which it fits, by the expected ends of what runs, on the cluster where that is soonest,
and nodes there. A later job starts only if it does not delay that: on another cluster; or if it is expected to end by
then; or if the reserved job still fits on its nodes then, beside it (Mu'alem and Feitelson, IEEE TPDS 12(6), 2001). The
reservation is made again with each decision.

Pods are packed, and stay on the nodes that are named. Where no end is known that would let the first job fit, nothing can delay it,
and there is no reservation. In the reservation a part of a GPU counts as a whole one.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import chain

import numpy as np

from placement.fleet.pools import Ints

from .gateways import Choice, Known
from .members import settle
from .queues import RatioOrder
from .values import WHOLE, Member, TraceJob
from .world import Layout, Shelves

PICKS: Member = "pack"
"""How it picks nodes."""


@dataclass(frozen=True, slots=True)
class _Ends:
    """The pods on a cluster whose end is expected: the times, ascending, and in the same order each pod's node and size."""

    times: list[float]
    nodes: Ints
    sizes: Ints
    """GPUs, millicores, MiB and 1, a row each."""


@dataclass(frozen=True, slots=True)
class Reservation:
    """The cluster and the time of the first job that waits, and what is free then beside it."""

    cluster: int
    at: float
    then: Shelves


class EasyBackfill:
    """The gateway; without an order of the queue, it takes the queue as it comes."""

    def __init__(self, order: RatioOrder | None, name: str = "easy_backfill") -> None:
        self.name = name
        self._is_ordered = order is not None
        self._order = order or RatioOrder()
        self.reservation: Reservation | None = None
        """That of the last decision."""

    def choose(self, queue: Sequence[tuple[int, TraceJob]], known: Known, now: float) -> list[Choice]:
        """The jobs that start now."""
        ordered = self._order.ordered(queue, known, now) if self._is_ordered else list(queue)
        desk = Desk(known, self._order, now)
        self.reservation = None
        is_behind = False
        for number, job in ordered:
            if desk.start(number, job, self.reservation) or is_behind:
                continue
            is_behind = True
            self.reservation = desk.reserve(job)
        return desk.choices


class Desk:
    """One decision."""

    def __init__(self, known: Known, order: RatioOrder, now: float) -> None:
        self._known, self._order, self._now = known, order, now
        self._layout: Layout = known.layout
        self._trial = _copy(known.shelves)
        self._clusters = sorted(range(len(known.layout.plans)), key=lambda one: (_price(known, one), one))
        self._in_vain: dict[object, float] = {}
        """By kind of job, the earliest expected end with which it found no place."""
        self.choices: list[Choice] = []
        self._chosen: list[tuple[int, int, TraceJob, tuple[int, ...]]] = []

    def start(self, number: int, job: TraceJob, reservation: Reservation | None) -> bool:
        """Starts the job if it fits and delays nothing."""
        seconds = self._order.seconds(number, job, self._known)
        end = np.inf if seconds is None else self._now + seconds
        kind = (job.pods, job.gpus, job.gpu_milli, job.cpu_millicores, job.memory_mib, job.models)
        vain = self._in_vain.get(kind)
        if vain is not None and end >= vain:
            return False
        for cluster in self._clusters:
            is_late = reservation is not None and reservation.cluster == cluster and end > reservation.at
            nodes = self._place(job, cluster, reservation if is_late else None)
            if nodes is not None:
                self._take(number, job, cluster, nodes)
                if is_late and reservation is not None:
                    _fill(reservation.then, job, nodes)
                return True
        self._in_vain[kind] = -np.inf if reservation is None else end
        return False

    def _place(self, job: TraceJob, cluster: int, beside: Reservation | None) -> list[int] | None:
        """Nodes that hold the job now, and then if it must fit beside a reservation."""
        nodes = self._layout.slice(cluster)
        found = settle(self._trial, job, nodes, PICKS)
        if found is None or beside is None:
            return found
        return settle(_both(self._trial, beside.then, nodes), job, nodes, PICKS)

    def _take(self, number: int, job: TraceJob, cluster: int, nodes: list[int]) -> None:
        _fill(self._trial, job, nodes)
        self.choices.append(Choice(number, cluster, tuple(nodes), is_hinted=True, is_pinned=True))
        self._chosen.append((cluster, number, job, tuple(nodes)))

    def reserve(self, job: TraceJob) -> Reservation | None:
        """The earliest expected place of a job that fits nowhere now."""
        self._in_vain.clear()
        best: tuple[float, int, int, _Ends] | None = None
        for cluster in self._clusters:
            ends = self._ends(cluster)
            count = self._enough(job, cluster, ends, np.inf if best is None else best[0])
            if count is not None:
                best = ends.times[count - 1], cluster, count, ends
        if best is None:
            return None
        at, cluster, _, ends = best
        nodes = self._layout.slice(cluster)
        then = self._after(cluster, ends, sum(time <= at for time in ends.times))
        found = settle(then, job, nodes, PICKS)
        assert found is not None
        _fill(then, job, found)
        return Reservation(cluster, at, then)

    def _enough(self, job: TraceJob, cluster: int, ends: _Ends, before: float) -> int | None:
        """After how many ends, all before this time, the job fits; None if never."""
        low, high = 0, sum(time < before for time in ends.times)
        if not high or not self._fits(job, cluster, ends, high):
            return None
        while high - low > 1:
            middle = (low + high) // 2
            if self._fits(job, cluster, ends, middle):
                high = middle
            else:
                low = middle
        return high

    def _fits(self, job: TraceJob, cluster: int, ends: _Ends, count: int) -> bool:
        then = self._after(cluster, ends, count)
        return int(then.room(job, self._layout.slice(cluster)).sum()) >= job.pods

    def _ends(self, cluster: int) -> _Ends:
        """The expected ends on a cluster, those of jobs that start now included."""
        running = ((number, run.job, run.nodes, run.started) for number, run in self._known.running[cluster].items())
        starting = ((number, job, nodes, None) for on, number, job, nodes in self._chosen if on == cluster)
        found: list[tuple[float, int, TraceJob, tuple[int, ...]]] = []
        for number, job, nodes, started in chain(running, starting):
            end = self._order.end(number, job, started, self._known, self._now)
            if end is not None:
                found.append((end, number, job, nodes))
        found.sort(key=lambda one: one[:2])
        times = [end for end, _, _, nodes in found for _ in nodes]
        sizes = [(job.gpus, job.cpu_millicores, job.memory_mib, 1) for _, _, job, nodes in found for _ in nodes]
        places = [node for _, _, _, nodes in found for node in nodes]
        return _Ends(times, np.array(places, dtype=np.int64), np.array(sizes, dtype=np.int64).reshape(-1, 4))

    def _after(self, cluster: int, ends: _Ends, count: int) -> Shelves:
        """What is free on the cluster after the first of these ends. Its nodes count as they are on all others."""
        nodes, layout = self._layout.slice(cluster), self._layout
        then = _Slice(self._trial, nodes)
        size = nodes.stop - nodes.start
        freed = [
            np.bincount(ends.nodes[:count] - nodes.start, ends.sizes[:count, column], size).astype(np.int64)
            for column in range(4)
        ]
        whole = (self._trial.devices[nodes] == WHOLE).sum(axis=1)
        gpus = np.minimum(whole + freed[0], layout.gpus[nodes])
        then.devices[nodes] = np.where(np.arange(layout.most_gpus) < gpus[:, None], WHOLE, 0)
        then.cpu[nodes] = np.minimum(self._trial.cpu[nodes] + freed[1], layout.cpu[nodes])
        then.memory[nodes] = np.minimum(self._trial.memory[nodes] + freed[2], layout.memory[nodes])
        then.pods[nodes] = np.minimum(self._trial.pods[nodes] + freed[3], layout.pods[nodes])
        return then


class _Slice(Shelves):
    """A copy of the state of one cluster's nodes."""

    def __init__(self, other: Shelves, nodes: slice) -> None:
        super().__init__(other.layout)
        self.copy_cluster(other, nodes)


def _copy(shelves: Shelves) -> Shelves:
    return _Slice(shelves, slice(0, len(shelves.layout.machines)))


def _both(now: Shelves, then: Shelves, nodes: slice) -> Shelves:
    """What is free at both times. Devices of a node are alike, so only how much of each is free counts."""
    both = _Slice(now, nodes)
    for name in ("cpu", "memory", "pods"):
        getattr(both, name)[nodes] = np.minimum(getattr(now, name)[nodes], getattr(then, name)[nodes])
    both.devices[nodes] = np.minimum(np.sort(now.devices[nodes]), np.sort(then.devices[nodes]))
    return both


def _fill(shelves: Shelves, job: TraceJob, nodes: Sequence[int]) -> None:
    for node in nodes:
        shelves.take(node, job, is_believed=True)


def _price(known: Known, cluster: int) -> Decimal:
    return min(known.prices[cluster].values(), default=Decimal("Infinity"))
