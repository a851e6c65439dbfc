"""What the ledger posts for a tenant's day: a pure function of its segments, the prices, and what was posted.

A day is what one tenant used in one cluster on one flavor between two UTC midnights. Its `usage` entries add up to what
its segments cost: if a late report shortened a run, the next one takes the difference back. If corrections make that another sum, every entry that still counts is reversed, and one `reentry` has
the corrected sum. The tenant's expense is debited (positive), the cluster's cost pool credited.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime
from decimal import Decimal
from fractions import Fraction
from hashlib import sha256
from typing import TypeAlias
from uuid import UUID

from .corrected import Correction, corrected_spans
from .rating import MILLISECOND, PLACES, Load, Piece, PriceSpan, rate

SCALE: int = 10**PLACES
Sums: TypeAlias = Mapping[str, int]
"""Money by currency, in 10**-12."""


@dataclass(frozen=True, slots=True)
class DayKey:
    """Which day of whom, where."""

    organisation_id: UUID
    tenant_id: UUID
    tenant_path: str
    cluster_id: UUID
    flavor: str
    day: date

    @property
    def name(self) -> str:
        """The middle of its entries' keys."""
        path = sha256(self.tenant_path.encode()).hexdigest()[:12]
        return f"{self.day}/{self.cluster_id}/{self.tenant_id}/{self.flavor}/{path}"


@dataclass(frozen=True, slots=True)
class ShareOf:
    """What an entry is for that is no tenant's day: a pool, the share of who had the path then, or whatever a conversion is of."""

    cluster_id: UUID | None = None
    flavor: str = ""
    tenant_path: str = ""
    tenant_id: UUID | None = None


@dataclass(frozen=True, slots=True)
class RatedSegment:
    """A recorded segment: what it observed, and what it cost at the price that applied then."""

    load: Load
    capacity_type: str
    flavor: str
    cpu_flavor: str
    start: datetime
    until: datetime
    cost: Decimal
    currency: str
    run_id: UUID | None = None

    @property
    def quantity(self) -> int:
        """What it used, in thousandths of a unit times milliseconds."""
        return _quantity(self.load, self.start, self.until)


@dataclass(frozen=True, slots=True)
class PriceBook:
    """The prices and corrections of one rate."""

    prices: tuple[PriceSpan, ...] = ()
    corrections: tuple[Correction, ...] = ()


Books: TypeAlias = Mapping[tuple[str, str], PriceBook]
"""By flavor and capacity type, of one cluster."""


@dataclass(frozen=True, slots=True)
class Priced:
    """What a converted amount was before: the amount in the currency of its price, and the rate with its day and source."""

    amount: Decimal
    currency: str
    rate: Decimal
    rate_day: date
    source: str

    @property
    def text(self) -> str:
        """Its part of an entry's canonical text."""
        return f"\t{money(units(self.amount)):f}\t{self.currency}\t{self.rate:.18f}\t{self.rate_day}\t{self.source}"


@dataclass(frozen=True, slots=True)
class Line:
    """A debit (positive) or credit of an account such as `tenant_expense:UUID`.

    `quantity` says what was used for it, in thousandths of a unit times milliseconds, at a tenant's expense of usage; None
    if it is not known. It is no part of the canonical text. `priced`: of a converted amount.
    """

    account: str
    currency: str
    amount: Decimal
    quantity: int | None = None
    priced: Priced | None = None

    @property
    def order(self) -> tuple[str, str, str]:
        """Its place in the canonical text."""
        return self.account, self.currency, self.priced.currency if self.priced else ""


