"""What consolidation reads and decides: running jobs that may move so that a larger one fits, and the plan of their moves.

Units as in `preemption`: work is counted in GPU-seconds, sizes in thousandths of a GPU.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

from .preemption import RESTART_SECONDS, RunningJob

CONSOLIDATION = ("never", "willing", "resumable", "any")
"""What a tenant's policy may allow: no moves; those of jobs whose users allow moves and that save their work; those of all
jobs that save their work; also those of jobs that then start from their beginning."""


@dataclass(frozen=True, slots=True)
class Movable:
    """A running job that may be moved, if the policy of its tenant allows it. The request with which it would wait again is
    in `Snapshot.returning`.
    """

    run: RunningJob
    is_willing: bool = False
    """Whether its user lets the gateway move it."""
    saves_work: bool = False
    """Whether it continues from a checkpoint; else it starts from its beginning."""
    flavors: tuple[str, ...] = ()
    """Where its newest checkpoint can be resumed; empty: anywhere."""
    moves_today: int = 0
    """How often the gateway moved it in the last 24 hours."""
    rests_until: datetime | None = None
    """It is not moved again before this time."""

    def lost_seconds(self, now: datetime) -> int:
        """The seconds of work that it repeats if it is moved now."""
        if self.saves_work:
            return self.run.lost_seconds(now)
        return max(0, int((now - self.run.started_at).total_seconds()))

    def cost(self, now: datetime) -> float:
        """What a move costs, in GPU-seconds. It doubles, triples … with the times it was stopped for others or moved."""
        before = self.run.times_preempted + self.moves_today
        return (self.lost_seconds(now) + RESTART_SECONDS) * self.run.gpu_milli / 1000 * (1 + before)


@dataclass(frozen=True, slots=True)
class MovedForOthers:
    """How many jobs were moved within 24 hours so that jobs of others fit, by user and by tenant path."""

    users: Mapping[UUID, int] = field(default_factory=dict, hash=False)
    tenants: Mapping[str, int] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True)
class Consolidating:
    """The rules of consolidation, and what may be moved now."""

    share: float
    """The moves for a job may cost at most this part of what it gains."""
    most_moves: int
    """The most jobs that move for one."""
    movable: tuple[Movable, ...] = ()
    busy: frozenset[UUID] = frozenset()
    """The clusters on which a plan is being carried out."""
    left: Mapping[UUID, int] = field(default_factory=dict, hash=False)
    """By cluster from which jobs moved in the last hour, how many more may; any number where none did."""
    resting: frozenset[UUID] = frozenset()
    """Jobs for which no new plan is made yet, because they did not start in time after an earlier one."""
    keep_seconds: int = 600
    """How long a plan keeps its places at most."""
    moved_for_others: MovedForOthers = MovedForOthers()

    def most_from(self, cluster_id: UUID) -> int:
        """How many jobs may move away from nodes of the cluster now."""
        return min(self.most_moves, self.left.get(cluster_id, self.most_moves))


@dataclass(frozen=True, slots=True)
class PlannedMove:
    """A job that moves, what that costs in GPU-seconds, and the place that is kept for it. `amounts` are what its new hold
    takes.
    """

    movable: Movable
    lost_seconds: int
    cost: float
    cluster_id: UUID
    cluster: str
    nodes: tuple[str, ...]
    amounts: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Consolidation:
    """A decision: these jobs move so that a waiting one gets this place. `gain` is the work, in GPU-seconds, that it does
    earlier than without them.
    """

    job_id: UUID
    size_milli: int
    cluster_id: UUID
    cluster: str
    nodes: tuple[str, ...]
    amounts: Mapping[str, int]
    moves: tuple[PlannedMove, ...]
    gain: float
    otherwise_at: datetime | None
    """When it would be expected to start without them, if that is known."""
    is_exact: bool
    """Whether no cheaper choice exists on that cluster; else it is the best that was found."""

    @property
    def cost(self) -> float:
        """In GPU-seconds."""
        return sum(one.cost for one in self.moves)

    @property
    def lost(self) -> float:
        """The work that is repeated, in GPU-seconds."""
        return sum(one.lost_seconds * one.movable.run.gpu_milli / 1000 for one in self.moves)
