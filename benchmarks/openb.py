"""GPUs allocated at saturation on Alibaba's openb trace: `make bench-openb` (PODS=file NODES=file SEEDS=10
PROCESSES=all cores).

The protocol of the FGD paper: pods arrive in random order until they ask for 130 % of all GPUs; one that fits nowhere
is dropped; nothing departs. Equal scores go to the first node in the run's fixed random order, as in the paper's own
scheduler. Baselines schedule over all nodes together. Ours chooses among clusters dealt at random, with the engine's
unchanged `pack` strategy; the clusters' own schedulers then spread pods over CPU and memory as kube-scheduler does,
except in the last row, where they follow the engine's node hints. Every placement is carried out and checked on a plain
model of the nodes that shares no code with the engine.
"""

import argparse
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from functools import partial
from pathlib import Path
from uuid import UUID

import numpy as np

from placement.cycle.cycle import decide
from placement.values.model import (
    FleetCluster,
    FleetFlavor,
    FleetNode,
    GpuRequest,
    JobRequest,
    PodSetRequest,
    Snapshot,
    TypicalPod,
)
from placement.values.nodes import NodeResources, fleet_node

from .members import (
    PODS_PER_NODE,
    FgdScheduler,
    Fleet,
    Scheduler,
    bestfit_scheduler,
    emptiest_first,
    random_scheduler,
    spread_scheduler,
)
from .report import conditions, last_line
from .traces import WHOLE, TraceError, TraceNode, TracePod, arrivals, read_nodes, read_pods

NOW = datetime(2026, 1, 1, tzinfo=UTC)
RATIO = 1.3
FIRST_SEED = 42
PUBLISHED = {
    "openb_pod_list_default": {"random": 87.47, "bestfit": 93.08, "fgd": 95.39},
    "openb_pod_list_multigpu50": {"random": 90.27, "bestfit": 95.74, "fgd": 97.18},
    "openb_pod_list_gpushare40": {"random": 86.00, "bestfit": 91.69, "fgd": 94.15},
    "openb_pod_list_gpuspec33": {"random": 86.46, "bestfit": 93.09, "fgd": 94.55},
}
"""The mean allocated % at 130 % over ten seeds, by pod list."""


@dataclass(frozen=True)
class Run:
    """One seed's arrivals and nodes in the run's order, with the cluster of each."""

    nodes: list[TraceNode]
    pods: list[TracePod]
    """The original pods: what is typical."""
    queue: list[TracePod]
    clusters: int
    cluster_of_node: np.ndarray
    seed: int

    def fleet(self) -> Fleet:
        return Fleet(self.nodes, self.cluster_of_node, self.pods)


def run_of(nodes: Sequence[TraceNode], pods: list[TracePod], clusters: int, seed: int) -> Run:
    rng = np.random.default_rng(seed)
    queue = arrivals(pods, sum(node.gpus for node in nodes) * WHOLE, RATIO, rng)
    shuffled = [nodes[n] for n in rng.permutation(len(nodes))]
    return Run(shuffled, pods, queue, clusters, rng.integers(clusters, size=len(nodes)), seed)


class Tally:
    """Allocated share by arrived share, in whole percents."""

    def __init__(self, capacity_milli: int) -> None:
        self._capacity = capacity_milli
        self._arrived = self._held = 0
        self._buckets: dict[int, list[int]] = {}

    def arrived(self, pod: TracePod, *, is_placed: bool) -> None:
        self._arrived += pod.asked_milli
        self._held += pod.asked_milli * is_placed
        self._buckets.setdefault(round(100 * self._arrived / self._capacity), []).append(self._held)

    def allocated(self, percent: int) -> float:
        at = min(self._buckets, key=lambda bucket: (abs(bucket - percent), bucket))
        return 100 * float(np.mean(self._buckets[at])) / self._capacity


