"""The data that a job reads, where it is stored, and the cost of moving it to a cluster. Frozen values without a
database.
"""

from dataclasses import dataclass
from decimal import Decimal
from uuid import UUID

from clusters.engine.datasets import Place


@dataclass(frozen=True, slots=True)
class DataNeed:
    """A dataset of which each run of a job reads `size_bytes`; None means all of it, of unknown size.

    `sources` lists the places that store it; empty if they are unknown. `stage`: where it is not and can be copied to, the job
    waits for the copy before it gets GPUs. `dataset_id` is the dataset that the name means; None if it is unknown.
    """

    name: str
    size_bytes: int | None = None
    sources: tuple[Place, ...] = ()
    stage: bool = False
    dataset_id: UUID | None = None


@dataclass(frozen=True, slots=True)
class Move:
    """Data moved to a cluster from its cheapest place. `cost` is None if the price or the place is unknown."""

    data: str
    from_region: str
    size_bytes: int | None
    cost: Decimal | None


@dataclass(frozen=True, slots=True)
class Egress:
    """The cost of moving all of a job's data to a cluster; None if part of it is unknown. Data already there is not
    moved.
    """

    cost: Decimal | None
    moves: tuple[Move, ...] = ()
