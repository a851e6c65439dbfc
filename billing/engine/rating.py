"""What a run costs: integer quantities times dated prices, in exact arithmetic.

An interval is cut at UTC midnights and where prices change. Inside a cut, the cost of a part is the difference of two
readings of one ever-growing total (`reading`), so that parts of any size add up to the whole, to the last digit.
Migration 0002 holds the same arithmetic in SQL and refuses a segment whose cost differs.
"""

from collections.abc import Iterable, Sequence
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
"""What a price is per hour of: a GPU (or slice, or share) of a GPU flavor; a CPU core of a CPU-only flavor."""


@dataclass(frozen=True, slots=True)
class PriceSpan:
    """A price of one unit for one hour (at most 6 decimal places), valid in [valid_from, valid_until)."""

    id: UUID
    unit_price: Decimal
    currency: str
    valid_from: datetime
    valid_until: datetime | None = None


@dataclass(frozen=True, slots=True)
class Load:
    """What a run occupies all the time that it runs. `metered_from` is when it began."""

    unit: Unit
    gpu_units: int
    cpu_millicores: int
    metered_from: datetime


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a run between two cuts. Without a price it costs nothing and has no currency."""

    start: datetime
    until: datetime
    gpu_milliseconds: int
    cpu_millicore_milliseconds: int
    price_id: UUID | None
    cost: Decimal
    currency: str


def rate(load: Load, start: datetime, until: datetime, prices: Iterable[PriceSpan]) -> tuple[Piece, ...]:
    """The pieces of [start, until), in order, without gaps. Instants are whole milliseconds; prices do not overlap."""
    spans = sorted(prices, key=lambda price: price.valid_from)
    cuts = _cuts(start, until, spans)
    return tuple(_piece(load, a, b, _price_at(spans, a)) for a, b in pairwise(cuts))


def reading(load: Load, price: PriceSpan, at: datetime) -> int:
    """Cost in 10**-12 of the currency since the run's latest cut before `at` (midnight, price change or its beginning).

    Rounded down: a day at one price loses less than one such unit.
    """
    return _reading(load, price, _base(load, price, at), at)


def whole_milliseconds(at: datetime) -> datetime:
    """The instant without what is finer than a millisecond."""
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


def _piece(load: Load, start: datetime, until: datetime, price: PriceSpan | None) -> Piece:
    milliseconds = (until - start) // MILLISECOND
    cost = 0
    if price is not None:
        base = _base(load, price, start)
        cost = _reading(load, price, base, until) - _reading(load, price, base, start)
    return Piece(
        start=start,
        until=until,
        gpu_milliseconds=load.gpu_units * milliseconds,
        cpu_millicore_milliseconds=load.cpu_millicores * milliseconds,
        price_id=price.id if price else None,
        cost=Decimal(f"{cost}e-{PLACES}"),
        currency=price.currency if price else "",
    )


def _base(load: Load, price: PriceSpan, at: datetime) -> datetime:
    return max(_midnight(at), price.valid_from, load.metered_from)


def _reading(load: Load, price: PriceSpan, base: datetime, at: datetime) -> int:
    milliseconds = (at - base) // MILLISECOND
    micros = int(price.unit_price.scaleb(6))
    if load.unit == "gpu":  # micros * GPU-ms * 10**6 / 3,600,000 ms an hour
        return micros * load.gpu_units * milliseconds * 5 // 18
    return micros * load.cpu_millicores * milliseconds // 3600  # and another 1000 millicores a core


def _price_at(spans: Sequence[PriceSpan], at: datetime) -> PriceSpan | None:
    for span in spans:
        if span.valid_from <= at and (span.valid_until is None or at < span.valid_until):
            return span
    return None


def _midnight(at: datetime) -> datetime:
    return at.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
