"""Waiting, utilisation and cost in virtual time: `make bench-replay` (TRACES=folder).

Gang-heavy job lists derived from Microsoft's Philly trace arrive at ten clusters of 8-GPU nodes hung on a real topology tree
and priced as ten clouds price an A100-80GB. The true engine plays against three plain gateways whose clusters spread pods
over their nodes. Then 25,000 GPUs under a full queue, on which a node fails every 2.5 hours.
"""

import argparse
import csv
import io
import os
import time
from collections.abc import Iterator, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import zstandard

from .report import conditions, last_line, percentile, table
from .virtual import (
    BASELINES,
    GPUS,
    Failures,
    Fleet,
    Outcome,
    Policy,
    Replay,
    VirtualCluster,
    VirtualJob,
    engine_policy,
)

HOUR = 3600.0
LOAD = 1.0
NODES = 160
"""Submissions are compressed in time until this many nodes are offered `LOAD`; run times stay as they are."""
LARGE_FLEET_GPUS = 25_000
SCALE = 16
"""The jobs on the large fleet are the trace's, so many times as large: gangs of up to 512 GPUs."""
FAILURES = Failures(every_seconds=2.5 * HOUR, repair_seconds=12 * HOUR, checkpoint_seconds=HOUR)


def rows(path: Path) -> list[dict[str, str]]:
    text = zstandard.ZstdDecompressor().stream_reader(path.read_bytes()).read().decode()
    return list(csv.DictReader(io.StringIO(text)))


def jobs_of(path: Path) -> list[VirtualJob]:
    """Jobs in order of submission; what wants more than a node is a gang of whole nodes."""
    jobs = []
    for number, row in enumerate(sorted(rows(path), key=lambda row: int(row["submit_time"]))):
        gpus = int(row["num_gpu"])
        pods, each = (1, gpus) if gpus <= GPUS else (-(-gpus // GPUS), GPUS)
        jobs.append(VirtualJob(number, int(row["submit_time"]) / 1000, int(row["duration"]) / 1000, pods, each))
    return jobs


def prices_of(path: Path, count: int) -> list[Decimal]:
    """What `count` clouds ask per hour for one A100 with 80 GB, each its own lowest on-demand price."""
    lowest: dict[str, Decimal] = {}
    for row in rows(path):
        if row["GPU Type"].startswith("A100 (80") and row["Per-GPU"]:
            price = Decimal(row["Per-GPU"])
            lowest[row["Cloud"]] = min(price, lowest.get(row["Cloud"], price))
    found = [lowest[cloud] for cloud in sorted(lowest)]
    return [found[number % len(found)] for number in range(count)]


def clusters_of(nodes: int, traces: Path, count: int = 10) -> list[VirtualCluster]:
    """So many nodes in all, dealt over the clusters in the order of the topology tree."""
    places = [(f"{row['DSW']}-{row['PSW']}", row["ASW"]) for row in rows(traces / "topology" / "topo.csv.zst")]
    places.sort()
    prices = prices_of(traces / "prices" / "cloud-gpus_fsdl_2025-03.csv.zst", count)
    racks: list[list[tuple[str, str]]] = [[] for _ in range(count)]
    for number in range(nodes):
        turn, place = divmod(number, len(places))
        block, rack = places[place]
        racks[number * count // nodes].append((f"{turn}-{block}", rack))
    return [
        VirtualCluster(f"cluster-{n}", price, own) for n, (price, own) in enumerate(zip(prices, racks, strict=True))
    ]


def compare(path: Path, traces: Path, policies: Mapping[str, Policy]) -> Iterator[dict[str, Any]]:
    """One trace through every policy."""
    jobs = jobs_of(path)
    span = sum(job.size * job.seconds for job in jobs) / (NODES * GPUS * LOAD)
    speed = span / jobs[-1].submitted
    for job in jobs:
        job.submitted *= speed
    span = jobs[-1].submitted
    for name, policy in policies.items():
        started = time.perf_counter()
        fleet = Fleet(clusters_of(NODES, traces))
        fitting = [job for job in jobs if job.pods <= min(len(cluster.racks) for cluster in fleet.clusters)]
        outcome = Replay(fitting, fleet, policy, (0.0, span)).run()
        assert len(outcome.waits) == len(fitting)
        yield {
            "trace": path.name.partition(".")[0],
            "policy": name,
            "jobs": len(fitting),
            "GPUs": fleet.size,
            **figures(outcome),
            "seconds": round(time.perf_counter() - started),
        }


def figures(outcome: Outcome) -> dict[str, float]:
    racks = outcome.racks_used
    return {
        "mean_wait_s": round(sum(outcome.waits) / max(1, len(outcome.waits))),
        "p95_wait_s": round(percentile(outcome.waits, 0.95)),
        "utilisation": round(outcome.busy / outcome.capacity, 4),
        "cost": round(float(outcome.cost)),
        "racks_per_gang": round(sum(racks) / max(1, len(racks)), 3),
    }


def large_fleet(traces: Path, days: float) -> dict[str, float]:
    """25,000 GPUs under a queue that never runs dry."""
    shapes = [job for job in jobs_of(traces / "philly_gangs" / "trace2.csv.zst") if job.seconds >= HOUR / 2]
    fleet = Fleet(clusters_of(LARGE_FLEET_GPUS // GPUS, traces))
    horizon = days * 24 * HOUR
    jobs: list[VirtualJob] = []
    asked = 0.0
    while asked < 1.6 * fleet.size * horizon:
        shape = shapes[len(jobs) * 31 % len(shapes)]
        size = shape.size * SCALE
        pods, each = (1, size) if size <= GPUS else (-(-size // GPUS), GPUS)
        seconds = min(shape.seconds, 48 * HOUR)
        jobs.append(VirtualJob(len(jobs), 0.0, seconds, pods, each))
        asked += size * seconds
    warm = 24 * HOUR
    for job in jobs[400:]:
        job.submitted = job.number / len(jobs) * horizon * 0.6
    outcome = Replay(jobs, fleet, engine_policy(), (warm, horizon), FAILURES).run()
    return {"utilisation_25k": outcome.busy / outcome.capacity, "lost_work_25k": outcome.lost / outcome.capacity}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    folder = Path(os.environ.get("TRACES", "../shared/traces"))
    parser.add_argument("--traces", type=Path, default=folder, help="also as TRACES=")
    parser.add_argument("--only", nargs="*", default=["trace1", "trace2", "trace4"])
    parser.add_argument("--days", type=float, default=7, help="length of the run on the large fleet")
    arguments = parser.parse_args()
    conditions(clusters=10, load=LOAD, virtual_time="one process", prices="A100-80GB on demand, 2025-03")
    policies = {**BASELINES, "switchyard": engine_policy()}
    found = []
    for name in arguments.only:
        found += list(compare(arguments.traces / "philly_gangs" / f"{name}.csv.zst", arguments.traces, policies))
    table(found)
    by_policy = {name: _mean([row for row in found if row["policy"] == name]) for name in policies}
    large = large_fleet(arguments.traces, arguments.days)
    print(f"\n25,000 GPUs, {arguments.days:g} days, a node failing every 2.5 h: {large}")
    last_line({**by_policy, **large})


def _mean(found: list[dict[str, Any]]) -> dict[str, float]:
    keys = ("mean_wait_s", "p95_wait_s", "utilisation", "cost")
    return {key: round(sum(row[key] for row in found) / max(1, len(found)), 4) for key in keys}


if __name__ == "__main__":
    main()
