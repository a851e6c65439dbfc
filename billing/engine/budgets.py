"""What a run costs at most, and how that divides among the periods of budgets. Exact; times are in UTC."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import ROUND_CEILING, Context, Decimal, localcontext
from typing import Literal, NamedTuple, TypeAlias
from uuid import UUID

Measure: TypeAlias = Literal["money", "gpu_hours"]
Span: TypeAlias = tuple[datetime, datetime]
"""A period: [begin, end)."""
PLACES = 12
"""Decimal places of every amount, as of a stored cost."""
MICROSECOND = timedelta(microseconds=1)
AN_HOUR = 3_600_000_000
"""In microseconds."""
MONTHS = {"month": 1, "quarter": 3, "year": 12}
_STEP = Decimal(1).scaleb(-PLACES)
_EXACT = Context(prec=100, rounding=ROUND_CEILING)


class Commitment(NamedTuple):
    """What a run uses at most: this money an hour and this number of physical GPUs, for `seconds` from `starts_at` on.

    Without a price it uses no money, and has no currency.
    """

    money_an_hour: Decimal
    currency: str
    gpus: Decimal
    starts_at: datetime
    seconds: int

    @property
    def ends_at(self) -> datetime:
        """When its deadline stops it."""
        return self.starts_at + timedelta(seconds=self.seconds)


@dataclass(frozen=True, slots=True)
class Terms:
    """What a budget measures, and its periods. `starts_at` and `ends_at` are set only if its `period` is `dates`."""

    measure: Measure
    currency: str
    period: str
    starts_at: datetime | None = None
    ends_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class BudgetRequest:
    """A holder (an attempt) that a tenant wants to start."""

    holder_id: UUID
    tenant_id: UUID
    tenant_path: str
    commitment: Commitment


@dataclass(frozen=True, slots=True)
class BudgetRefusal:
    """Why a hold of money was refused."""

    budget_id: UUID
    message: str


def rounded_up(amount: Decimal) -> Decimal:
    """The amount with at most twelve decimals; a worst case is never rounded down."""
    with localcontext(_EXACT):
        return amount.quantize(_STEP, rounding=ROUND_CEILING)


def in_currency(commitment: Commitment, currency: str, rate: Decimal) -> Commitment:
    """The commitment in another currency, with `rate` as what one unit of the first is worth. Exact."""
    with localcontext(_EXACT):
        return commitment._replace(money_an_hour=commitment.money_an_hour * rate, currency=currency)


def needs_a_rate(terms: Terms, commitment: Commitment) -> bool:
    """Whether the budget counts the commitment in another currency than that of its price."""
    is_priced = commitment.currency != "" and commitment.money_an_hour > 0
    return terms.measure == "money" and is_priced and commitment.currency != terms.currency


def worst_case(terms: Terms, commitment: Commitment, span: Span) -> Decimal:
    """What the run uses at most of a budget within a period; without money of a commitment in another currency (`in_currency`)."""
    begins, ends = max(span[0], commitment.starts_at), min(span[1], commitment.ends_at)
    if begins >= ends:
        return Decimal(0)
    if terms.measure == "gpu_hours":
        an_hour = commitment.gpus
    elif commitment.currency == terms.currency:
        an_hour = commitment.money_an_hour
    else:
        return Decimal(0)
    with localcontext(_EXACT):
        return rounded_up(an_hour * ((ends - begins) // MICROSECOND) / AN_HOUR)


def period_at(terms: Terms, at: datetime) -> Span | None:
    """The period of a budget that contains this time; None outside its dates."""
    if terms.starts_at is not None and terms.ends_at is not None:
        return (terms.starts_at, terms.ends_at) if terms.starts_at <= at < terms.ends_at else None
    months = MONTHS[terms.period]
    at = at.astimezone(UTC)
    first = (at.month - 1) // months * months
    begins = datetime(at.year, first + 1, 1, tzinfo=UTC)
    year, month = divmod(first + months, 12)
    return begins, datetime(at.year + year, month + 1, 1, tzinfo=UTC)


def periods_between(terms: Terms, start: datetime, until: datetime) -> Iterator[Span]:
    """The periods of a budget that [start, until] touches, in order; of the end itself too, so that a run without
    length has one.
    """
    if terms.starts_at is not None and terms.ends_at is not None:
        if start < terms.ends_at and until >= terms.starts_at:
            yield terms.starts_at, terms.ends_at
        return
    at = start
    while at <= until and (span := period_at(terms, at)) is not None:
        yield span
        at = span[1]


def shown(amount: Decimal, terms: Terms) -> str:
    """An amount for readers, rounded to hundredths: `12.50 USD`, `8.00 GPU-hours`."""
    return f"{amount:.2f} {terms.currency or 'GPU-hours'}"


def period_name(terms: Terms, span: Span) -> str:
    """Such as `2026-11`, `2026-Q4`, `2026`, or the first and the last day."""
    begins, ends = span
    if terms.period == "month":
        return f"{begins:%Y-%m}"
    if terms.period == "quarter":
        return f"{begins.year}-Q{(begins.month + 2) // 3}"
    return f"{begins.year}" if terms.period == "year" else f"{begins:%Y-%m-%d} to {ends - timedelta(days=1):%Y-%m-%d}"


class Expectation(NamedTuple):
    """A threshold of a budget that is expected to be reached: `percent` of `amount`, and what is expected at the end of the
    period with its range.
    """

    percent: int
    amount: Decimal
    expected: Decimal
    low: Decimal
    high: Decimal
    reached_on: date


def expectation_message(terms: Terms, span: Span, found: Expectation) -> str:
    """What an alert on the forecast says: the amounts, the range, and the day on which the threshold is reached."""
    expected, low, high = (shown(one, terms) for one in (found.expected, found.low, found.high))
    return (
        f"{expected} are expected by the end of {period_name(terms, span)}, between {low} and {high}."
        f" {found.percent} % of {shown(found.amount, terms)} are expected to be reached on {found.reached_on}."
    )


def refusal_message(path: str, terms: Terms, span: Span, figures: tuple[Decimal, Decimal, Decimal, Decimal]) -> str:
    """Why a budget does not allow a job: what it needs, and the amount, spent and held there."""
    needed, amount, spent, held = (shown(one, terms) for one in figures)
    name = period_name(terms, span)
    return f"needs up to {needed}; the budget of {path} for {name} is {amount}: {spent} spent, {held} held"


def missing_rate_message(path: str, base: str, terms: Terms) -> str:
    """Why a budget does not allow a job whose price is in a currency that it cannot count."""
    return (
        f"no exchange rate from {base} to {terms.currency} counts today, so the budget of {path} cannot count the price:"
        " import reference rates (manage.py import_exchange_rates), or set a rate on the page Currencies"
    )
