"""How fast the engine decides: `make bench-placement`.

100 clusters of 100 nodes of 8 GPUs; a queue of singles or of 8 x 8 gangs in 10 or 1,000 shapes. One process, one core,
no database. Every figure is of whole cycles: from the snapshot's values to the decisions, with arrays built the first
time. Rates count only placed jobs; a cycle also returns why every other job waits. All figures are of the strategy `balanced`;
a second table compares with it each strategy that users may choose, over 1,000 jobs of nearly as many shapes.

The last figure is of the gateway's own cycle on real PostgreSQL, in wall time: it reads queue and fleet, decides, takes
quota holds, stores attempts and commits.
"""

import argparse
import random
import time
import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import partial
from uuid import UUID

import numpy as np

from benchmarks.database_cycle import placed_per_second
from benchmarks.report import conditions, last_line
from placement.answers.expected_starts import expected_starts
from placement.cycle.cycle import decide, run
from placement.fleet.fleet import FleetIndex
from placement.values.decisions import Decisions
from placement.values.emissions import Emissions
from placement.values.model import (
    FleetCluster,
    FleetFlavor,
    FleetNode,
    GpuRequest,
    JobRequest,
    LimitState,
    PodSetRequest,
    Release,
    Snapshot,
    Topology,
)
from placement.values.nodes import NodeResources, fleet_node
from placement.values.strategies import STRATEGY_NAMES

CLUSTERS, NODES, GPUS = 100, 100, 8
MODELS = ("A100-80GB", "H100-80GB", "L40S-48GB", "MI300X-192GB")
TENANTS = tuple(f"org/department-{n // 10}/team-{n}" for n in range(40))
NOW = datetime(2026, 3, 1, tzinfo=UTC)
DATABASE_JOBS = 5_000
STRATEGY = "balanced"
COMPARED, REPEATS = 1_000, 3
TARGETS = {
    "singles_per_second": 20_000,
    "gangs_per_second": 2_000,
    "cycle_p99_ms": 1_000,
    "choice_p99_ms": 5,
    "with_database_per_second": 2_000,
    "expected_starts_ms": 2_000,
    "slowest_strategy_ratio": 3,
}


def fleet(rng: random.Random) -> tuple[FleetCluster, ...]:
    """Empty clusters, two GPU models each, ten nodes to a rack, priced at random."""
    return tuple(_cluster(number, rng) for number in range(CLUSTERS))


