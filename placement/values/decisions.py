"""What placement answers, as frozen values free of any database: where a job goes now, or why it waits.

What a cycle makes by the hundred thousand is a named tuple: making one costs a fifth of a frozen dataclass.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import NamedTuple
from uuid import UUID

from .datasets import Egress


class Reason(NamedTuple):
    """Why a job does not run on one cluster now. `code` is documented; `message` is for people, with numbers."""

    cluster: str
    code: str
    message: str
    is_for_good: bool = False
    """True if the cluster could not run it even when empty."""


class PodSetPlacement(NamedTuple):
    """Where the pods of one set go: the flavor, the domain, and the assumed nodes with how many pods each.

    `domain` is the path of the smallest domain that holds the set: zone, block, rack, then the clique or the node, down
    to `level`; empty names stand for unknown ones and the path is empty for the whole cluster. `nodes` is in an order in
    which neighbours are close, fit for ranks.
    """

    name: str
    flavor: str
    domain: tuple[str, ...]
    nodes: Mapping[str, int]
    level: str = "cluster"


@dataclass(frozen=True, slots=True)
class InterruptionRisk:
    """What a job must expect of spot capacity (`interruptions`). `lost_share` is the part of its time there that is lost,
    and `hourly_cost` what an hour of work costs that is not; None without a price.
    """

    per_hour: float
    exposed_seconds: int
    lost_share: float
    hourly_cost: Decimal | None


class Placement(NamedTuple):
    """Run this job there, now. `amounts` are what its quota hold takes."""

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
    """None for a job that names no data."""
    pace: float = 1.0
    """How long an hour of its work takes there (`pace`)."""


@dataclass(frozen=True, slots=True)
class Start:
    """When and where room is expected for a job.

    `nodes` is how many it would take; on `awaited` of them something has to end first.
    """

    at: datetime
    cluster: str
    nodes: int
    awaited: int


class Wait(NamedTuple):
    """Not now: the one reason shown first, and the reason per cluster. `start`: when room kept for it is expected."""

    job_id: UUID
    code: str
    message: str
    per_cluster: tuple[Reason, ...] = ()
    start: Start | None = None


@dataclass(frozen=True, slots=True)
class Decisions:
    """One cycle's whole output, in queue order."""

    placements: tuple[Placement, ...]
    waits: tuple[Wait, ...]
