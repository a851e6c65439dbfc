"""How fairly turns are given in virtual time, and what that costs: `make bench-shares` (TRACES=folder).

Jobs of six tenants of unequal weight arrive at the fleet of `make bench-replay`. The true engine with shares (`switchyard`)
plays beside the same engine and order without shares, EASY backfill and cheapest-first in the same order, Kueue's division
(`kueue_division`), and the engine with shares and quota: each tenant's part by weight is its own, lent while unused, and taken back by
stopping borrowers (`switchyard_quota`). Share error is explained in `watching`. Users' estimates are true, up to five times too
long, up to ten times off both ways, or absent. Last, what it brings to lie (`liars`).

A wait is all time from submission to the end in which a job did not work, so that what is stopped counts again. The headline
figures are those of `switchyard_quota` with estimates up to five times too long.
"""

import argparse
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.replay import CHECKPOINT_SECONDS, CLUSTERS, GPUS, LOAD, NODES, clusters_of, jobs_of
from benchmarks.report import conditions, last_line, percentile, table
from foundation.files import write_whole
from simulator.compared import cheapest_ratio, easy_backfill
from simulator.figures import Figures, JobLine
from simulator.gateways import EngineGateway, Gateway
from simulator.reclaiming import Reclaimer, ReclaimRule
from simulator.shares import FairShareRule
from simulator.simulation import replay
from simulator.values import HOUR, ClusterPlan, Conditions, ReplayError, TraceJob
from simulator.world import Layout

from . import liars, pool
from .kueue import KueueDivision
from .plots import Played, html_page
from .watching import Watched
from .world import ESTIMATES, estimated, jobs_for, weights_of

USUAL = "long"
HEADLINE = "switchyard_quota"
CHECKPOINTS = Conditions(checkpoint_seconds=CHECKPOINT_SECONDS)
SIZES = ((1, "1"), (8, "2-8"), (32, "9-32"), (10**9, "33+"))
"""Sizes of jobs in GPUs: the largest of each class, and its name."""


def gateways(weights: Mapping[str, float]) -> dict[str, Callable[[], tuple[Gateway, Reclaimer | None]]]:
    """What is compared, by name."""
    rule = FairShareRule(weights)

    def with_quota() -> tuple[Gateway, Reclaimer]:
        reclaimer = Reclaimer(ReclaimRule(weights))
        return EngineGateway(fair_share=rule).with_quota(reclaimer), reclaimer

    return {
        "switchyard": lambda: (EngineGateway(fair_share=rule), None),
        "switchyard_no_shares": lambda: (EngineGateway(fair_share=None), None),
        "switchyard_quota": with_quota,
        "kueue_division": lambda: (KueueDivision(weights), None),
        "easy_backfill": lambda: (easy_backfill(), None),
        "cheapest_ratio": lambda: (cheapest_ratio(), None),
    }


def play(
    plans: Sequence[ClusterPlan], jobs: Sequence[TraceJob], weights: Mapping[str, float], only: Sequence[str]
) -> list[Played]:
    """The jobs through each of the gateways."""
    found = []
    for name, make in gateways(weights).items():
        if name in only:
            inner, reclaimer = make()
            watched = Watched(inner, jobs, weights, Layout(plans))
            figures = replay(plans, jobs, watched, CHECKPOINTS)
            found.append(Played(name, figures, watched, 0 if reclaimer is None else reclaimer.stopped))
            print(".", end="", file=sys.stderr, flush=True)
    return found


def row(one: Played) -> dict[str, Any]:
    """The figures of one replay."""
    waits = [wait for line in one.figures.lines if (wait := wait_of(line)) is not None]
    return {
        "share_error": round(one.watched.share_error(), 4),
        "share_error_day": round(one.watched.share_error_day(), 4),
        "contended": round(one.watched.contended, 3),
        "mean_wait_s": round(sum(waits) / max(1, len(waits))),
        "p95_wait_s": round(percentile(waits, 0.95)),
        "max_wait_s": round(max(waits, default=0.0)),
        "utilisation": one.figures.utilisation,
        "cost": round(float(one.figures.cost)),
        "lost_gpu_hours": round(one.figures.lost_gpu_hours, 1),
        "preemptions": one.stopped,
        "moves": one.figures.moves - one.stopped,
    }


def wait_of(line: JobLine) -> float | None:
    """The seconds from submission to the end that a job did not work: its waits, also after it was stopped, and work that it
    repeated. For a job that was not stopped, this is the time to its start.
    """
    if line.finished is None or line.job.seconds is None:
        return None
    return max(0.0, line.finished - line.job.submitted - line.job.seconds)


def waits_by(found: Figures, key: Callable[[TraceJob], str]) -> dict[str, tuple[float, float, int]]:
    """The mean and the longest wait, and the number of jobs, by this key."""
    waits: dict[str, list[float]] = {}
    for line in found.lines:
        wait = wait_of(line)
        if wait is not None:
            waits.setdefault(key(line.job), []).append(wait)
    return {name: (sum(own) / len(own), max(own), len(own)) for name, own in sorted(waits.items())}


def size_of(job: TraceJob) -> str:
    """The class of a job's size."""
    return next(name for most, name in SIZES if job.pods * job.gpus <= most)


