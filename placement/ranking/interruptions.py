"""What interruptions of spot capacity cost in work: each one takes what was done since the last checkpoint.

Where interruptions come without memory at a rate of λ an hour, and each restart takes R hours, the c hours of work between
two checkpoints take (e^λc - 1)(1/λ + R) hours in the mean (J. T. Daly, "A higher order estimate of the optimum checkpoint
interval for restart dumps", Future Generation Computer Systems 22(3), 2006). To first order that is half an interval lost
each time (J. W. Young, "A first order approximation to the optimum checkpoint interval", CACM 17(9), 1974); the exact form
also holds for jobs that run for days without a checkpoint.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal

import numpy as np

from placement.fleet.fleet import Fleet
from placement.fleet.pools import Floats, Ints
from placement.values.decisions import InterruptionRisk
from placement.values.model import FleetCluster, JobRequest, Runtime

from .runtimes import LONGEST_SECONDS, best_known

UNKNOWN_SECONDS = 3600
"""How long a job is taken to run while nothing is known."""
RESTART_SECONDS = 300
"""What getting new pods and reading the checkpoint takes."""
MOST_TIMES = 1000.0
"""Work is not taken to cost more than so many times its price: such a job would hardly ever end there."""
_HOUR = 3600
_FAR = 50.0
"""An exponent by which MOST_TIMES is long passed."""
_DIGITS = 6
_STEP = Decimal(1).scaleb(-_DIGITS)


@dataclass(frozen=True, slots=True, eq=False)
class Exposure:
    """How often each pool of a fleet is interrupted an hour, and how many seconds of work a job does between checkpoints."""

    interruptions: Floats
    seconds: int
    """Of work in all, where an hour of it takes an hour."""
    most: int
    """More is never at stake: its checkpoint interval, or its deadline."""

    def slowdown(self, pools: Ints, paces: Floats | None = None) -> Floats:
        """How many hours an hour of running takes on each candidate (a row of `pools`), 1 where nothing is interrupted.

        Pods of all sets run at the same time: what interrupts one of the candidate's pools interrupts the job. `paces` tells per
        candidate how long an hour of work takes there; None: an hour.
        """
        return slowdown(self._rates(pools), self._exposed(paces))

    def _exposed(self, paces: Floats | None) -> Floats | int:
        if paces is None:
            return max(1, min(self.seconds, self.most))
        exposed: Floats = np.maximum(1, np.minimum(np.rint(self.seconds * paces), self.most))
        return exposed

    def risk(self, pools: tuple[int, ...], hourly_cost: Decimal | None, pace: float = 1.0) -> InterruptionRisk | None:
        """What the risk of one candidate is made of; None where nothing is interrupted."""
        paces = np.array([pace])
        row = np.array([pools], dtype=np.int64)
        rate = float(self._rates(row)[0])
        if not rate:
            return None
        times = round(float(self.slowdown(row, paces)[0]), _DIGITS)
        return InterruptionRisk(
            per_hour=round(rate, _DIGITS),
            exposed_seconds=int(np.max(self._exposed(paces))),
            lost_share=round(1 - 1 / times, _DIGITS),
            hourly_cost=None if hourly_cost is None else (hourly_cost * Decimal(str(times))).quantize(_STEP),
        )

    def _rates(self, pools: Ints) -> Floats:
        each: Floats = self.interruptions[pools]
        for column in range(1, pools.shape[1]):
            each[:, column] *= (pools[:, :column] != pools[:, [column]]).all(axis=1)
        rates: Floats = each.sum(axis=1)
        return rates


class Exposures:
    """The exposure of each job on a fleet."""

    def __init__(self, fleet: Fleet, runtimes: Mapping[str, Runtime]) -> None:
        rates = [pool.flavor.interruptions_per_hour for pool in fleet.pools]
        self._interruptions: Floats | None = np.array(rates, dtype=np.float64) if any(rates) else None
        self.matter = self._interruptions is not None
        """False where nothing is interrupted."""
        self._runtimes = runtimes

    def seconds(self, job: JobRequest) -> int:
        """How much work an interruption takes of the job, 0 where nothing is interrupted."""
        return exposed_seconds(job, self._runtimes) if self.matter else 0

    def of(self, job: JobRequest) -> Exposure | None:
        """None where nothing is interrupted."""
        return None if self._interruptions is None else self._exposure(self._interruptions, job)

    def _exposure(self, rates: Floats, job: JobRequest) -> Exposure:
        return Exposure(rates, work_seconds(job, self._runtimes), most_exposed(job))


def slowdown(per_hour: Floats, seconds: Floats | int) -> Floats:
    """How many hours an hour of work takes at these rates, with so much of it between checkpoints."""
    expected = np.minimum(per_hour * (seconds / _HOUR), _FAR)
    lost = np.divide(np.expm1(expected), expected, out=np.ones_like(expected), where=expected > 0)
    times: Floats = np.minimum(lost * (1 + per_hour * (RESTART_SECONDS / _HOUR)), MOST_TIMES)
    return times


def are_interrupted(clusters: Iterable[FleetCluster]) -> bool:
    """True if some flavor is."""
    return any(flavor.interruptions_per_hour for cluster in clusters for flavor in cluster.flavors.values())


def exposed_seconds(job: JobRequest, runtimes: Mapping[str, Runtime]) -> int:
    """How many seconds of work the job does between checkpoints: all it is expected to run if it writes none."""
    return max(1, min(work_seconds(job, runtimes), most_exposed(job)))


def most_exposed(job: JobRequest) -> int:
    """More than so many seconds of work no interruption takes."""
    return min(job.deadline_seconds or LONGEST_SECONDS, job.checkpoint_seconds or LONGEST_SECONDS)


def work_seconds(job: JobRequest, runtimes: Mapping[str, Runtime]) -> int:
    """How long the job's work is taken to run, however long it may."""
    known = best_known(runtimes.get(job.kind), job.estimated_seconds, None)
    if known is None:
        return UNKNOWN_SECONDS
    return _rounded(known.p50_seconds) if known.runs else known.p50_seconds


def _rounded(seconds: int) -> int:
    """To three binary digits, so that jobs of one shape that run about equally long are ranked together."""
    step = 1 << max(0, seconds.bit_length() - 3)
    return (seconds + step // 2) // step * step


def risk_text(risk: InterruptionRisk) -> str:
    """`spot, about 6 % of the work expected to be lost`, in words for people."""
    percent = risk.lost_share * 100
    share = f"about {percent:.0f} %" if percent >= 1 else "less than 1 %"
    return f"spot, {share} of the work expected to be lost"
