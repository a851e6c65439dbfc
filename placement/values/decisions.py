"""The results of placement as frozen values without a database: where a job goes now, or why it waits.

Values that a cycle creates by the hundred thousand are named tuples: one costs a fifth of a frozen dataclass.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from typing import NamedTuple
from uuid import UUID

from .datasets import Egress
from .emissions import Emitted


class Reason(NamedTuple):
    """Why a job does not run on one cluster now. `code` is documented; `message` is for users, with numbers."""

    cluster: str
    code: str
    message: str
    is_for_good: bool = False
    """True if the cluster could not run it even when empty."""


class Closure(NamedTuple):
    """Why nodes are closed to some jobs: the code of the reason, and its sentence."""

    code: str
    message: str


class PodSetPlacement(NamedTuple):
    """Where the pods of one set go: the flavor, the domain, and the assumed nodes with the number of pods on each.

    `domain` is the path of the smallest domain that holds the set: zone, block, rack, then the clique or the node, down
    to `level`. An empty name is an unknown domain; an empty path is the whole cluster. `nodes` is ordered so that
    neighbours are close, which suits ranks.
    """

    name: str
    flavor: str
    domain: tuple[str, ...]
    nodes: Mapping[str, int]
    level: str = "cluster"


@dataclass(frozen=True, slots=True)
class InterruptionRisk:
    """The expected loss on spot capacity (`interruptions`). `lost_share` is the part of the job's time there that is
    lost. `hourly_cost` is the cost of an hour of work that is not lost; None without a price.
    """

    per_hour: float
    exposed_seconds: int
    lost_share: float
    hourly_cost: Decimal | None


class Pull(NamedTuple):
    """The image of a pod set on the nodes of its flavor in a cluster: `nodes` of `of_nodes` have it. Another takes
    `seconds` to pull it; 0 if all have it.
    """

    image: str
    nodes: int
    of_nodes: int
    seconds: int


class Placement(NamedTuple):
    """A decision to run this job there now. `amounts` are what its quota hold takes."""

    job_id: UUID
    cluster_id: UUID
    cluster: str
    pod_sets: tuple[PodSetPlacement, ...]
    amounts: Mapping[str, int]
    unit_price: Decimal | None
    currency: str
    hourly_cost: Decimal | None
    risk: InterruptionRisk | None = None
    """None where nothing is interrupted."""
    egress: Egress | None = None
    """None if the job names no data."""
    pace: float = 1.0
    """How many hours an hour of its work takes there (`pace`)."""
    pull: Pull | None = None
    """The slowest pull of its images; None if it is not known which nodes have them."""
    emitted: Emitted | None = None
    """None if its strategy does not count carbon."""


@dataclass(frozen=True, slots=True)
class Start:
    """When and where room is expected for a job.

    `nodes` is the number of nodes it would use; on `awaited` of them something must end first. Its pods run
    `pull_seconds` later.
    """

    at: datetime
    cluster: str
    nodes: int
    awaited: int
    pull_seconds: int = 0


class Wait(NamedTuple):
    """A decision to wait: the reason shown first, and the reason per cluster. `start` is when the room kept for it is
    expected. `went_first` is the path of another tenant of its organisation whose turn came first: users who may not see
    that tenant must not read it, so no message names it.
    """

    job_id: UUID
    code: str
    message: str
    per_cluster: tuple[Reason, ...] = ()
    start: Start | None = None
    went_first: str = ""


@dataclass(frozen=True, slots=True)
class KeptRoom:
    """The nodes of a cluster that are kept for a waiting job, since when, and until when at most.

    After `until` it is given up, and from `again` on nodes may be kept for the job again; None without such a bound.
    `idle` is what is free there after the cycle, in base units: `gpu`, and `cpu` of nodes without GPUs.
    """

    job_id: UUID
    cluster_id: UUID
    nodes: tuple[str, ...]
    since: datetime
    until: datetime | None = None
    again: datetime | None = None
    start: Start | None = None
    idle: Mapping[str, int] = field(default_factory=dict)

    def is_given_up(self, now: datetime) -> bool:
        """Whether it was kept as long as is allowed."""
        return self.until is not None and self.until <= now

    def rests(self, now: datetime) -> bool:
        """Whether it was given up, and nothing is kept for the job yet."""
        return self.is_given_up(now) and (self.again is None or now < self.again)


@dataclass(frozen=True, slots=True)
class Decisions:
    """The complete output of one cycle, in the order in which the jobs were considered."""

    placements: tuple[Placement, ...]
    waits: tuple[Wait, ...]
    kept: tuple[KeptRoom, ...] = ()
