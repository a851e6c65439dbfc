"""What decides whether a running job moves to a cheaper place, or to one where it meets its deadline.

Seconds are of the job's run where it is now, unless said otherwise; money is of all its pods, in one currency.
"""

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from uuid import UUID

from .model import FleetFlavor

SPOT = "spot"
"""The capacity type that can be taken away."""


@dataclass(frozen=True, slots=True)
class Side:
    """Where a job runs, or could run now. Of each flavor, `price_changes` are also those of the past, the oldest first."""

    cluster_id: UUID
    cluster: str
    flavors: tuple[FleetFlavor, ...]
    """By pod set."""
    pace: float = 1.0
    away_seconds: int = 0
    """How long no work is done when it starts there: new pods, pulls, and the read of the checkpoint; 0 where it runs."""
    egress: Decimal | None = Decimal(0)
    """What moving its data and its checkpoint there costs; None if that is not known."""

    @property
    def interruptions_per_hour(self) -> float:
        """Those of all its flavors: its pods run at the same time."""
        return sum({one.name: one.interruptions_per_hour for one in self.flavors}.values())

    @property
    def is_spot(self) -> bool:
        """Whether its pods can be taken away."""
        return any(one.capacity_type == SPOT for one in self.flavors)


@dataclass(frozen=True, slots=True)
class CourseOfRun:
    """What is known of a run. `least_left_seconds` is the least that it would still take where it is, None if that is not known;
    `most_left_seconds` the most.
    """

    lost_seconds: int
    least_left_seconds: int | None
    most_left_seconds: int
    exposed_seconds: int
    """The most that an interruption loses."""
    finish_by: datetime | None = None
    moves_today: int = 0
    saving_moves_today: int = 0
    """How many of these were for a lower price."""
    last_moved_at: datetime | None = None
    most_seconds: int | None = None
    """How long its next run may take, before it is stopped."""


@dataclass(frozen=True, slots=True)
class CheaperMove:
    """A decision to move to a cheaper place. Prices are an hour's, now. The saving is that of `counted_seconds`, the cost that of
    the move itself.
    """

    price_here: Decimal
    price_there: Decimal
    currency: str
    saving: Decimal
    cost: Decimal
    counted_seconds: int
    lost_seconds: int
    cheaper_since: datetime


@dataclass(frozen=True, slots=True)
class TimelyMove:
    """A decision to move to a place where the job meets its deadline. `ends_here_at` is when it would end at the latest where it is,
    after an interruption if it runs on spot capacity.
    """

    finish_by: datetime
    ends_here_at: datetime
    ends_there_at: datetime
    lost_seconds: int
    is_off_spot: bool
