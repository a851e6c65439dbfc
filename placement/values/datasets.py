"""What a job reads and where it lies, and what bringing it to a cluster takes. Frozen values, free of any database."""

from dataclasses import dataclass
from decimal import Decimal

from clusters.engine.datasets import Place


@dataclass(frozen=True, slots=True)
class DataNeed:
    """A dataset that each run of a job reads, `size_bytes` of it; None: all of it, however much that is.

    `sources` is where it lies; without any nobody knows.
    """

    name: str
    size_bytes: int | None = None
    sources: tuple[Place, ...] = ()


@dataclass(frozen=True, slots=True)
class Move:
    """Data brought to a cluster from the cheapest of its places. `cost` is None where nobody knows the price, or the place."""

    data: str
    from_region: str
    size_bytes: int | None
    cost: Decimal | None


@dataclass(frozen=True, slots=True)
class Egress:
    """What bringing all of a job's data to a cluster costs: None if part of it is unknown. What lies there moves nowhere."""

    cost: Decimal | None
    moves: tuple[Move, ...] = ()
