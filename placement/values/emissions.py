"""What parts of a flavor emit, and what a job emits there."""

from dataclasses import dataclass
from decimal import Decimal
from typing import NamedTuple


@dataclass(frozen=True, slots=True)
class Emissions:
    """Grams of CO2 equivalents that a unit, a core and a GiB in use emit in an hour; None for a part without a rated power."""

    unit: Decimal | None = None
    core: Decimal | None = None
    gib: Decimal | None = None


class Emitted(NamedTuple):
    """What a job emits in an hour there, in grams of CO2 equivalents; None if that is not known."""

    grams: Decimal | None
