"""The counters of a replay: GPU time, cost, lost work, and the load of the fleet and the queue over time."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import TYPE_CHECKING

from .figures import Curve, Figures, JobLine, figures_of
from .fragments import Fragments
from .values import HOUR, WHOLE, TraceJob
from .world import Layout, Shelves

if TYPE_CHECKING:
    from .simulation import JobRun


@dataclass(slots=True)
class _Meter:
    """A running job's bill."""

    cluster: int
    gpus: Decimal
    price: Decimal | None
    since: float
    started: float
    milli: int


@dataclass(slots=True)
class Sums:
    """A cluster's sums so far: GPU time in seconds within the window, cost over the whole replay."""

    held: float = 0.0
    cost: Decimal = field(default_factory=Decimal)
    unpriced: float = 0.0
    """GPU seconds without a price."""
    starts: int = 0


class Tally:
    """The counters of one replay."""

    def __init__(self, layout: Layout, since: float, until: float, samples: int) -> None:
        self.layout, self.since, self.until = layout, since, until
        self.sums = [Sums() for _ in layout.plans]
        self.lost = 0.0
        """GPU seconds of work within the window that had to be repeated."""
        self.failures = self.interruptions = self.preemptions = self.moves = self.late = 0
        self.down = 0.0
        """GPU seconds within the window of nodes that were down."""
        self._meters: dict[int, _Meter] = {}
        self._now = 0.0
        self._allocated = 0
        self.curve = Curve(samples)
        self.fragmentation: list[float] = []
        self._next_sample = since
        self._step = max(1.0, (until - since) / max(1, samples))
        self._fragments: Fragments | None = None

    def expect(self, jobs: Sequence[TraceJob]) -> None:
        """Sets the usual pods."""
        self._fragments = Fragments(self.layout, jobs)

    def advance(self, now: float, truth: Shelves, queued: int) -> None:
        """Accounts for the time since the last call, in which nothing else happened."""
        if now > self._now:
            self.curve.add(self._now, now, self._allocated / WHOLE, queued)
            seconds = self._inside(self._now, now)
            if seconds:
                self.down += seconds * float(self.layout.gpus[truth.is_down].sum())
            if self._fragments is not None and self._next_sample <= now and self.since <= now <= self.until:
                self.fragmentation.append(self._fragments.share(truth))
                self._next_sample = now + self._step
        self._now = now

    def _inside(self, start: float, end: float) -> float:
        return max(0.0, min(end, self.until) - max(start, self.since))

    def start(self, number: int, job: TraceJob, cluster: int, price: Decimal | None, now: float) -> None:
        """A job takes its GPUs."""
        gpus = Decimal(job.milli) / WHOLE
        self._meters[number] = _Meter(cluster, gpus, price, now, now, job.milli)
        self._allocated += job.milli
        self.sums[cluster].starts += 1

    def charge_to(self, number: int, now: float) -> None:
        """Charges a running job up to now."""
        meter = self._meters[number]
        sums = self.sums[meter.cluster]
        if meter.price is None:
            sums.unpriced += (now - meter.since) * float(meter.gpus)
        else:
            sums.cost += meter.price * meter.gpus * Decimal(round((now - meter.since) * WHOLE)) / WHOLE / int(HOUR)
        meter.since = now

    def reprice(self, number: int, price: Decimal) -> None:
        """Sets the running job's price per GPU and hour from now on."""
        self._meters[number].price = price

    def stop(self, number: int, now: float) -> None:
        """A job frees its GPUs."""
        self.charge_to(number, now)
        meter = self._meters.pop(number)
        self._allocated -= meter.milli
        self.sums[meter.cluster].held += self._inside(meter.started, now) * meter.milli / WHOLE

    def lose(self, job: TraceJob, start: float, end: float) -> None:
        """A run was interrupted: its work between these times must be repeated."""
        self.preemptions += 1
        self.lost += self._inside(start, end) * job.milli / WHOLE

    def figures(
        self, gateway: str, runs: Sequence["JobRun"], unplaceable: Sequence["JobRun"], now: float
    ) -> Figures:  # fmt: skip
        """All figures of the replay."""
        lines = tuple(_line(run, self.layout) for run in runs)
        never = tuple(_line(run, self.layout) for run in unplaceable)
        return figures_of(gateway, self, lines, never, now)


def _line(run: "JobRun", layout: Layout) -> JobLine:
    return JobLine(
        job=run.job,
        cluster=layout.plans[run.cluster].name if run.cluster >= 0 else "",
        flavor=run.flavor,
        first_started=run.first_started,
        finished=run.finished,
        racks=run.racks,
        blocks=run.blocks,
        tries=run.tries,
        lost_seconds=run.lost_seconds,
    )