def print_waits(title: str, played: Sequence[Played], key: Callable[[TraceJob], str]) -> None:
    """Prints mean and longest waits in hours, a column for each gateway."""
    by_gateway = {one.name: waits_by(one.figures, key) for one in played}
    names = sorted({name for own in by_gateway.values() for name in own}, key=lambda one: (len(one), one))
    print(f"\nwaits by {title}: mean / longest, in hours")
    rows = []
    for name in names:
        cells = {who: own.get(name, (0.0, 0.0, 0)) for who, own in by_gateway.items()}
        count = max(cell[2] for cell in cells.values())
        told = {who: f"{mean / HOUR:.2f} / {most / HOUR:.1f}" for who, (mean, most, _) in cells.items()}
        rows.append({title: name, "jobs": count, **told})
    table(rows)


def print_received(played: Sequence[Played]) -> None:
    """Prints what each tenant held on average while there was contention, beside the fair part."""
    print("\nshare of the fleet while contended: held / fair, in percent")
    found = {one.name: one.watched.received() for one in played}
    tenants = next(iter(found.values()))
    table(
        [
            {"tenant": tenant, **{who: "{:.1f} / {:.1f}".format(*(100 * x for x in own[tenant])) for who, own in found.items()}}
            for tenant in tenants
        ]
    )  # fmt: skip


def print_pool(jobs: Sequence[TraceJob], traces: Path, seeds: int) -> dict[str, Any]:
    """Prints the orders and the lies in one pool without places."""
    orders = pool.compare_orders(jobs, NODES * GPUS)
    print("\none pool without places, estimates up to five times too long")
    table(orders)
    lies = pool.compare_liars({name: jobs_of(traces, name) for name in pool.TRACES}, seeds)
    print("\none tenant in it, in which 15 % of the users state 60 s for everything: change of waits in percent")
    table(lies)
    return {"orders": orders, "liars": lies}


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    folder = Path(os.environ.get("TRACES", "../shared/traces"))
    names = list(gateways({}))
    parser.add_argument("--traces", type=Path, default=folder, help="also as TRACES=")
    parser.add_argument("--name", default="trace1", help="a trace of that folder (default trace1)")
    parser.add_argument("--trace", type=Path, metavar="FILE", help="another trace, as CSV; its tenants count, if five")
    parser.add_argument("--weight", nargs="+", default=[], metavar="TENANT=WEIGHT", help="of its tenants (default 1)")
    parser.add_argument("--load", type=float, default=LOAD, help="offered share of the fleet's GPU time (default 1)")
    parser.add_argument("--limit", type=int, help="only the first jobs of the trace")
    parser.add_argument("--estimates", nargs="+", choices=ESTIMATES, default=list(ESTIMATES))
    parser.add_argument("--only", nargs="+", choices=names, default=names, metavar="GATEWAY", help=", ".join(names))
    parser.add_argument("--no-liars", action="store_true", help="without the last part")
    parser.add_argument("--no-pool", action="store_true", help="without the pool")
    parser.add_argument("--only-pool", action="store_true", help="nothing else")
    parser.add_argument("--seeds", type=int, default=6, help="of who lies in the pool (default 6)")
    parser.add_argument("--html", type=Path, metavar="FILE", help="plots, as one page (default: none)")
    return parser.parse_args()


def main() -> None:
    arguments = _arguments()
    began = time.process_time()
    try:
        plans = clusters_of(NODES, arguments.traces)
        jobs = jobs_for(arguments.traces, arguments.name, arguments.trace, arguments.load, arguments.limit)
        weights = weights_of(jobs, arguments.weight)
    except (OSError, ReplayError, ValueError) as error:
        sys.exit(f"traces cannot be replayed: {error}")
    conditions(clusters=CLUSTERS, gpus=NODES * 8, jobs=len(jobs), load=arguments.load, weights=weights)
    told: dict[str, Any] = {}
    pages: dict[str, list[Played]] = {}
    for how in () if arguments.only_pool else arguments.estimates:
        played = pages[how] = play(plans, estimated(jobs, how), weights, arguments.only)
        print(file=sys.stderr)
        rows = {one.name: row(one) for one in played}
        print(f"\nestimates: {how}")
        table([{"policy": name, **own, "share_error": f"{own['share_error']:.4f}", "share_error_day": f"{own['share_error_day']:.4f}", "utilisation": f"{own['utilisation']:.4f}"} for name, own in rows.items()])  # fmt: skip
        told[how] = rows
        if how == USUAL or len(arguments.estimates) == 1:
            print_received(played)
            print_waits("tenant", played, lambda job: job.tenant)
            print_waits("GPUs", played, size_of)
            head = rows.get(HEADLINE, {})
            told |= {
                name: head[name] for name in ("share_error", "max_wait_s", "lost_gpu_hours", "preemptions") if head
            }
    if not arguments.no_liars and not arguments.only_pool:
        lies = liars.compare(plans, jobs)
        print("\n15 % of the users state 60 s for everything")
        table(lies)
        told["liars"] = lies
    if not arguments.no_pool:
        told["pool"] = print_pool(jobs, arguments.traces, arguments.seeds)
    if arguments.html:
        write_whole(arguments.html, html_page(pages, len(jobs)))
    print(f"\n{time.process_time() - began:.0f} s of CPU")
    last_line(told)


if __name__ == "__main__":
    main()
