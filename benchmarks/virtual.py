"""Clusters in virtual time for `benchmarks.replay`: whole-GPU nodes on which gangs start, end and are hit by failures."""

import heapq
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import TypeAlias
from uuid import UUID

from federation.engine.cycle import decide
from federation.engine.fleet import FleetIndex
from federation.engine.model import (
    FleetCluster,
    FleetFlavor,
    FleetNode,
    GpuRequest,
    JobRequest,
    PodSetRequest,
    Snapshot,
    Topology,
)

GPUS = 8
CORES_PER_GPU = 12_000
MEMORY_PER_GPU = 131_072
EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
MODEL = "A100-80GB"

Nodes: TypeAlias = dict[tuple[int, int], int]
"""Pods by (cluster, node)."""


@dataclass(slots=True)
class VirtualJob:
    """A gang of `pods` pods of `gpus` GPUs each that runs for `seconds` once it has started."""

    number: int
    submitted: float
    seconds: float
    pods: int
    gpus: int
    started: float | None = None
    first_started: float | None = None
    left: float = 0.0
    """Seconds of work not yet safe in a checkpoint."""
    nodes: Nodes = field(default_factory=dict)

    @property
    def size(self) -> int:
        return self.pods * self.gpus


@dataclass(frozen=True, slots=True)
class VirtualCluster:
    """`racks` has the (block, rack) of each node."""

    name: str
    price: Decimal
    racks: Sequence[tuple[str, str]]


class Fleet:
    """What is free where, and the same as the engine's values."""

    def __init__(self, clusters: Sequence[VirtualCluster]) -> None:
        self.clusters = clusters
        self.free = [[GPUS] * len(cluster.racks) for cluster in clusters]
        self.is_down: set[tuple[int, int]] = set()
        self._values: list[FleetCluster | None] = [None] * len(clusters)
        self._nodes: list[list[FleetNode | None]] = [[None] * len(cluster.racks) for cluster in clusters]

    @property
    def size(self) -> int:
        return GPUS * sum(len(cluster.racks) for cluster in self.clusters)

    def change(self, cluster: int, node: int, gpus: int) -> None:
        self.free[cluster][node] += gpus
        assert 0 <= self.free[cluster][node] <= GPUS
        self.touch(cluster, node)

    def touch(self, cluster: int, node: int) -> None:
        self._values[cluster] = self._nodes[cluster][node] = None

    def values(self) -> tuple[FleetCluster, ...]:
        """The engine's view; clusters that did not change are the identical objects."""
        return tuple(self._value(number) for number in range(len(self.clusters)))

    def _value(self, number: int) -> FleetCluster:
        value = self._values[number]
        if value is None:
            one = self.clusters[number]
            flavor = FleetFlavor(MODEL, "nvidia", MODEL, 81_920, "whole", "on_demand", one.price)
            nodes = tuple(self._node(number, node) for node in range(len(one.racks)))
            value = FleetCluster(UUID(int=number), one.name, "org", "", "ready", {MODEL: flavor}, nodes)
            self._values[number] = value
        return value

    def _node(self, cluster: int, number: int) -> FleetNode:
        node = self._nodes[cluster][number]
        if node is None:
            free = self.free[cluster][number]
            domain = ("zone", *self.clusters[cluster].racks[number])
            node = FleetNode(
                str(number), domain, {MODEL: GPUS}, {MODEL: free}, GPUS * CORES_PER_GPU, GPUS * MEMORY_PER_GPU, 110,
                free * CORES_PER_GPU, free * MEMORY_PER_GPU, 110, (cluster, number) not in self.is_down,
            )  # fmt: skip
            self._nodes[cluster][number] = node
        return node


Policy: TypeAlias = Callable[[Sequence[VirtualJob], Fleet, float], list[tuple[VirtualJob, Nodes]]]
"""Starts jobs of the queue, which is in order of submission, on what is free at an instant."""