def baseline(scheduler_of: Callable[[Fleet, Run], Scheduler]) -> Callable[[Run], Tally]:
    def simulate(run: Run) -> Tally:
        fleet = run.fleet()
        scheduler, tally = scheduler_of(fleet, run), Tally(fleet.capacity)
        for pod in run.queue:
            feasible = fleet.feasible(pod)
            if feasible.any():
                node, devices = scheduler(pod, feasible)
                fleet.place(node, pod, devices)
            tally.arrived(pod, is_placed=bool(feasible.any()))
        return tally

    return simulate


def switchyard(run: Run, *, hints: bool) -> Tally:
    """The engine's own cycle over the whole queue, then each placement carried out by the member that got it."""
    fleet = run.fleet()
    member, tally = spread_scheduler(fleet), Tally(fleet.capacity)
    placed = {placement.job_id.int: placement for placement in decide(snapshot_of(run, hints=hints)).placements}
    for number, pod in enumerate(run.queue):
        placement = placed.get(number)
        feasible = fleet.feasible(pod)
        assert (placement is not None) == feasible.any(), "the engine places exactly what fits somewhere"
        if placement is not None:
            hinted = int(next(iter(placement.pod_sets[0].nodes)))
            cluster = run.cluster_of_node == placement.cluster_id.int
            node = hinted if hints else member(pod, feasible & cluster)[0]
            assert node == hinted, "the engine foresees what a spreading member does"
            fleet.place(node, pod, fleet.tightest(node, pod))
        tally.arrived(pod, is_placed=placement is not None)
    return tally


def snapshot_of(run: Run, *, hints: bool) -> Snapshot:
    kinds = {pod: f"kind-{number}" for number, pod in enumerate(dict.fromkeys(run.queue))}
    requests = {pod: (request_of(pod),) for pod in kinds}
    queue = tuple(
        JobRequest(UUID(int=number), "trace", kinds[pod], requests[pod], strategy="pack")
        for number, pod in enumerate(run.queue)
    )
    typical = tuple(TypicalPod(request_of(pod), count) for pod, count in Counter(run.pods).items())
    clusters = tuple(cluster_of(run, number, hints=hints) for number in range(run.clusters))
    return Snapshot(NOW, clusters, queue, (), typical)


def request_of(pod: TracePod) -> PodSetRequest:
    part = pod.gpu_milli if pod.gpu_milli < WHOLE else 0
    gpu = GpuRequest(pod.gpus, tuple(sorted(pod.models)), "", part) if pod.gpus else None
    return PodSetRequest("pod", 1, pod.cpu_milli, pod.memory_mib, gpu)


def cluster_of(run: Run, number: int, *, hints: bool) -> FleetCluster:
    """A cluster of the run; nodes are named by their place in the run's order, which settles ties."""
    members = [(place, node) for place, node in enumerate(run.nodes) if run.cluster_of_node[place] == number]
    flavors = {
        model or "cpu": FleetFlavor(
            name=model or "cpu",
            vendor="nvidia" if model else "",
            gpu_model=model,
            gpu_memory_mib=0,
            sharing="divisible" if model else "whole",
            capacity_type="on_demand",
            unit_price=Decimal(1),
        )
        for model in sorted({node.model for _, node in members})
    }
    return FleetCluster(
        id=UUID(int=number),
        name=f"cluster-{number}",
        owner_path="trace",
        region="",
        state="ready",
        flavors=flavors,
        nodes=tuple(node_of(place, node) for place, node in members),
        fills="hinted" if hints else "spread",
    )


def node_of(place: int, node: TraceNode) -> FleetNode:
    units = {node.model or "cpu": node.gpus}
    return fleet_node(f"{place:06d}", NodeResources(PODS_PER_NODE, node.cpu_milli, node.memory_mib, units), domain=())