@dataclass(frozen=True, slots=True)
class Entry:
    """A posting. `reverses` is the key of the entry that it reverses, `converts` of the one whose amounts it converts;
    `correction` is the latest one that it counts.
    """

    key: str
    kind: str
    organisation_id: UUID
    charge_day: date
    lines: tuple[Line, ...]
    day: DayKey | ShareOf | None = None
    reverses: str = ""
    correction: int | None = None
    reason: str = ""
    converts: str = ""

    @property
    def text(self) -> str:
        """Its canonical text: equal entries have the same bytes. The database computes the same."""
        day = self.day
        head: tuple[str, ...] = (
            self.key, self.kind, str(self.organisation_id), str(day.tenant_id or "") if day else "",
            day.tenant_path if day else "", str(day.cluster_id or "") if day else "", day.flavor if day else "",
            f"{self.charge_day:%Y-%m-%d}", self.reverses, str(self.correction or ""), self.reason,
        )  # fmt: skip
        head += (self.converts,) if self.converts else ()
        return "\t".join(head) + "".join(
            f"\n{line.account}\t{line.currency}\t{money(units(line.amount)):f}{line.priced.text if line.priced else ''}"
            for line in sorted(self.lines, key=lambda line: line.order)
        )

    @property
    def digest(self) -> str:
        """SHA-256 of its text."""
        return sha256(self.text.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Standing:
    """A posted entry; `counts` unless another one reversed it or it is a reversal."""

    entry: Entry
    counts: bool


def units(amount: Decimal) -> int:
    """Money in 10**-12, exact."""
    return int(Fraction(amount) * SCALE)


def money(amount: int) -> Decimal:
    """The inverse of `units`."""
    return Decimal(f"{amount}e-{PLACES}")


def corrected_cost(segment: RatedSegment, books: Books) -> tuple[Sums, Sums]:
    """What a segment costs by the corrected prices, and the quantity of it; unpriced time counts nothing."""
    sums: dict[str, int] = defaultdict(int)
    quantities: dict[str, int] = defaultdict(int)
    for piece in corrected_pieces(segment, books):
        if piece.price_id is not None:
            sums[piece.currency] += units(piece.cost)
            quantities[piece.currency] += _quantity(segment.load, piece.start, piece.until)
    return sums, quantities


def corrected_pieces(segment: RatedSegment, books: Books) -> tuple[Piece, ...]:
    """The pieces of a segment, each at one of the corrected prices."""
    own, stand_in = (
        corrected_spans(book.prices, book.corrections)
        for book in (books.get((flavor, segment.capacity_type), PriceBook()) for flavor in (segment.flavor, segment.cpu_flavor))
    )  # fmt: skip
    return rate(segment.load, segment.start, segment.until, own, stand_in)


def postings(
    key: DayKey, segments: Sequence[RatedSegment], books: Books, standing: Sequence[Standing], replaced: int = 0
) -> tuple[Entry, ...]:
    """The entries that are missing, in the order of posting; none if the ledger has them.

    `replaced` is the number of segments of the day that late reports replaced: with that of its segments, it names what was
    counted, because neither ever has a second content under the same two numbers.
    """
    ordinal = f"{len(segments)}r{replaced}" if replaced else f"{len(segments)}"
    entries: list[Entry] = []
    observed, quantities, due, due_quantities = (Counter[str]() for _ in range(4))
    is_corrected = any(book.corrections for book in books.values())
    for segment in segments:
        if segment.currency:
            observed[segment.currency] += units(segment.cost)
            quantities[segment.currency] += segment.quantity
        if is_corrected:
            costs, its_quantities = corrected_cost(segment, books)
            due.update(costs)
            due_quantities.update(its_quantities)
    usage = [each.entry for each in standing if each.entry.kind == "usage"]
    used, counted_before = _expenses(usage), _quantities(usage)
    unposted = None if counted_before is None else _less(quantities, counted_before)
    entries += _charge(key, "usage", ordinal, _less(observed, used), unposted)
    charged = _expenses([*(each.entry for each in standing), *entries])
    if not is_corrected or not any(_less(due, charged).values()):
        return tuple(entries)
    latest = max(each.number for book in books.values() for each in book.corrections)
    counted = [*(each.entry for each in standing if each.counts), *entries]
    entries += [reversal_of(entry, latest) for entry in counted]
    entries += _charge(key, "reentry", f"{ordinal}c{latest}", due, due_quantities, latest)
    return tuple(entries)


def reversal_of(entry: Entry, correction: int | None = None) -> Entry:
    """The opposite of an entry."""
    return Entry(
        key=f"reversal/{entry.key}",
        kind="reversal",
        organisation_id=entry.organisation_id,
        charge_day=entry.charge_day,
        lines=tuple(
            Line(
                line.account, line.currency, -line.amount, None if line.quantity is None else -line.quantity,
                line.priced and replace(line.priced, amount=-line.priced.amount),
            )
            for line in entry.lines
        ),
        day=entry.day,
        reverses=entry.key,
        correction=correction,
    )  # fmt: skip


def _charge(
    key: DayKey, kind: str, ordinal: str, sums: Sums, quantities: Sums | None, correction: int | None = None
) -> list[Entry]:
    moved = {currency: amount for currency, amount in sorted(sums.items()) if amount}
    if not moved:
        return []
    lines = [
        line
        for currency, amount in moved.items()
        for line in (
            Line(
                f"tenant_expense:{key.tenant_id}",
                currency,
                money(amount),
                None if quantities is None else quantities.get(currency, 0),
            ),
            Line(f"cluster_pool:{key.cluster_id}", currency, money(-amount)),
        )
    ]
    name = f"{kind}/{key.name}/{ordinal}"
    return [Entry(name, kind, key.organisation_id, key.day, tuple(lines), key, correction=correction)]


def _expenses(entries: Iterable[Entry]) -> Sums:
    sums: dict[str, int] = defaultdict(int)
    for entry in entries:
        for line in entry.lines:
            if line.account.startswith("tenant_expense:"):
                sums[line.currency] += units(line.amount)
    return sums


def _quantities(entries: Iterable[Entry]) -> Sums | None:
    """By currency; None if a line does not say it."""
    sums: dict[str, int] = defaultdict(int)
    for entry in entries:
        for line in entry.lines:
            if line.account.startswith("tenant_expense:"):
                if line.quantity is None:
                    return None
                sums[line.currency] += line.quantity
    return sums


def _quantity(load: Load, start: datetime, until: datetime) -> int:
    return (until - start) // MILLISECOND * (load.gpu_units * 1000 if load.unit == "gpu" else load.cpu_millicores)


def _less(one: Sums, other: Sums) -> dict[str, int]:
    return {currency: one.get(currency, 0) - other.get(currency, 0) for currency in {*one, *other}}