def engine_policy(strategy: str = "balanced", patience_seconds: int = 600) -> Policy:
    """The product's own cycle."""
    index = FleetIndex()

    def place(queue: Sequence[VirtualJob], fleet: Fleet, now: float) -> list[tuple[VirtualJob, Nodes]]:
        requests = tuple(_request(job, strategy) for job in queue)
        snapshot = Snapshot(EPOCH + timedelta(seconds=now), fleet.values(), requests, patience_seconds=patience_seconds)
        by_number = {job.number: job for job in queue}
        return [
            (
                by_number[placement.job_id.int],
                {(placement.cluster_id.int, int(node)): pods for node, pods in placement.pod_sets[0].nodes.items()},
            )
            for placement in decide(snapshot, index).placements
        ]

    return place


def _request(job: VirtualJob, strategy: str) -> JobRequest:
    pod_set = PodSetRequest(
        "worker", job.pods, job.gpus * CORES_PER_GPU // 2, job.gpus * MEMORY_PER_GPU // 2, GpuRequest(job.gpus)
    )
    return JobRequest(
        id=UUID(int=job.number),
        tenant_path="org",
        shape=f"{job.pods}x{job.gpus}",
        pod_sets=(pod_set,),
        topology=Topology("rack", "preferred"),
        strategy=strategy,
        submitted_at=EPOCH + timedelta(seconds=job.submitted),
    )


def plain_policy(rank: Callable[[Fleet, int], object], *, is_blocking: bool) -> Policy:
    """A gateway that sends each job to the first cluster by `rank` that holds it; members spread pods over nodes.

    A blocking one never lets a job overtake another.
    """

    def place(queue: Sequence[VirtualJob], fleet: Fleet, now: float) -> list[tuple[VirtualJob, Nodes]]:
        del now
        free = [list(nodes) for nodes in fleet.free]
        for cluster, node in fleet.is_down:
            free[cluster][node] = 0
        trial = replace_free(fleet, free)
        started: list[tuple[VirtualJob, Nodes]] = []
        failed: set[tuple[int, int]] = set()
        for job in queue:
            kind = (job.pods, job.gpus)
            nodes = None if kind in failed else _spread(job, trial, rank)
            if nodes is not None:
                started.append((job, nodes))
                continue
            failed.add(kind)
            if is_blocking:
                break
        return started

    return place


def replace_free(fleet: Fleet, free: list[list[int]]) -> Fleet:
    """A fleet to try things out on."""
    trial = object.__new__(Fleet)
    trial.clusters, trial.free, trial.is_down = fleet.clusters, free, fleet.is_down
    return trial