POLICIES: dict[str, tuple[int, Callable[[Run], Tally]]] = {
    "random": (1, baseline(lambda fleet, run: random_scheduler(fleet, np.random.default_rng(run.seed)))),
    "bestfit": (1, baseline(lambda fleet, _: bestfit_scheduler(fleet))),
    "fgd": (1, baseline(lambda fleet, _: FgdScheduler(fleet))),
    "emptiest_k10": (10, baseline(lambda fleet, run: emptiest_first(fleet, run.clusters, spread_scheduler(fleet)))),
    "switchyard_k1": (1, lambda run: switchyard(run, hints=False)),
    "switchyard_k10": (10, lambda run: switchyard(run, hints=False)),
    "switchyard_k50": (50, lambda run: switchyard(run, hints=False)),
    "switchyard_hints_k10": (10, lambda run: switchyard(run, hints=True)),
}


def allocated(name: str, nodes: list[TraceNode], pods: list[TracePod], seed: int) -> tuple[float, float]:
    """What one seed's run of a policy has allocated at 100 % and at 130 % arrivals."""
    clusters, simulate = POLICIES[name]
    tally = simulate(run_of(nodes, pods, clusters, seed))
    return tally.allocated(100), tally.allocated(130)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    traces = Path("../shared/traces/openb")
    pods_file = os.environ.get("PODS", traces / "openb_pod_list_default.csv.zst")
    nodes_file = os.environ.get("NODES", traces / "openb_node_list_gpu_node.csv.zst")
    parser.add_argument("--pods", type=Path, default=pods_file, help="also as PODS=")
    parser.add_argument("--nodes", type=Path, default=nodes_file, help="also as NODES=")
    parser.add_argument("--seeds", type=int, default=int(os.environ.get("SEEDS", "10")), help="also as SEEDS=")
    parser.add_argument("--policies", nargs="*", default=list(POLICIES), choices=list(POLICIES))
    processes = int(os.environ.get("PROCESSES", str(os.cpu_count() or 1)))
    parser.add_argument("--processes", type=int, default=processes, help="seeds at a time; also as PROCESSES=")
    arguments = parser.parse_args()
    try:
        nodes, pods = read_nodes(arguments.nodes), read_pods(arguments.pods)
    except TraceError as error:
        sys.exit(str(error))
    if arguments.seeds < 1 or arguments.processes < 1:
        parser.error("at least one seed and one process")
    gpus = sum(node.gpus for node in nodes)
    if not gpus or not any(pod.gpus for pod in pods):
        sys.exit(f"{arguments.nodes} and {arguments.pods}: neither may be without GPUs")
    conditions(
        pods=f"{arguments.pods.name} ({len(pods)})",
        nodes=f"{arguments.nodes.name} ({len(nodes)}, {gpus} GPUs)",
        seeds=f"{FIRST_SEED}-{FIRST_SEED + arguments.seeds - 1}",
        arrivals=f"to {RATIO:.0%}",
        ties="to the first node in the run's random order",
    )
    print(
        f"{'policy':22} {'clusters':>8} {'at 100 %':>16} {'at 130 %':>16} {'idle GPUs':>10} {'published':>10} {'time':>8}"
    )
    figures: dict[str, float] = {}
    published = PUBLISHED.get(arguments.pods.name.partition(".")[0], {})
    seeds = range(FIRST_SEED, FIRST_SEED + arguments.seeds)
    with ProcessPoolExecutor(max(1, min(arguments.processes, arguments.seeds))) as pool:
        for name in arguments.policies:
            started = time.perf_counter()
            found = list(pool.map(partial(allocated, name, nodes, pods), seeds))
            early, late = (np.array(column) for column in zip(*found, strict=True))
            figures[name] = round(float(late.mean()), 2)
            print(
                f"{name:22} {POLICIES[name][0]:>8} {early.mean():>8.2f} ± {early.std():.2f}"
                f" {late.mean():>9.2f} ± {late.std():.2f} {gpus * (100 - late.mean()) / 100:>10.0f}"
                f" {published.get(name, '-'):>10} {time.perf_counter() - started:>6.0f} s",
                flush=True,
            )
    last_line(figures)


if __name__ == "__main__":
    main()
