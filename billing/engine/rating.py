"""The cost of a run: integer quantities times dated prices, in exact arithmetic.

An interval is cut at UTC midnights and at price changes. Inside a cut, the cost of a part is the difference of two
readings of one cumulative total (`reading`). So the costs of parts of any size add up exactly to the cost of the whole.
`sql/prices.sql` has the same arithmetic in SQL and refuses a segment whose cost differs.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from itertools import pairwise
from typing import Literal
from uuid import UUID

MILLISECOND = timedelta(milliseconds=1)
DAY = timedelta(days=1)
PLACES = 12
"""Decimal places of a stored cost."""
Unit = Literal["gpu", "core"]
"""What a unit price is for, per hour: a GPU (or slice, or share) of a GPU flavor; a CPU core of a CPU-only flavor."""
READINGS_AN_HOUR = 460_800
"""The unit that the parts of a reading are counted in (GPU-hours 128,000, millicore-hours 128, MiB-hours 125): their
sum is divided, and rounded, only once.
"""


@dataclass(frozen=True, slots=True)
class PriceSpan:
    """A price of one unit for one hour (at most 6 decimal places), valid in [valid_from, valid_until).

    `cpu_price` is per core and `memory_price` per GiB, in addition to the unit's price; None if the unit's price
    includes them. Readings count from `counted_from`, which is earlier than `valid_from` in the rest of a price that a
    correction cut; None: from `valid_from`.
    """

    id: UUID
    unit_price: Decimal
    currency: str
    valid_from: datetime
    valid_until: datetime | None = None
    cpu_price: Decimal | None = None
    memory_price: Decimal | None = None
    counted_from: datetime | None = None


@dataclass(frozen=True, slots=True)
class Load:
    """What a run occupies while it runs. `metered_from` is when it began."""

    unit: Unit
    gpu_units: int
    cpu_millicores: int
    metered_from: datetime
    memory_mib: int = 0

    @property
    def is_guest(self) -> bool:
        """Whether it uses no GPU of a flavor that is sold by the GPU: the GPU's price does not apply to it."""
        return self.unit == "gpu" and not self.gpu_units


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a run between two cuts. Without a price it costs nothing and has no currency."""

    start: datetime
    until: datetime
    gpu_milliseconds: int
    cpu_millicore_milliseconds: int
    memory_mib_milliseconds: int
    price_id: UUID | None
    cost: Decimal
    currency: str


@dataclass(frozen=True, slots=True)
class Tariff:
    """A price as it applies to a load. One that `stands_in` belongs to a CPU-only flavor and applies to a guest of
    another flavor.
    """

    load: Load
    span: PriceSpan
    stands_in: bool = False

    def base(self, at: datetime) -> datetime:
        """The latest cut at or before `at`."""
        return max(_midnight(at), self.span.counted_from or self.span.valid_from, self.load.metered_from)

    def reading_from(self, base: datetime, at: datetime) -> int:
        """Cost in 10**-12 of the currency since `base`, rounded down: a day at one price loses less than
        one such unit.
        """
        return self.per_millisecond * ((at - base) // MILLISECOND) // READINGS_AN_HOUR

    @property
    def per_millisecond(self) -> int:
        """What a millisecond costs, in 1 / READINGS_AN_HOUR of 10**-12."""
        load, span = self.load, self.span
        unit, memory = _micros(span.unit_price), _micros(span.memory_price)
        by_core = self.stands_in or load.unit == "core"
        gpu, cpu = (0, unit) if by_core else (unit, _micros(span.cpu_price))
        return gpu * load.gpu_units * 128_000 + cpu * load.cpu_millicores * 128 + memory * load.memory_mib * 125


def rate(
    load: Load, start: datetime, until: datetime, prices: Iterable[PriceSpan], stand_ins: Iterable[PriceSpan] = ()
) -> tuple[Piece, ...]:
    """The pieces of [start, until), in order, without gaps. Times are whole milliseconds; prices do not overlap.

    A guest pays its flavor's prices for cores and memory. If the flavor has neither, the guest pays the `stand_ins`,
    the prices of a CPU-only flavor. Without these it has no price.
    """
    return tuple(_piece(load, a, b, tariff) for a, b, tariff in tariffs_of(load, start, until, prices, stand_ins))


def tariffs_of(
    load: Load, start: datetime, until: datetime, prices: Iterable[PriceSpan], stand_ins: Iterable[PriceSpan] = ()
) -> Iterator[tuple[datetime, datetime, Tariff | None]]:
    """The same pieces, each with the price that applies to it as `rate` chooses it; None: no price."""
    tariffs = [Tariff(load, span) for span in prices if not load.is_guest or _asks_of_guests(span)]
    if load.is_guest:
        tariffs += [Tariff(load, span, stands_in=True) for span in stand_ins]
    for a, b in pairwise(_cuts(start, until, [tariff.span for tariff in tariffs])):
        yield a, b, _tariff_at(tariffs, a)


def _asks_of_guests(span: PriceSpan) -> bool:
    return span.cpu_price is not None or span.memory_price is not None


def _micros(price: Decimal | None) -> int:
    return int(price.scaleb(6)) if price is not None else 0


def whole_milliseconds(at: datetime) -> datetime:
    """The time truncated to a millisecond."""
    return at.replace(microsecond=at.microsecond // 1000 * 1000)


def _cuts(start: datetime, until: datetime, spans: Sequence[PriceSpan]) -> list[datetime]:
    cuts = {start, until}
    midnight = _midnight(start) + DAY
    while midnight < until:
        cuts.add(midnight)
        midnight += DAY
    changes = [change for span in spans for change in (span.valid_from, span.valid_until) if change is not None]
    cuts.update(change for change in changes if start < change < until)
    return sorted(cuts)


def _piece(load: Load, start: datetime, until: datetime, tariff: Tariff | None) -> Piece:
    milliseconds = (until - start) // MILLISECOND
    cost = 0
    if tariff is not None:
        base = tariff.base(start)
        cost = tariff.reading_from(base, until) - tariff.reading_from(base, start)
    return Piece(
        start=start,
        until=until,
        gpu_milliseconds=load.gpu_units * milliseconds,
        cpu_millicore_milliseconds=load.cpu_millicores * milliseconds,
        memory_mib_milliseconds=load.memory_mib * milliseconds,
        price_id=tariff.span.id if tariff else None,
        cost=Decimal(f"{cost}e-{PLACES}"),
        currency=tariff.span.currency if tariff else "",
    )


def _tariff_at(tariffs: Sequence[Tariff], at: datetime) -> Tariff | None:
    """The price in force; a flavor's own price takes precedence over a stand-in."""
    for tariff in tariffs:
        span = tariff.span
        if span.valid_from <= at and (span.valid_until is None or at < span.valid_until):
            return tariff
    return None


def _midnight(at: datetime) -> datetime:
    return at.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