def _spread(job: VirtualJob, fleet: Fleet, rank: Callable[[Fleet, int], object]) -> Nodes | None:
    for cluster in sorted(range(len(fleet.clusters)), key=lambda number: (rank(fleet, number), number)):
        free = fleet.free[cluster]
        if sum(gpus // job.gpus for gpus in free) < job.pods:
            continue
        nodes: Nodes = {}
        for _ in range(job.pods):
            node = max(range(len(free)), key=lambda number: (free[number], -number))
            free[node] -= job.gpus
            nodes[cluster, node] = nodes.get((cluster, node), 0) + 1
        return nodes
    return None


@dataclass(frozen=True, slots=True)
class Failures:
    """A node fails every so often, in turn by a fixed stride, and comes back repaired; jobs on it start again from their
    last checkpoint."""

    every_seconds: float
    repair_seconds: float
    checkpoint_seconds: float


@dataclass(slots=True)
class Outcome:
    """What came of a replay. GPU-seconds count between `since` and `until` only; waits are of jobs submitted then."""

    waits: list[float] = field(default_factory=list)
    busy: float = 0.0
    lost: float = 0.0
    cost: Decimal = Decimal(0)
    racks_used: list[int] = field(default_factory=list)
    capacity: float = 0.0


class Replay:
    """Runs jobs through a policy."""

    def __init__(
        self, jobs: Sequence[VirtualJob], fleet: Fleet, policy: Policy, window: tuple[float, float],
        failures: Failures | None = None,
    ) -> None:  # fmt: skip
        self._fleet, self._policy, self._window, self._failures = fleet, policy, window, failures
        self._events: list[tuple[float, int, str, object]] = []
        self._queue: list[VirtualJob] = []
        self._count = 0
        self._hits = 0
        self._running: dict[int, VirtualJob] = {}
        self.outcome = Outcome(capacity=fleet.size * (window[1] - window[0]))
        for job in jobs:
            self._at(job.submitted, "submit", replace(job, left=job.seconds, nodes={}))
        if failures is not None:
            self._at(window[0] + failures.every_seconds, "fail", None)

    def _at(self, instant: float, kind: str, what: object) -> None:
        self._count += 1
        heapq.heappush(self._events, (instant, self._count, kind, what))

    def run(self) -> Outcome:
        until = self._window[1]
        while self._events and (self._failures is None or self._events[0][0] <= until):
            now = self._events[0][0]
            while self._events and self._events[0][0] == now:
                _, _, kind, what = heapq.heappop(self._events)
                getattr(self, f"_{kind}")(what, now)
            self._start(now)
        for job in list(self._running.values()):
            self._stop(job, until)
        return self.outcome

    def _start(self, now: float) -> None:
        for job, nodes in self._policy(self._queue, self._fleet, now):
            self._queue.remove(job)
            for (cluster, node), pods in nodes.items():
                self._fleet.change(cluster, node, -pods * job.gpus)
            job.nodes, job.started = nodes, now
            if job.first_started is None:
                job.first_started = now
                if self._window[0] <= job.submitted <= self._window[1]:
                    self.outcome.waits.append(now - job.submitted)
            if job.pods > 1:
                self.outcome.racks_used.append(len({self._fleet.clusters[c].racks[n] for c, n in nodes}))
            self._running[job.number] = job
            self._at(now + job.left, "end", (job, now))

    def _submit(self, job: VirtualJob, now: float) -> None:
        del now
        self._queue.append(job)

    def _end(self, what: tuple[VirtualJob, float], now: float) -> None:
        job, started = what
        if job.number in self._running and job.started == started:
            self._stop(job, now)

    def _stop(self, job: VirtualJob, now: float) -> None:
        """Counts what the job used and gives back its nodes."""
        assert job.started is not None
        since, until = self._window
        used = max(0.0, min(now, until) - max(job.started, since)) * job.size
        self.outcome.busy += used
        price = self._fleet.clusters[next(iter(job.nodes))[0]].price
        self.outcome.cost += price * Decimal(round((now - job.started) * job.size)) / 3600
        for (cluster, node), pods in job.nodes.items():
            self._fleet.change(cluster, node, pods * job.gpus)
        del self._running[job.number]

    def _fail(self, _: object, now: float) -> None:
        assert self._failures is not None
        self._hits += 1
        cluster = self._hits * 7 % len(self._fleet.clusters)
        node = self._hits * 131 % len(self._fleet.clusters[cluster].racks)
        self._at(now + self._failures.every_seconds, "fail", None)
        if (cluster, node) in self._fleet.is_down:
            return
        self._fleet.is_down.add((cluster, node))
        for job in [job for job in self._running.values() if (cluster, node) in job.nodes]:
            self._requeue(job, now)
        self._fleet.touch(cluster, node)
        self._at(now + self._failures.repair_seconds, "repair", (cluster, node))

    def _requeue(self, job: VirtualJob, now: float) -> None:
        assert self._failures is not None
        assert job.started is not None
        done = now - job.started
        kept = done // self._failures.checkpoint_seconds * self._failures.checkpoint_seconds
        self.outcome.lost += (done - kept) * job.size
        self._stop(job, now)
        job.left -= kept
        self._queue.insert(0, job)

    def _repair(self, what: tuple[int, int], now: float) -> None:
        del now
        self._fleet.is_down.discard(what)
        self._fleet.touch(*what)


def price_of(fleet: Fleet, cluster: int) -> Decimal:
    return fleet.clusters[cluster].price


def in_use(fleet: Fleet, cluster: int) -> float:
    free = fleet.free[cluster]
    return 1 - sum(free) / (GPUS * len(free))


BASELINES: Mapping[str, Policy] = {
    "fifo_first_fit": plain_policy(lambda _, cluster: cluster, is_blocking=True),
    "cheapest_first": plain_policy(price_of, is_blocking=False),
    "emptiest_first": plain_policy(in_use, is_blocking=False),
}
