"""The figures of a replay and their meaning; `docs/howto/replay.md` is the description for users."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from .values import TraceJob

if TYPE_CHECKING:
    from .tally import Tally

SHORTEST_RUN = 10.0
"""Slowdown counts a run as at least this long, so that a job of a second does not outweigh all others."""
CENT = Decimal("0.01")
DIGITS = 4


@dataclass(frozen=True, slots=True)
class JobLine:
    """The outcome of one job."""

    job: TraceJob
    cluster: str
    flavor: str
    first_started: float | None
    finished: float | None
    racks: int
    blocks: int
    tries: int
    lost_seconds: float

    @property
    def wait(self) -> float | None:
        """Seconds from submission to the first start."""
        return None if self.first_started is None else self.first_started - self.job.submitted

    @property
    def slowdown(self) -> float | None:
        """Time in the system by run time, at least 1."""
        if self.finished is None or self.job.seconds is None:
            return None
        return max(1.0, (self.finished - self.job.submitted) / max(self.job.seconds, SHORTEST_RUN))


@dataclass(slots=True)
class Curve:
    """The numbers of allocated GPUs and of waiting jobs, over periods of time."""

    samples: int
    stretches: list[tuple[float, float, float, int]] = field(default_factory=list)
    """(from, to, GPUs, jobs)."""

    def add(self, start: float, end: float, gpus: float, queued: int) -> None:
        """Adds a period without changes."""
        if self.stretches and self.stretches[-1][2:] == (gpus, queued):
            start = self.stretches.pop()[0]
        self.stretches.append((start, end, gpus, queued))

    def means(self) -> list[tuple[float, float, float]]:
        """(end of the slot, mean GPUs, mean queue) over equal slots of time."""
        if not self.stretches:
            return []
        end = self.stretches[-1][1]
        width = end / self.samples
        sums = [[0.0, 0.0] for _ in range(self.samples)]
        for start, stop, gpus, queued in self.stretches:
            at, slot = start, min(int(start / width), self.samples - 1)
            while at < stop:
                edge = min(stop, (slot + 1) * width) if slot + 1 < self.samples else stop
                sums[slot][0] += (edge - at) * gpus
                sums[slot][1] += (edge - at) * queued
                at, slot = edge, slot + 1
        return [(round((n + 1) * width, 3), gpus / width, queued / width) for n, (gpus, queued) in enumerate(sums)]


@dataclass(frozen=True, slots=True)
class ClusterFigures:
    """One cluster's part."""

    name: str
    gpus: int
    allocation: float
    cost: Decimal
    unpriced_gpu_hours: float
    starts: int


@dataclass(frozen=True, slots=True)
class Figures:
    """The result of a replay. Shares are parts of 1; lost work is a part of the window's GPU time. Waits and slowdowns
    are of the jobs submitted in the window that started (ended). Cost is of everything that ran, at any time.
    """

    gateway: str
    gpus: int
    seconds: float
    """Virtual time until the last job was finished."""
    jobs: int
    finished: int
    never_started: int
    unplaceable: int
    """Jobs that no cluster could hold even when empty; all other figures exclude them."""
    utilisation: float
    """Useful GPU time: allocated, less lost work."""
    allocation: float
    wait_seconds: dict[str, float]
    slowdown: dict[str, float]
    cost: Decimal
    unpriced_gpu_hours: float
    fragmentation: float
    """Mean part of all GPUs that was idle and unusable for the usual pods."""
    gangs: int
    racks_per_gang: float
    gangs_in_one_rack: float
    blocks_per_gang: float
    lost_gpu_hours: float
    lost_share: float
    down_share: float
    node_failures: int
    interruptions: int
    """The number of times a spot node was reclaimed."""
    preemptions: int
    """Runs that were interrupted because one of their nodes failed or was reclaimed, or were moved."""
    moves: int
    """Runs that were moved so that a larger job fits."""
    interrupted_jobs: int
    late_starts: int
    """Jobs sent to a cluster that had less room than the gateway believed, and waited there."""
    clusters: tuple[ClusterFigures, ...]
    curve: tuple[tuple[float, float, float], ...] = field(repr=False)
    lines: tuple[JobLine, ...] = field(repr=False)

    def summary(self) -> dict[str, Any]:
        """The figures in plain JSON terms; money as text."""
        told = {name: getattr(self, name) for name in self.__dataclass_fields__ if name not in {"curve", "lines"}}
        told["cost"] = f"{self.cost:.2f}"
        told["clusters"] = [
            {
                "name": one.name,
                "gpus": one.gpus,
                "allocation": one.allocation,
                "cost": f"{one.cost:.2f}",
                "unpriced_gpu_hours": one.unpriced_gpu_hours,
                "starts": one.starts,
            }
            for one in self.clusters
        ]
        return told


