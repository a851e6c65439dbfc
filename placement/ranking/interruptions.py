"""The work that interruptions of spot capacity cost: each one loses the work done since the last checkpoint.

If interruptions are memoryless at a rate of λ per hour, and each restart takes R hours, the c hours of work between two
checkpoints take (e^λc - 1)(1/λ + R) hours on average (J. T. Daly, "A higher order estimate of the optimum checkpoint
interval for restart dumps", Future Generation Computer Systems 22(3), 2006). To first order that is half an interval
lost each time (J. W. Young, "A first order approximation to the optimum checkpoint interval", CACM 17(9), 1974); the
exact form is also valid for jobs that run for days without a checkpoint.
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
"""The assumed run time of a job while nothing is known."""
RESTART_SECONDS = 300
"""The time to get new pods and read the checkpoint."""
MOST_TIMES = 1000.0
"""The largest factor by which interruptions make work dearer: beyond it, a job would hardly ever finish there."""
_HOUR = 3600
_FAR = 50.0
"""An exponent at which MOST_TIMES is far exceeded."""
_DIGITS = 6
_STEP = Decimal(1).scaleb(-_DIGITS)


@dataclass(frozen=True, slots=True, eq=False)
class Exposure:
    """The interruptions per hour of each pool of a fleet, and the seconds of work that a job does
    between checkpoints.
    """

    interruptions: Floats
    seconds: int
    """Of all its work, at a pace of 1."""
    most: int
    """The most that an interruption can lose: its checkpoint interval, or its deadline."""

    def slowdown(self, pools: Ints, paces: Floats | None = None) -> Floats:
        """The hours that an hour of running takes on each candidate (a row of `pools`), 1 without interruptions.

        Pods of all sets run at the same time: an interruption in one of the candidate's pools interrupts the job.
        `paces` has, per candidate, the hours that an hour of work takes there; None means 1.
        """
        return slowdown(self._rates(pools), self._exposed(paces))

    def _exposed(self, paces: Floats | None) -> Floats | int:
        if paces is None:
            return max(1, min(self.seconds, self.most))
        exposed: Floats = np.maximum(1, np.minimum(np.rint(self.seconds * paces), self.most))
        return exposed

    def risk(self, pools: tuple[int, ...], hourly_cost: Decimal | None, pace: float) -> InterruptionRisk | None:
        """The parts of the risk of one candidate; None without interruptions."""
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
        """False without interruptions."""
        self._runtimes = runtimes

    def seconds(self, job: JobRequest) -> int:
        """The seconds of work that the job does between checkpoints."""
        return exposed_seconds(job, self._runtimes)

    def of(self, job: JobRequest) -> Exposure | None:
        """The job's exposure; None without interruptions."""
        return None if self._interruptions is None else self._exposure(self._interruptions, job)

    def _exposure(self, rates: Floats, job: JobRequest) -> Exposure:
        return Exposure(rates, work_seconds(job, self._runtimes), most_exposed(job))


def slowdown(per_hour: Floats, seconds: Floats | int) -> Floats:
    """The hours that an hour of work takes at these rates, with `seconds` of work between checkpoints."""
    expected = np.minimum(per_hour * (seconds / _HOUR), _FAR)
    lost = np.divide(np.expm1(expected), expected, out=np.ones_like(expected), where=expected > 0)
    times: Floats = np.minimum(lost * (1 + per_hour * (RESTART_SECONDS / _HOUR)), MOST_TIMES)
    return times


def slowdown_of(per_hour: float, seconds: int) -> float:
    """Likewise for one rate."""
    return float(slowdown(np.array([per_hour], dtype=np.float64), max(1, seconds))[0])


def are_interrupted(clusters: Iterable[FleetCluster]) -> bool:
    """True if some flavor has interruptions."""
    return any(flavor.interruptions_per_hour for cluster in clusters for flavor in cluster.flavors.values())


def exposed_seconds(job: JobRequest, runtimes: Mapping[str, Runtime]) -> int:
    """The seconds of work that the job does between checkpoints: its whole expected run time if it writes none."""
    return max(1, min(work_seconds(job, runtimes), most_exposed(job)))


def most_exposed(job: JobRequest) -> int:
    """The most seconds of work that one interruption can lose."""
    return min(job.deadline_seconds or LONGEST_SECONDS, job.checkpoint_seconds or LONGEST_SECONDS)


def work_seconds(job: JobRequest, runtimes: Mapping[str, Runtime]) -> int:
    """The assumed duration of the job's work, whatever its deadline."""
    known = best_known(runtimes.get(job.kind), job.estimated_seconds, None)
    if known is None:
        return UNKNOWN_SECONDS
    return _rounded(known.p50_seconds) if known.runs else known.p50_seconds


def _rounded(seconds: int) -> int:
    """Rounds to three binary digits, so that jobs of one shape with similar run times are ranked together."""
    step = 1 << max(0, seconds.bit_length() - 3)
    return (seconds + step // 2) // step * step


def risk_text(risk: InterruptionRisk) -> str:
    """The text for users: `spot, about 6 % of the work expected to be lost`."""
    percent = risk.lost_share * 100
    share = f"about {percent:.0f} %" if percent >= 1 else "less than 1 %"
    return f"spot, {share} of the work expected to be lost"
