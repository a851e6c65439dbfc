"""Waiting, utilisation and cost in virtual time: `make bench-replay` (TRACES=folder).

Gang-heavy job lists derived from Microsoft's Philly trace arrive at ten clusters of 8-GPU nodes hung on a real topology
tree and priced as ten clouds price an A100-80GB; jobs depart when they have run. The true engine plays against plain
gateways in the product's own simulator (`manage.py replay`). All clusters run the same scheduler, which spreads
pods over its nodes as kube-scheduler does and follows node hints; the plain gateways give none. Each job carries an
estimate of its run time as users give them: too long by a factor between one and five (the f-model of Mu'alem and
Feitelson, IEEE TPDS 12(6), 2001), the same for all gateways. `switchyard` orders its queue by it;
`switchyard_submitted` (SWITCHYARD_QUEUE_ORDER=submitted) is the engine without. `cheapest_ratio` and `easy_backfill` have
the order of `switchyard`, so that its merit is not counted as placement's; the other three ignore estimates. With
--packed a second table takes the hints away and lets every cluster pack, so that nothing but the gateways' choices differ.
Then 25,000 GPUs under a queue that does not run dry, on which a node fails every 2.5 hours.
"""

import argparse
import csv
import io
import os
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from functools import partial
from math import inf
from pathlib import Path
from typing import Any

import zstandard

from simulator.compared import COMPARED
from simulator.consolidating import ConsolidationRule
from simulator.figures import Figures, JobLine
from simulator.gateways import EngineGateway, Gateway
from simulator.simulation import replay
from simulator.traces import compressed, read_trace
from simulator.values import (
    HOUR,
    WHOLE,
    ClusterPlan,
    Conditions,
    Failures,
    Machine,
    Member,
    ReplayError,
    TraceJob,
)

from . import spot_deadlines
from .report import conditions, last_line, table

CLUSTERS = 10
GPUS = 8
SHARES = ("utilisation", "fragmentation", "racks_per_gang")
"""Figures whose first digit has little meaning."""
LOAD = 1.0
NODES = 160
"""Submissions are compressed in time until this many nodes are offered `LOAD`; run times stay as they are."""
MODEL = "A100-80GB"
LARGE_FLEET_GPUS = 25_000
SCALE = 16
"""The factor by which jobs on the large fleet are larger than the trace's: gangs of up to 512 GPUs."""
FAILURES = Failures(every_seconds=2.5 * HOUR, repair_seconds=12 * HOUR)
CHECKPOINT_SECONDS = 3600
MOVES_SHARE = 0.2
"""What moves may cost, as a part of the gain."""
SIZES = ((8, "up to 8"), (64, "9 to 64"), (512, "65 to 512"), (inf, "over 512"))
"""Classes of jobs by their GPUs."""
MOST_TOO_LONG = 5.0
"""Users' estimates are too long by a factor of up to this."""
STRIDE = 0.6180339887
"""Factors go through their range by this part of it: spread evenly and never at random."""
GATEWAYS: Mapping[str, Callable[[], Gateway]] = {
    **COMPARED,
    "switchyard": EngineGateway,
    "switchyard_submitted": partial(EngineGateway, order="submitted"),
}


def text_of(path: Path) -> str:
    return zstandard.ZstdDecompressor().stream_reader(path.read_bytes()).read().decode()


def rows(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text_of(path))))


def jobs_of(traces: Path, name: str) -> tuple[TraceJob, ...]:
    path = traces / "philly_gangs" / f"{name}.csv.zst"
    return read_trace(str(path), text_of(path))


def prices_of(path: Path, count: int) -> list[Decimal]:
    """The hourly price of `count` clouds for one A100 with 80 GB: the lowest on-demand price of each."""
    lowest: dict[str, Decimal] = {}
    for row in rows(path):
        if row["GPU Type"].startswith("A100 (80") and row["Per-GPU"]:
            price = Decimal(row["Per-GPU"])
            lowest[row["Cloud"]] = min(price, lowest.get(row["Cloud"], price))
    found = [lowest[cloud] for cloud in sorted(lowest)]
    return [found[number % len(found)] for number in range(count)]


