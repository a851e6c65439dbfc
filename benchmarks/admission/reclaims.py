"""How long a cycle searches for victims: a gang of 64 nodes takes back quota on 1,000 nodes that borrowers fill."""

import time
from datetime import UTC, datetime, timedelta
from uuid import UUID

from benchmarks import report
from placement.cycle.cycle import run
from placement.preemption.plan import plan
from placement.values.limits import LimitState
from placement.values.model import (
    FleetCluster,
    FleetFlavor,
    FleetNode,
    GpuRequest,
    JobRequest,
    PodSetRequest,
    Snapshot,
)
from placement.values.nodes import NodeResources, fleet_node
from placement.values.preemption import Allowance, HeldPods, RunningJob

NODES, GANG, NODES_OF_A_BORROWER, NODES_OF_A_RACK = 1000, 64, 4, 20
GPUS = 8
MILLI = 1000
MODEL = "H100-80GB"
FLAVOR = FleetFlavor("h100", "nvidia", MODEL, 81_920, "whole", "on_demand")
NOW = datetime(2026, 1, 1, tzinfo=UTC)
ROUNDS = 5


def measure(scale: float) -> float:
    """Milliseconds of the search, the median of some rounds."""
    nodes = max(2 * NODES_OF_A_BORROWER, int(NODES * scale) // NODES_OF_A_BORROWER * NODES_OF_A_BORROWER)
    given = _world(nodes, max(1, int(GANG * scale)))
    decisions, final = run(given)
    times = []
    found = None
    for _ in range(ROUNDS):
        begun = time.perf_counter()
        found = plan(given, final, decisions.waits).decision
        times.append(1000 * (time.perf_counter() - begun))
    assert found is not None
    report.table([{"nodes": nodes, "borrowers": len(given.running), "victims": len(found.victims), "cost": found.cost}])
    return report.median(times)


def _world(nodes: int, gang: int) -> Snapshot:
    names = [f"n{number}" for number in range(nodes)]
    cluster = FleetCluster(UUID(int=1), "c1", "", "eu", "ready", {FLAVOR.name: FLAVOR}, tuple(map(_node, names)))
    borrowers = [
        _borrower(first, names[first : first + NODES_OF_A_BORROWER]) for first in range(0, nodes, NODES_OF_A_BORROWER)
    ]
    whole = nodes * GPUS * MILLI
    limits = (
        LimitState(UUID(int=1), "acme", "gpu", (), whole, whole, nominal=whole),
        LimitState(UUID(int=2), "acme/a", "gpu", (), whole, 0, nominal=gang * GPUS * MILLI, reclaims=True),
        LimitState(UUID(int=3), "acme/b", "gpu", (), whole, whole, nominal=whole - gang * GPUS * MILLI),
    )
    pods = PodSetRequest(name="main", count=gang, cpu_millicores=1000, memory_mib=1024, gpu=GpuRequest(GPUS))
    waiting = JobRequest(UUID(int=7), "acme/a", "gang", (pods,), submitted_at=NOW)
    return Snapshot(
        NOW, (cluster,), (waiting,), limits=limits, running=tuple(borrowers), allowance=Allowance(len(borrowers))
    )


def _node(name: str) -> FleetNode:
    rack = f"r{int(name[1:]) // NODES_OF_A_RACK}"
    total = NodeResources(110, 128_000, 1 << 20, {FLAVOR.name: GPUS})
    used = NodeResources(10, 64_000, 1 << 19, {FLAVOR.name: GPUS})
    return fleet_node(name, total, used, domain=("z", "b", rack))


def _borrower(number: int, nodes: list[str]) -> RunningJob:
    started = NOW - timedelta(minutes=10 + number * 7919 % 5000)
    amount = len(nodes) * GPUS * MILLI
    return RunningJob(
        attempt_id=UUID(int=1000 + number),
        job_id=UUID(int=100_000 + number),
        tenant_path="acme/b",
        priority=0,
        cluster_id=UUID(int=1),
        cluster="c1",
        pods=(HeldPods(FLAVOR.name, GPUS, 1000, 1024, dict.fromkeys(nodes, 1)),),
        amounts={"gpu": amount, f"gpu:{MODEL}": amount, "cpu": 1000 * len(nodes), "memory": 1024 * len(nodes)},
        started_at=started,
        shield_until=started,
    )