def percentile(values: Iterable[float], share: float) -> float:
    """The smallest value that at least `share` of all values do not exceed (nearest rank); 0 of nothing."""
    ordered = sorted(values)
    if not ordered:
        return 0.0
    return ordered[max(0, min(len(ordered) - 1, -(-int(share * 1000) * len(ordered) // 1000) - 1))]


def distribution(values: Sequence[float]) -> dict[str, float]:
    """Mean, percentiles and maximum."""
    ordered = sorted(values)
    return {
        "mean": round(sum(ordered) / max(1, len(ordered)), 3),
        **{f"p{share}": round(percentile(ordered, share / 100), 3) for share in (50, 95, 99)},
        "max": round(ordered[-1], 3) if ordered else 0.0,
    }


def _mean(values: Sequence[float]) -> float:
    return round(sum(values) / max(1, len(values)), DIGITS)


def figures_of(
    gateway: str, tally: "Tally", lines: tuple[JobLine, ...], unplaceable: tuple[JobLine, ...], now: float
) -> Figures:
    """All figures, from the tally and the jobs."""
    layout = tally.layout
    window = max(1e-9, tally.until - tally.since)
    capacity = max(1e-9, layout.capacity * window)
    inside = [line for line in lines if tally.since <= line.job.submitted <= tally.until]
    gangs = [line for line in lines if line.job.pods > 1 and line.racks]
    held = sum(sums.held for sums in tally.sums)
    return Figures(
        gateway=gateway,
        gpus=layout.capacity,
        seconds=round(now, 3),
        jobs=len(lines),
        finished=sum(line.finished is not None for line in lines),
        never_started=sum(line.first_started is None for line in lines),
        unplaceable=len(unplaceable),
        utilisation=round((held - tally.lost) / capacity, DIGITS),
        allocation=round(held / capacity, DIGITS),
        wait_seconds=distribution([line.wait for line in inside if line.wait is not None]),
        slowdown=distribution([line.slowdown for line in inside if line.slowdown is not None]),
        cost=sum((sums.cost for sums in tally.sums), Decimal(0)).quantize(CENT),
        unpriced_gpu_hours=round(sum(sums.unpriced for sums in tally.sums) / 3600, DIGITS),
        fragmentation=_mean(tally.fragmentation),
        gangs=len(gangs),
        racks_per_gang=_mean([line.racks for line in gangs]),
        gangs_in_one_rack=_mean([line.racks == 1 for line in gangs]),
        blocks_per_gang=_mean([line.blocks for line in gangs]),
        lost_gpu_hours=round(tally.lost / 3600, DIGITS),
        lost_share=round(tally.lost / capacity, DIGITS + 2),
        down_share=round(tally.down / capacity, DIGITS + 2),
        node_failures=tally.failures,
        interruptions=tally.interruptions,
        preemptions=tally.preemptions,
        moves=tally.moves,
        interrupted_jobs=sum(line.tries > 1 for line in lines),
        late_starts=tally.late,
        clusters=tuple(
            ClusterFigures(
                name=plan.name,
                gpus=int(layout.gpus_of_cluster[number]),
                allocation=round(
                    tally.sums[number].held / max(1e-9, float(layout.gpus_of_cluster[number]) * window), DIGITS
                ),
                cost=tally.sums[number].cost.quantize(CENT),
                unpriced_gpu_hours=round(tally.sums[number].unpriced / 3600, DIGITS),
                starts=tally.sums[number].starts,
            )
            for number, plan in enumerate(layout.plans)
        ),
        curve=tuple((end, round(gpus, 3), round(queue, 3)) for end, gpus, queue in tally.curve.means()),
        lines=lines,
    )
