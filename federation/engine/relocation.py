"""Whether the gateway itself moves a running job, because it would soon be stopped where it runs (ADR 31).

Staying and moving are compared in seconds of the job's time. Moving costs the work since its last checkpoint, and a restart.
Staying costs the work that would be lost when it is stopped, a restart, and after the loss of a drained cluster the time until
somebody attests that. The gateway moves the job only if staying costs more by a margin.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from fractions import Fraction
from uuid import UUID

from placement.values.preemption import RESTART_SECONDS

MOVES_POLICIES = ("never", "when_needed", "when_cheaper")
"""The values of a job's field `moves`, the default first. Each allows what those before it allow."""
MARGIN_SECONDS = 60
"""By how much staying has to cost more than moving."""
MOST_MOVES_A_DAY = 3
"""How often the gateway itself moves a job in 24 hours; the database enforces it."""
REST = timedelta(minutes=30)
"""How long the gateway leaves a job alone after a move. Longer than a moved job avoids the cluster that it left."""
DRAINED_WITHIN = timedelta(hours=1)
"""When a drained cluster is expected to go away."""
HELD_SECONDS = 3600
"""How long a job is expected to be held after its cluster went away, until an administrator attests that."""
SPOT_NOTICE = timedelta(minutes=2)
"""How long after its notice a spot node is expected to go away."""
TERMINATION_TAINTS = (
    "aws-node-termination-handler/spot-itn",
    "aws-node-termination-handler/scheduled-maintenance",
    "cloud.google.com/impending-node-termination",
    "karpenter.sh/disrupted",
    "karpenter.sh/disruption",
    "ToBeDeletedByClusterAutoscaler",
)
"""Keys of taints with which providers and autoscalers announce that a node goes away."""


class Cause(StrEnum):
    """Why a run would be stopped where it is."""

    DRAIN = "drain"
    MAINTENANCE = "maintenance"
    SPOT = "spot"


@dataclass(frozen=True, slots=True)
class Notice:
    """A run is expected to be stopped at this time."""

    cause: Cause
    at: datetime


@dataclass(frozen=True, slots=True)
class MovableRun:
    """A run of a job that the gateway may move, and that saves its work every `checkpoint_seconds`.

    `ends_at` is when it ends if it stays, by the user's estimate, else by its deadline.
    """

    attempt_id: UUID
    job_id: UUID
    cluster_id: UUID
    started_at: datetime
    ends_at: datetime
    saved_at: datetime | None
    checkpoint_seconds: int
    notices: tuple[Notice, ...]
    moves_today: int = 0
    last_moved_at: datetime | None = None

    def lost_seconds(self, now: datetime) -> int:
        """The work that it repeats if it is stopped now."""
        ran = max(0, int((now - self.started_at).total_seconds()))
        if self.saved_at is not None:
            return min(ran, max(0, int((now - self.saved_at).total_seconds())))
        return ran % self.checkpoint_seconds

    def lost_later(self, now: datetime, at: datetime) -> int:
        """The work that it is expected to repeat if it is stopped at a later time: after its next checkpoint, half of what it
        does between two.
        """
        lost, ahead = self.lost_seconds(now), max(0, int((at - now).total_seconds()))
        return lost + ahead if lost + ahead < self.checkpoint_seconds else self.checkpoint_seconds // 2


@dataclass(frozen=True, slots=True)
class Relocation:
    """A decision to move a run, if another cluster has room for it. All in seconds of the job's time."""

    run: MovableRun
    notice: Notice
    lost_seconds: int
    cost_seconds: int
    stay_seconds: int

    @property
    def gain_seconds(self) -> int:
        """What moving saves."""
        return self.stay_seconds - self.cost_seconds


def decide(run: MovableRun, now: datetime) -> Relocation | None:
    """The move of a run, for the notice with which it gains most; None if it stays."""
    if run.moves_today >= MOST_MOVES_A_DAY or (run.last_moved_at is not None and now < run.last_moved_at + REST):
        return None
    lost = run.lost_seconds(now)
    found = [
        Relocation(run, notice, lost, lost + RESTART_SECONDS, _stay_seconds(run, notice, now))
        for notice in run.notices
        if run.ends_at > notice.at
    ]
    gaining = [one for one in found if one.gain_seconds > MARGIN_SECONDS]
    return max(gaining, key=lambda one: (one.gain_seconds, one.notice.cause), default=None)


def _stay_seconds(run: MovableRun, notice: Notice, now: datetime) -> int:
    held = HELD_SECONDS if notice.cause == Cause.DRAIN else 0
    return run.lost_later(now, notice.at) + RESTART_SECONDS + held


def chosen(
    runs: Sequence[MovableRun],
    now: datetime,
    running: Mapping[UUID, int],
    leaving: Mapping[UUID, int],
    share: Fraction,
) -> list[Relocation]:
    """The moves to try now, the most pressing first. Of each cluster, at most a share of its `running` attempts leave at the same
    time, and at least one may; `leaving` are those that already do.
    """
    found = [one for run in runs if (one := decide(run, now)) is not None]
    found.sort(key=lambda one: (one.notice.at, -one.gain_seconds, one.run.attempt_id))
    going = Counter(leaving)
    allowed: list[Relocation] = []
    for one in found:
        cluster = one.run.cluster_id
        if going[cluster] < most_leaving(running.get(cluster, 0), share):
            going[cluster] += 1
            allowed.append(one)
    return allowed


def most_leaving(running: int, share: Fraction) -> int:
    """How many attempts of a cluster may leave at the same time; none if the share is zero."""
    return max(1, int(running * share)) if share else 0
