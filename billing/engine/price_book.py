"""Which prices a rate has by date, and what a file makes of them.

The book of a rate is what each time costs with the corrections of past prices: a correction stands in it like a price. Of past time
only the amounts count; how often spot capacity is interrupted matters for what placement decides from now on.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from decimal import Decimal
from itertools import pairwise, zip_longest
from typing import Literal

from .corrected import Correction, corrected_spans
from .rating import PriceSpan

NEVER = datetime.max.replace(tzinfo=UTC)
"""Stands for an end that is open."""
Action = Literal["create", "change", "end", "withdraw"]
ACTIONS: tuple[Action, ...] = ("create", "change", "end", "withdraw")


@dataclass(frozen=True, slots=True)
class Values:
    """What a price says: per unit, core and GiB and hour. None: the unit's price includes it; interruptions: the default."""

    unit_price: Decimal
    currency: str
    cpu_price: Decimal | None = None
    memory_price: Decimal | None = None
    interruptions_per_hour: Decimal | None = None

    @property
    def amounts(self) -> tuple[Decimal, str, Decimal | None, Decimal | None]:
        """What it charges."""
        return self.unit_price, self.currency, self.cpu_price, self.memory_price


@dataclass(frozen=True, slots=True)
class BookPrice:
    """The price of a rate in [start, until); None: until another begins, or for good."""

    start: datetime
    until: datetime | None
    values: Values

    @property
    def end(self) -> datetime:
        """`until` as a time."""
        return self.until or NEVER


Book = tuple[BookPrice, ...]
"""Of one rate, by start, without overlaps."""


@dataclass(frozen=True, slots=True)
class Difference:
    """Time whose price a file changes to `values`; None: it has none then."""

    start: datetime
    until: datetime | None
    values: Values | None


@dataclass(frozen=True, slots=True)
class Change:
    """What a file changes at the price that begins at `start`. `before` is None if no price begins then, `after` if none does
    any longer.
    """

    action: Action
    start: datetime
    before: BookPrice | None
    after: BookPrice | None


def book_of(
    prices: Iterable[tuple[PriceSpan, Decimal | None]], corrections: Iterable[Correction], now: datetime
) -> Book:
    """The book of a rate: its prices, each with its interruptions, and its corrections. Times of equal prices that adjoin are one."""
    listed = list(prices)
    often = {span.id: interruptions for span, interruptions in listed}
    found: list[BookPrice] = []
    for span in corrected_spans([span for span, _ in listed], corrections):
        values = Values(span.unit_price, span.currency, span.cpu_price, span.memory_price, often.get(span.id))
        last = found[-1] if found else None
        if last is None or last.until != span.valid_from or not _alike(last.values, values, span.valid_from, now):
            found.append(BookPrice(span.valid_from, span.valid_until, values))
        else:
            kept = values if span.id in often else last.values
            found[-1] = BookPrice(last.start, span.valid_until, kept)
    return tuple(found)


def wanted_book(present: Book, file: Sequence[BookPrice], now: datetime, *, prune: bool) -> Book:
    """The book with the prices of a file. A price that the file does not have stays; with `prune`, not if it begins later."""
    kept = [
        replace(one, until=None) if after is not None and after.start == one.until else one
        for one, after in zip_longest(present, present[1:])
        if not (prune and one.start > now)
    ]
    named = {one.start for one in file}
    by_start = {one.start: one for one in [*kept, *file]}
    ordered: list[BookPrice] = []
    for start in sorted(by_start):
        one, last = by_start[start], ordered[-1] if ordered else None
        if (
            last is not None
            and start not in named
            and last.end >= start
            and _alike(last.values, one.values, start, now)
        ):
            continue  # the book will have one price of both
        ordered.append(one)
    return tuple(
        one if after is None else replace(one, until=min(one.end, after.start))
        for one, after in zip_longest(ordered, ordered[1:])
    )


def ended_book(present: Book, now: datetime) -> Book:
    """The book of a rate whose prices end now."""
    return tuple(replace(one, until=min(one.end, now)) for one in present if one.start < now)


def differences(present: Book, wanted: Book, now: datetime) -> tuple[Difference, ...]:
    """The time that has another price in `wanted`, in order; time that adjoins and gets the same price is one."""
    cuts = sorted({now, NEVER, *(at for one in (*present, *wanted) for at in (one.start, one.end))})
    found: list[Difference] = []
    for start, until in pairwise(cuts):
        old, new = _at(present, start), _at(wanted, start)
        if old == new or (old is not None and new is not None and until <= now and old.amounts == new.amounts):
            continue
        adjoins = bool(found) and found[-1].until == start and found[-1].values == new
        found.append(Difference(found.pop().start if adjoins else start, until, new))
    return tuple(replace(one, until=None) if one.until == NEVER else one for one in found)


def changes(present: Book, wanted: Book, moved: Sequence[Difference]) -> tuple[Change, ...]:
    """What the differences are, price by price: what begins, what is another price, what ends and what is withdrawn."""
    old = {one.start: one for one in present}
    new = {one.start: one for one in wanted}
    found = [Change("withdraw", one.start, one, None) for one in present if one.start not in new and _moves(one, moved)]
    for one in wanted:
        before = old.get(one.start)
        if _moves(one, moved, one.values):
            found.append(Change("change" if before else "create", one.start, before, one))
        elif _ends_at(one, moved):
            found.append(Change("end", one.start, before or _price_at(present, one.start), one))
    return tuple(sorted(found, key=lambda one: (one.start, one.action)))


def _ends_at(one: BookPrice, moved: Sequence[Difference]) -> bool:
    found = bisect_left(moved, one.end, key=_start)
    return found < len(moved) and moved[found].start == one.until and moved[found].values is None


def _moves(one: BookPrice, moved: Sequence[Difference], values: Values | None = None) -> bool:
    first = max(bisect_right(moved, one.start, key=_start) - 1, 0)
    past = bisect_left(moved, one.end, key=_start)
    return any(
        (each.until or NEVER) > one.start and (values is None or each.values == values) for each in moved[first:past]
    )


def _at(book: Book, at: datetime) -> Values | None:
    found = _price_at(book, at)
    return None if found is None else found.values


def _price_at(book: Book, at: datetime) -> BookPrice | None:
    found = bisect_right(book, at, key=_start) - 1
    return book[found] if found >= 0 and at < book[found].end else None


def _start(one: BookPrice | Difference) -> datetime:
    return one.start


def _alike(one: Values, other: Values, at: datetime, now: datetime) -> bool:
    return one.amounts == other.amounts and (at <= now or one == other)
