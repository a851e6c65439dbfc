"""Large gangs between small jobs, with and without moves: `make bench-consolidation` (TRACES=folder).

Jobs of Microsoft's Philly trace, of which one in forty is made a gang of 64 GPUs, arrive at the ten clusters of `replay`. The
engine plays twice: without consolidation, and with it. A gang waits for shape alone while some cluster has as many free GPUs
as it needs, beside those for gangs ahead of it, but no place for it.
"""

import argparse
import os
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from simulator.consolidating import ConsolidationRule
from simulator.figures import Figures
from simulator.gateways import Choice, EngineGateway, Known, Move
from simulator.simulation import replay
from simulator.traces import compressed
from simulator.values import HOUR, WHOLE, Conditions, ReplayError, TraceJob

from .replay import GPUS, NODES, clusters_of, jobs_of, with_estimate
from .report import conditions, last_line, table

GANG = 64
LOAD = 0.9
EVERY = 40
"""One in this number of jobs is a gang of 64 GPUs."""
LONGEST_GANG = 12 * HOUR
CHECKPOINT_SECONDS = 1800
SHORTEST_WAIT = 900.0
"""A gang that waits for shape alone for less is not counted: nothing moves before it has waited for ten minutes."""


class Watched:
    """A gateway, and how long each large gang waits while enough GPUs are free in one cluster."""

    def __init__(self, inner: EngineGateway, name: str) -> None:
        self.name, self._inner = name, inner
        self.shape_seconds: dict[int, float] = defaultdict(float)
        self.room_seconds: dict[int, float] = defaultdict(float)
        self._since = 0.0
        self._for_shape: tuple[int, ...] = ()
        self._for_room: tuple[int, ...] = ()

    @property
    def inner(self) -> EngineGateway:
        """The gateway that decides."""
        return self._inner

    def choose(self, queue: Sequence[tuple[int, TraceJob]], known: Known, now: float) -> Sequence[Choice | Move]:
        """What the gateway chooses."""
        self._count(now)
        chosen = self._inner.choose(queue, known, now)
        placed = {one.number for one in chosen if isinstance(one, Choice)}
        waiting = [number for number, job in queue if number not in placed and job.milli == GANG * WHOLE]
        if any(isinstance(one, Move) for one in chosen):
            waiting = []  # it decides again at the same time
        enough = sum(free // GANG for free in _free(known, chosen, dict(queue)))
        self._for_shape, self._for_room = tuple(waiting[:enough]), tuple(waiting[enough:])
        return chosen

    def _count(self, now: float) -> None:
        for numbers, seconds in ((self._for_shape, self.shape_seconds), (self._for_room, self.room_seconds)):
            for number in numbers:
                seconds[number] += now - self._since
        self._since = now


def _free(known: Known, chosen: Iterable[Choice | Move], jobs: dict[int, TraceJob]) -> list[int]:
    """By cluster, its free GPUs after these choices."""
    taken: Counter[int] = Counter()
    for one in chosen:
        if isinstance(one, Choice):
            taken[one.cluster] += len(one.assumed) * jobs[one.number].gpus
    layout, shelves = known.layout, known.shelves
    devices = [(shelves.devices[layout.slice(n)] == WHOLE).sum() for n in range(len(layout.plans))]
    return [int(free) - taken[number] for number, free in enumerate(devices)]


def mixed(jobs: Sequence[TraceJob]) -> tuple[TraceJob, ...]:
    """The jobs of the trace, with gangs of 64 GPUs among them, pressed together to the load."""
    found = [_gang(job) if number % EVERY == EVERY - 1 else job for number, job in enumerate(jobs)]
    return compressed([with_estimate(job, number) for number, job in enumerate(found)], NODES * GPUS, LOAD)


def _gang(job: TraceJob) -> TraceJob:
    seconds = min(max(job.seconds or 0.0, HOUR), LONGEST_GANG)
    return replace(
        job, pods=GANG // GPUS, gpus=GPUS, cpu_millicores=GPUS * 6_000, memory_mib=GPUS * 65_536, seconds=seconds
    )


def run(traces: Path, name: str, rule: ConsolidationRule | None) -> dict[str, Any]:
    """One trace through the engine, with its figures."""
    plans, jobs = clusters_of(NODES, traces), mixed(jobs_of(traces, name))
    inner = EngineGateway(consolidation=rule)
    watched = Watched(inner, "off" if rule is None else "on")
    started = time.perf_counter()
    found = replay(plans, jobs, watched, Conditions(checkpoint_seconds=CHECKPOINT_SECONDS))
    assert found.finished == len(jobs)
    return {
        "trace": name,
        "consolidation": watched.name,
        **gang_figures(found, watched),
        "mean_wait_s": round(found.wait_seconds["mean"]),
        "p95_wait_s": round(found.wait_seconds["p95"]),
        "utilisation": found.utilisation,
        "plans": 0 if inner.consolidator is None else len(inner.consolidator.plans),
        "moves": found.moves,
        "lost_gpu_hours": round(found.lost_gpu_hours, 1),
        "seconds": round(time.perf_counter() - started),
    }


def gang_figures(found: Figures, watched: Watched) -> dict[str, Any]:
    """Of the gangs of 64 GPUs: their number, the share that waited for shape alone, for how long, and all that they waited."""
    gangs = [line for line in found.lines if line.job.milli == GANG * WHOLE]
    count = max(1, len(gangs))
    shape = sum(seconds >= SHORTEST_WAIT for seconds in watched.shape_seconds.values())
    return {
        "gangs": len(gangs),
        "wait_for_shape": round(shape / count, 4),
        "shape_hours": round(sum(watched.shape_seconds.values()) / HOUR, 1),
        "gang_wait_s": round(sum(line.wait or 0.0 for line in gangs) / count),
    }


def both(traces: Path, names: Sequence[str], rule: ConsolidationRule) -> dict[str, Any]:
    """All traces without and with consolidation, printed, and the sums for the last line."""
    rows = []
    for name in names:
        for one in (None, rule):
            rows.append(run(traces, name, one))
            print(".", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    table(rows)
    told: dict[str, Any] = {}
    for name in ("off", "on"):
        own = [row for row in rows if row["consolidation"] == name]
        gangs = sum(row["gangs"] for row in own)
        told[f"consolidation_{name}"] = {
            "wait_for_shape": round(sum(row["wait_for_shape"] * row["gangs"] for row in own) / max(1, gangs), 4),
            "shape_hours": round(sum(row["shape_hours"] for row in own), 1),
            "gang_wait_s": round(sum(row["gang_wait_s"] * row["gangs"] for row in own) / max(1, gangs)),
            "mean_wait_s": round(sum(row["mean_wait_s"] for row in own) / max(1, len(own))),
            "moves": sum(row["moves"] for row in own),
            "lost_gpu_hours": round(sum(row["lost_gpu_hours"] for row in own), 1),
        }
    return told


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    folder = Path(os.environ.get("TRACES", "../shared/traces"))
    parser.add_argument("--traces", type=Path, default=folder, help="also as TRACES=")
    parser.add_argument("--only", nargs="*", default=["trace1", "trace2", "trace4"])
    parser.add_argument("--share", type=float, default=0.2, help="what moves may cost, as a part of the gain")
    arguments = parser.parse_args()
    rule = ConsolidationRule(share=arguments.share, policy="resumable")
    conditions(clusters=10, load=LOAD, gang_gpus=GANG, one_gang_in=EVERY, checkpoint_seconds=CHECKPOINT_SECONDS)
    try:
        last_line(both(arguments.traces, arguments.only, rule))
    except (OSError, ReplayError) as error:
        sys.exit(f"traces cannot be read: {error}")


if __name__ == "__main__":
    main()