def clusters_of(nodes: int, traces: Path, member: Member = "spread", *, hints: bool = True) -> list[ClusterPlan]:
    """The clusters with `nodes` nodes in total, dealt in the order of the topology tree."""
    places = [(f"{row['DSW']}-{row['PSW']}", row["ASW"]) for row in rows(traces / "topology" / "topo.csv.zst")]
    places.sort()
    prices = prices_of(traces / "prices" / "cloud-gpus_fsdl_2025-03.csv.zst", CLUSTERS)
    machines: list[list[Machine]] = [[] for _ in range(CLUSTERS)]
    for number in range(nodes):
        turn, place = divmod(number, len(places))
        block, rack = places[place]
        domain = ("zone", f"{turn}-{block}", rack)
        machines[number * CLUSTERS // nodes].append(
            Machine(f"node-{number:05d}", MODEL, MODEL, GPUS, 12_000 * GPUS, 131_072 * GPUS, domain)
        )
    pairs = enumerate(zip(prices, machines, strict=True))
    return [
        ClusterPlan(f"cluster-{n}", tuple(own), {MODEL: price}, member=member, hints=hints) for n, (price, own) in pairs
    ]


def fitting(jobs: Sequence[TraceJob]) -> tuple[TraceJob, ...]:
    """The jobs that a cluster of the smaller fleet can hold, pressed together to the load, with
    their users' estimates.
    """
    held = [job for job in jobs if job.pods <= NODES // CLUSTERS]
    return compressed([with_estimate(job, number) for number, job in enumerate(held)], NODES * GPUS, LOAD)


def with_estimate(job: TraceJob, number: int) -> TraceJob:
    factor = 1.0 + (MOST_TOO_LONG - 1.0) * (number * STRIDE % 1)
    return replace(job, estimated_seconds=max(1, round((job.seconds or 0.0) * factor)))


def compare(traces: Path, name: str, member: Member, *, hints: bool) -> Iterator[dict[str, Any]]:
    """One trace through every gateway."""
    plans, jobs = clusters_of(NODES, traces, member, hints=hints), fitting(jobs_of(traces, name))
    for policy, make in GATEWAYS.items():
        started = time.perf_counter()
        found = replay(plans, jobs, make())
        assert found.finished == len(jobs)
        yield {
            "trace": name,
            "members": member + (" + hints" if hints else ""),
            "policy": policy,
            "jobs": len(jobs),
            **figures(found),
            "seconds": round(time.perf_counter() - started),
        }
        print(".", end="", file=sys.stderr, flush=True)


def figures(found: Figures) -> dict[str, Any]:
    return {
        "mean_wait_s": round(found.wait_seconds["mean"]),
        "p95_wait_s": round(found.wait_seconds["p95"]),
        "utilisation": found.utilisation,
        "cost": round(float(found.cost)),
        "fragmentation": found.fragmentation,
        "racks_per_gang": found.racks_per_gang,
    }


def large_fleet(traces: Path, days: float, *, moves: bool = False) -> dict[str, Any]:
    """25,000 GPUs under a queue that never runs dry; with `moves`, jobs are moved so that larger ones fit."""
    shapes = [job for job in jobs_of(traces, "trace2") if (job.seconds or 0) >= HOUR / 2]
    plans = clusters_of(LARGE_FLEET_GPUS // GPUS, traces)
    horizon = days * 24 * HOUR
    jobs: list[TraceJob] = []
    asked = 0.0
    while asked < 1.6 * LARGE_FLEET_GPUS * horizon:
        job = scaled(shapes[len(jobs) * 31 % len(shapes)], len(jobs))
        jobs.append(job)
        asked += job.milli / 1000 * (job.seconds or 0)
    jobs[400:] = [replace(job, submitted=n / len(jobs) * horizon * 0.6) for n, job in enumerate(jobs[400:], 400)]
    warm = Conditions(
        failures=FAILURES, checkpoint_seconds=CHECKPOINT_SECONDS, since=24 * HOUR, until=horizon, stops=True
    )
    rule = ConsolidationRule(share=MOVES_SHARE, policy="resumable") if moves else None
    found = replay(plans, jobs, EngineGateway(consolidation=rule), warm)
    return {
        "goodput_25k": goodput(found.lines),
        "moves_25k": found.moves,
        "utilisation_25k": found.utilisation,
        "allocation_25k": found.allocation,
        "lost_work_25k": found.lost_share,
        "down_25k": found.down_share,
        "node_failures_25k": found.node_failures,
    }


def goodput(lines: Iterable[JobLine]) -> dict[str, float]:
    """By size in GPUs: the work of the jobs that finished as a part of the time since their first start, weighted by GPUs. So lost
    work, restarts and waits after an interruption or a move count against it.
    """
    useful: defaultdict[str, float] = defaultdict(float)
    passed: defaultdict[str, float] = defaultdict(float)
    for line in lines:
        if line.finished is None or line.first_started is None or not line.job.seconds:
            continue
        gpus = line.job.milli / WHOLE
        size = next(name for most, name in SIZES if gpus <= most)
        useful[size] += gpus * line.job.seconds
        passed[size] += gpus * (line.finished - line.first_started)
    return {name: round(useful[name] / passed[name], 4) for _, name in SIZES if passed[name]}


def scaled(shape: TraceJob, number: int) -> TraceJob:
    """A job of the large fleet: its shape is that many times larger, and it takes at most two days."""
    gpus = shape.pods * shape.gpus * SCALE
    pods, each = (1, gpus) if gpus <= GPUS else (-(-gpus // GPUS), GPUS)
    seconds = min(shape.seconds or 0.0, 48 * HOUR)
    return TraceJob(
        str(number), 0.0, seconds, pods, each, cpu_millicores=each * 6_000, memory_mib=each * 65_536
    )  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    folder = Path(os.environ.get("TRACES", "../shared/traces"))
    parser.add_argument("--traces", type=Path, default=folder, help="also as TRACES=")
    parser.add_argument("--only", nargs="*", default=["trace1", "trace2", "trace4"])
    parser.add_argument("--days", type=float, default=4, help="length of the run on the large fleet (default 4)")
    parser.add_argument(
        "--spot",
        type=int,
        metavar="JOBS",
        help="also this number of jobs with deadlines of each type (`spot_deadlines`)",
    )
    parser.add_argument(
        "--moves", action="store_true", help="on the large fleet, jobs are moved so that larger ones fit"
    )
    parser.add_argument("--packed", action="store_true", help="the second table as well")
    arguments = parser.parse_args()
    conditions(clusters=CLUSTERS, load=LOAD, virtual_time="one process", prices="A100-80GB on demand, 2025-03")
    worlds: list[tuple[Member, bool]] = [("spread", True)]
    if arguments.packed:
        worlds.append(("pack", False))
    told: dict[str, Any] = {}
    try:
        for member, hints in worlds:
            found = [row for name in arguments.only for row in compare(arguments.traces, name, member, hints=hints)]
            print(file=sys.stderr)
            table([{**row, **{name: f"{row[name]:.4f}" for name in SHARES}} for row in found])
            suffix = "" if hints else "_packed"
            told |= {f"{one}{suffix}": _mean(found, one) for one in GATEWAYS}
        large = large_fleet(arguments.traces, arguments.days, moves=arguments.moves)
        told |= spot_deadlines.figures(arguments.traces, arguments.spot, seed=1) if arguments.spot else {}
    except (OSError, ReplayError) as error:
        sys.exit(f"traces cannot be read: {error}")
    print(f"\n25,000 GPUs, {arguments.days:g} days, a node failing every 2.5 h: {large}")
    last_line({**told, **large})


def _mean(found: list[dict[str, Any]], policy: str) -> dict[str, float]:
    own = [row for row in found if row["policy"] == policy]
    keys = ("mean_wait_s", "p95_wait_s", "utilisation", "cost")
    return {key: round(sum(row[key] for row in own) / max(1, len(own)), 4) for key in keys}


if __name__ == "__main__":
    main()
