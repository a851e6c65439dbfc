"""Where a job can still finish by its deadline, and until when it may run on spot capacity.

The rule is that of Wu et al., "Can't Be Late: Optimizing Spot Instance Savings under Deadlines" (NSDI 2024): a job stays on
capacity that can be taken away as long as all of its work, after one more interruption, still fits before the deadline on
capacity that cannot. So an interruption at any time leaves enough time, and a job that was in time at its submission is never
late because of spot. Work is taken as long as it may be, and each start as `START_SECONDS`.

Paces are the hours that an hour of work takes (`pace`).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

import numpy as np

from placement.fleet.pools import Floats, Ints, Mask
from placement.values.model import JobRequest, Runtime

from .interruptions import RESTART_SECONDS
from .runtimes import LONGEST_SECONDS

START_SECONDS = RESTART_SECONDS
"""To get new pods, and read the checkpoint."""
MARGIN_SECONDS = 300
"""What is kept for the gateway itself: rounds, the time to stop a run, and clusters that answer slowly."""
ALL_LEFT = -LONGEST_SECONDS
"""The `worked_seconds` of a job that was just moved for its deadline: as if nothing were in time."""
LEAST_LEFT = 10
"""Of work that should have ended already, this part of all is assumed to be left."""


@dataclass(frozen=True, slots=True)
class Haste:
    """A job's deadline, and what it still has to do. Seconds are of work, at a pace of 1."""

    finish_by: datetime
    left_seconds: int
    """The most that is left, if it stops now."""
    exposed_seconds: int
    """The most that an interruption loses."""

    def slack(self, now: datetime, pace: float, start_seconds: float = START_SECONDS) -> float:
        """The seconds that are left over if it starts now at this pace, and is not interrupted; negative if it is late."""
        return (self.finish_by - now).total_seconds() - start_seconds - self.left_seconds * pace

    def slack_after_loss(self, now: datetime, pace: float, relied: float) -> float:
        """Likewise on spot capacity that is taken away just before the next checkpoint, if the job then continues at the pace
        `relied` on capacity that is not.
        """
        return self.slack(now, relied) - START_SECONDS - self.exposed_seconds * pace - MARGIN_SECONDS


def haste_of(job: JobRequest, runtimes: Mapping[str, Runtime], now: datetime) -> Haste | None:
    """The deadline of a waiting job, as if it were submitted now if it is not yet; None without one."""
    if job.finish_within_seconds is None:
        return None
    bound = longest_work(job, runtimes)
    left = max(bound - job.worked_seconds, bound // LEAST_LEFT)
    exposed = left if job.checkpoint_seconds is None else min(left, job.checkpoint_seconds)
    return Haste(finish_by_of(job.submitted_at or now, job.finish_within_seconds), left, exposed)


def finish_by_of(submitted_at: datetime, within_seconds: int) -> datetime:
    """The deadline."""
    return submitted_at + timedelta(seconds=within_seconds)


def longest_work(job: JobRequest, runtimes: Mapping[str, Runtime]) -> int:
    """The most seconds of work that the job is expected to have, at a pace of 1: its user's estimate, or nine in ten of its past
    runs if they took longer. Without both, the time after which a run is stopped.
    """
    known, said = runtimes.get(job.kind), job.estimated_seconds or 0
    learned = 0 if known is None or (said and known.basis == "pods") else known.p90_seconds
    most = LONGEST_SECONDS if job.deadline_seconds is None else job.deadline_seconds
    return min(max(said, learned) or most, most)


def relied_pace(haste: Haste, now: datetime, paces: Floats) -> float | None:
    """The pace that the job can rely on, of those on capacity that is not taken away: the slowest at which it is in time; None
    if it is late at all of them.
    """
    in_time = [float(pace) for pace in np.unique(paces) if haste.slack(now, float(pace)) >= 0]
    return max(in_time, default=None)


def late_places(haste: Haste, now: datetime, paces: Floats, is_spot: Mask, serves: Mask) -> Ints:
    """Per place 1 if the job would be late there, and 1 more on spot capacity if an interruption could make it late. `serves` are the
    places that the job can rely on if they are not spot.
    """
    late: Mask = haste.slack(now, 1.0) - haste.left_seconds * (paces - 1.0) < 0
    relied = relied_pace(haste, now, paces[serves & ~is_spot])
    if relied is None:
        return late.astype(np.int64) + is_spot
    lost = haste.exposed_seconds * (paces - 1.0)
    after_loss: Mask = haste.slack_after_loss(now, 1.0, relied) - lost < 0
    return late.astype(np.int64) + (is_spot & after_loss)