def _cluster(number: int, rng: random.Random) -> FleetCluster:
    flavors = [
        FleetFlavor(
            model, "nvidia", model, 81920, "whole", "on_demand", Decimal(rng.randint(80, 400)) / 100,
            emissions=Emissions(Decimal(17 * (number % 29) + 5), Decimal("1.5"), Decimal("0.2")),
        )
        for model in rng.sample(MODELS, 2)
    ]  # fmt: skip
    nodes = []
    for n in range(NODES):
        name = flavors[n * 2 // NODES].name
        total = NodeResources(pods=110, cpu_millicores=192_000, memory_mib=2_097_152, units={name: GPUS})
        domain = (f"zone-{n // 50}", f"block-{n // 50}", f"rack-{n // 10}")
        nodes.append(fleet_node(f"{name}-{n}", total, domain=domain))
    return FleetCluster(
        UUID(int=number),
        f"cluster-{number}",
        "org",
        "eu-1",
        "ready",
        {flavor.name: flavor for flavor in flavors},
        tuple(nodes),
    )


def limits() -> tuple[LimitState, ...]:
    """Two limits on every tenant of three levels: each job is checked against about six."""
    paths = sorted({"/".join(path.split("/")[:depth]) for path in TENANTS for depth in (1, 2, 3)})
    return tuple(
        LimitState(UUID(int=2 * n + k), path, resource, (), 10**12, 0)
        for n, path in enumerate(paths)
        for k, resource in enumerate(("gpu", "cpu"))
    )


def queue(length: int, shapes: int, kind: str, rng: random.Random) -> tuple[JobRequest, ...]:
    """`length` jobs, each of one of `shapes` shapes and one of 40 tenants."""
    made = [_shape(number, kind, rng) for number in range(shapes)]
    return tuple(_jobs(length, made, rng))


def _shape(number: int, kind: str, rng: random.Random) -> tuple[str, tuple[PodSetRequest, ...]]:
    models = tuple(rng.sample(MODELS, rng.choice((0, 1, 2))))
    gpus = GPUS if kind == "gangs" else rng.choice((1, 1, 1, 1, 2, 4))
    pods = PodSetRequest("worker", 8 if kind == "gangs" else 1, 1000 + number, 4096 + number, GpuRequest(gpus, models))
    return f"{kind}-{number}", (pods,)


def _jobs(length: int, shapes: list[tuple[str, tuple[PodSetRequest, ...]]], rng: random.Random) -> Iterator[JobRequest]:
    topology = Topology("rack", "preferred")
    for number in range(length):
        shape, pod_sets = rng.choice(shapes)
        yield JobRequest(
            id=UUID(int=number), tenant_path=rng.choice(TENANTS), shape=shape, pod_sets=pod_sets, topology=topology,
            strategy=STRATEGY,
        )  # fmt: skip


@dataclass(frozen=True)
class Row:
    kind: str
    queued: int
    shapes: int
    placed: int
    seconds: float

    @property
    def placed_per_second(self) -> float:
        return self.placed / self.seconds

    def __str__(self) -> str:
        decided = self.queued / self.seconds
        return (
            f"{self.kind:8} {self.queued:>9,} {self.shapes:>6,} {self.placed:>8,} {self.seconds * 1000:>10,.0f} ms"
            f" {decided:>12,.0f} /s {self.placed_per_second:>12,.0f} /s"
        )


def timed(work: Callable[[], Decisions]) -> tuple[float, Decisions]:
    started = time.process_time()
    decisions = work()
    return time.process_time() - started, decisions


def growth(kind: str, queued: int, shapes: int) -> Row:
    rng = random.Random(7)
    snapshot = Snapshot(NOW, fleet(rng), queue(queued, shapes, kind, rng), limits())
    seconds, decisions = timed(partial(decide, snapshot))
    assert len(decisions.placements) + len(decisions.waits) == queued
    return Row(kind, queued, shapes, len(decisions.placements), seconds)


def strategy_ratios() -> list[float]:
    """The CPU time of a cycle over 1,000 jobs of nearly as many shapes, relative to `balanced`: for each strategy, over empty
    nodes and over nodes of which some part is in use.

    Each is the least of three; the strategies take turns, so that what else the host does affects all of them.
    """
    rng = random.Random(7)
    empty, book, ratios = fleet(rng), limits(), []
    busy = tuple(_partly_used(cluster, rng) for cluster in empty)
    for kind, nodes, clusters in (("singles", "empty", empty), ("gangs", "empty", empty), ("singles", "busy", busy)):
        jobs = queue(COMPARED, COMPARED, kind, rng)
        times: dict[str, list[float]] = {strategy: [] for strategy in STRATEGY_NAMES}
        for _ in range(REPEATS):
            for strategy in STRATEGY_NAMES:
                asked = tuple(replace(job, strategy=strategy) for job in jobs)
                times[strategy].append(timed(partial(decide, Snapshot(NOW, clusters, asked, book)))[0])
        for strategy, each in times.items():
            ratios.append(min(each) / min(times[STRATEGY]))
            print(f"{kind:8} {nodes:8} {strategy:10} {min(each) * 1000:>10,.0f} ms {ratios[-1]:>8.2f} x", flush=True)
    return ratios


def _partly_used(cluster: FleetCluster, rng: random.Random) -> FleetCluster:
    """The cluster with any number of GPUs taken on each node, and cores with them."""
    nodes = []
    for node in cluster.nodes:
        free = rng.randint(0, GPUS)
        cores = min(node.cpu_millicores, free * 24_000 + rng.randint(0, 24_000))
        nodes.append(replace(node, free=dict.fromkeys(node.free, free), free_cpu_millicores=cores))
    return replace(cluster, nodes=tuple(nodes))


def cycle_times(repeats: int) -> list[float]:
    """Whole cycles of a full fleet: 100,000 singles of 1,000 shapes queued, a few nodes in each tenth cluster free.

    As in the running product the index is kept, and the clusters where nothing happened are the identical objects.
    """
    rng = random.Random(7)
    busy = tuple(_with_free(cluster, {}) for cluster in fleet(rng))
    jobs, book, index = queue(100_000, 1000, "singles", rng), limits(), FleetIndex()
    decide(Snapshot(NOW, busy, jobs, book), index)
    times = []
    for _ in range(repeats):
        changed = set(rng.sample(range(CLUSTERS), CLUSTERS // 10))
        clusters = tuple(
            _with_free(cluster, {rng.randrange(NODES): rng.randint(1, GPUS) for _ in range(3)})
            if n in changed
            else cluster
            for n, cluster in enumerate(busy)
        )
        snapshot = Snapshot(NOW, clusters, jobs, book)
        times.append(timed(partial(decide, snapshot, index))[0])
    return times


def _with_free(cluster: FleetCluster, free: dict[int, int]) -> FleetCluster:
    """The cluster with all GPUs taken, but for some on some nodes."""
    nodes = tuple(
        replace(node, free={flavor: free.get(n, 0) for flavor in node.free}) for n, node in enumerate(cluster.nodes)
    )
    return replace(cluster, nodes=nodes)


def choice_times(repeats: int) -> list[float]:
    """One job with a known fleet: the time from its arrival to its cluster, quota included."""
    rng = random.Random(7)
    clusters, index, book = fleet(rng), FleetIndex(), limits()
    jobs = queue(repeats, 1000, "singles", rng)
    decide(Snapshot(NOW, clusters, jobs[:1], book), index)
    return [timed(partial(decide, Snapshot(NOW, clusters, (job,), book), index))[0] for job in jobs]


def expected_starts_ms() -> float:
    """The longest look ahead over a full fleet and 100,000 queued: a whole cycle, and when its waiting jobs may start.

    Every node of the fleet comes free within twelve hours; for singles, for gangs, and in halves that hold no gang.
    """
    rng = random.Random(7)
    busy = tuple(_with_free(cluster, {}) for cluster in fleet(rng))
    times = []
    for kind, units in (("singles", GPUS), ("gangs", GPUS), ("gangs", GPUS // 2)):
        jobs = tuple(replace(job, estimated_seconds=3600, submitted_at=NOW) for job in queue(100_000, 1000, kind, rng))
        releases = tuple(_release(cluster, node, units, rng) for cluster in busy for node in cluster.nodes)
        snapshot = Snapshot(NOW, busy, jobs, limits(), releases=releases)
        times.append(timed(partial(_expected, snapshot))[0])
    return 1000 * max(times)


def _release(cluster: FleetCluster, node: FleetNode, units: int, rng: random.Random) -> Release:
    at = NOW + timedelta(minutes=rng.randint(1, 720))
    return Release(at, cluster.id, next(iter(node.free)), units, 1000, 1024, {node.name: 1})


def _expected(snapshot: Snapshot) -> Decisions:
    decisions, cycle = run(snapshot)
    expected_starts(cycle, snapshot, decisions.waits)
    return decisions


def peak_mib() -> float:
    """Memory the engine allocates in a cycle over 100,000 queued singles of 1,000 shapes, decisions included."""
    rng = random.Random(7)
    snapshot = Snapshot(NOW, fleet(rng), queue(100_000, 1000, "singles", rng), limits())
    tracemalloc.start()
    decide(snapshot)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return peak / 2**20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="leave out a million queued jobs and the memory figure")
    arguments = parser.parse_args()
    conditions(
        fleet=f"{CLUSTERS} clusters x {NODES} nodes x {GPUS} GPUs",
        tenants=len(TENANTS),
        limits="2 a tenant, on 3 levels",
        strategy=STRATEGY,
        numpy=np.__version__,
        times="CPU time of the one process, which uses one core; with database: wall time",
    )
    print(f"{'kind':8} {'queued':>9} {'shapes':>6} {'placed':>8} {'cycle':>13} {'decided':>15} {'placed':>15}")
    rows = []
    for kind in ("singles", "gangs"):
        for shapes in (10, 1000):
            for queued in (1_000, 10_000, 100_000, 1_000_000)[: 3 if arguments.quick else 4]:
                rows.append(growth(kind, queued, shapes))
                print(rows[-1], flush=True)
    print(f"\n{'kind':8} {'nodes':8} {'strategy':10} {'cycle':>13} {'to ' + STRATEGY:>11}")
    slowest = max(strategy_ratios())
    figures = {
        "slowest_strategy_ratio": round(slowest, 2),
        "singles_per_second": round(
            min(row.placed_per_second for row in rows if row.kind == "singles" and row.queued == 100_000)
        ),
        "gangs_per_second": round(
            min(row.placed_per_second for row in rows if row.kind == "gangs" and row.queued == 1_000)
        ),
        "cycle_p99_ms": round(1000 * float(np.percentile(cycle_times(20), 99)), 1),
        "choice_p99_ms": round(1000 * float(np.percentile(choice_times(2_000), 99)), 3),
        "with_database_per_second": round(
            placed_per_second(clusters=CLUSTERS, nodes=NODES, gpus=GPUS, tenants=TENANTS, jobs=DATABASE_JOBS)
        ),
        "expected_starts_ms": round(expected_starts_ms(), 1),
        "peak_mib": None if arguments.quick else round(peak_mib(), 1),
    }
    print(f"\ntargets: {TARGETS}")
    last_line(figures)


if __name__ == "__main__":
    main()
