"""What a period is expected to cost: posted, what runs, and the new work that is usual on such days. Pure; days are in UTC.

`Decimal` for every amount that is shown; numpy's floats only compare methods and measure how far they were off.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import ROUND_HALF_EVEN, Context, Decimal, localcontext
from typing import TypeAlias

from .backtest import BackTest, back_test, pattern_of
from .budgets import PLACES, Commitment, Span, Terms, worst_case

ZERO = Decimal(0)
A_DAY = timedelta(days=1)
LEAST_DAYS = 28
"""With fewer days of history nothing is expected of new work."""
MOST_DAYS = 26 * 7
"""Older days are not read."""
_STEP = Decimal(1).scaleb(-PLACES)
_EXACT = Context(prec=100, rounding=ROUND_HALF_EVEN)
Daily: TypeAlias = Mapping[date, Decimal]
"""Amounts by day; a day without one is zero."""


@dataclass(frozen=True, slots=True)
class Member:
    """A part of what is forecast, such as a tenant below the one that is asked for. `history`: its whole days before
    today. `running`: what its running work costs until its deadlines, by day from today on.
    """

    name: str
    posted: Decimal
    history: Daily
    running: Daily


@dataclass(frozen=True, slots=True)
class Parts:
    """What adds up to a forecast, to the last digit."""

    posted: Decimal
    running: Decimal
    expected: Decimal

    @property
    def total(self) -> Decimal:
        """The sum of the parts."""
        return self.posted + self.running + self.expected


@dataclass(frozen=True, slots=True)
class DayAhead:
    """One day from today on: what running and new work add on it, and the sum of the period at its end with its range."""

    day: date
    running: Decimal
    expected: Decimal
    total: Decimal
    low: Decimal
    high: Decimal


@dataclass(frozen=True, slots=True)
class Forecast:
    """A period's expected sum. `tested` is None with too little history: then `expected` is zero and there is no range.

    `low` and `high` are the 10th and the 90th percentile, by how far the method was off in the past; never below what is
    posted. The parts of `members` add up to `parts`.
    """

    parts: Parts
    low: Decimal
    high: Decimal
    days: tuple[DayAhead, ...]
    members: Mapping[str, Parts]
    tested: BackTest | None
    days_of_history: int

    @property
    def has_history(self) -> bool:
        """Whether new work could be expected at all."""
        return self.tested is not None

    def reaches(self, amount: Decimal) -> date | None:
        """The first day at whose end the sum is expected to be at least this amount; None if it is not in the period."""
        return next((one.day for one in self.days if one.total >= amount), None)


def forecast(members: Sequence[Member], span: Span, at: datetime) -> Forecast:
    """The forecast of the period that contains `at`, for all members together.

    Nothing of `at`'s day or later is read from `history`. On each day the larger counts of what runs and what is usual:
    running work takes the place of usual work. What is expected on a day divides among the members by what each lacks to
    its own usual amount, so their parts add up to the whole.
    """
    with localcontext(_EXACT):
        return _forecast(members, span, at.astimezone(UTC))


def _forecast(members: Sequence[Member], span: Span, at: datetime) -> Forecast:
    today = at.date()
    ahead = _days_ahead(span, at)
    whole = _sum_of([one.history for one in members], today)
    first = min(whole, default=today)
    known = _series(whole, first, today)
    tested = back_test([float(one) for one in known], len(ahead)) if len(known) >= LEAST_DAYS and ahead else None
    running = {day: sum((one.running.get(day, ZERO) for one in members), ZERO) for day in ahead}
    expected = dict.fromkeys(ahead, ZERO)
    new: dict[str, Decimal] = {one.name: ZERO for one in members}
    if tested is not None:
        usual = pattern_of(tested.chosen, known)
        own = [pattern_of(tested.chosen, _series(one.history, first, today)) for one in members]
        for place, (day, part) in enumerate(ahead.items()):
            expected[day] = _missing(usual[place % 7], part, running[day])
            lacks = [
                _missing(pattern[place % 7], part, one.running.get(day, ZERO))
                for one, pattern in zip(members, own, strict=True)
            ]
            for one, share in zip(members, divided(expected[day], lacks), strict=True):
                new[one.name] += share
    posted = sum((one.posted for one in members), ZERO)
    parts = Parts(posted, sum(running.values(), ZERO), sum(expected.values(), ZERO))
    days = _cumulated(posted, running, expected, tested)
    return Forecast(
        parts=parts,
        low=days[-1].low if days else parts.total,
        high=days[-1].high if days else parts.total,
        days=days,
        members={
            one.name: Parts(one.posted, sum((one.running.get(day, ZERO) for day in ahead), ZERO), new[one.name])
            for one in members
        },
        tested=tested,
        days_of_history=len(known),
    )


@dataclass(frozen=True, slots=True)
class CourseDay:
    """A day of a period with the sum at its end. Past days have no range; neither have others with too little history."""

    day: date
    total: Decimal
    ahead: DayAhead | None = None
    low: Decimal | None = None
    high: Decimal | None = None


def course(outlook: Forecast, past: Sequence[tuple[date, Decimal]]) -> tuple[CourseDay, ...]:
    """The days of a period: those of `past` (day and sum at its end) before today, and those that are forecast."""
    begun = past[: -1 if outlook.days else None]
    days = [CourseDay(day, total) for day, total in begun]
    for one in outlook.days:
        low, high = (one.low, one.high) if outlook.has_history else (None, None)
        days.append(CourseDay(one.day, one.total, one, low, high))
    return tuple(days)


def running_by_day(terms: Terms, rest: Commitment, span: Span, at: datetime) -> Daily:
    """What the rest of a run costs at most on each day of the period from today on. Time before today counts today: it is
    used and not metered yet.
    """
    today = at.astimezone(UTC).date()
    found: dict[date, Decimal] = {}
    begins, ends = max(rest.starts_at.astimezone(UTC), span[0]), min(rest.ends_at.astimezone(UTC), span[1])
    while begins < ends:
        until = min(ends, datetime.combine(begins.date() + A_DAY, time(), UTC))
        day = max(begins.date(), today)
        found[day] = found.get(day, ZERO) + worst_case(terms, rest, (begins, until))
        begins = until
    return found


def divided(amount: Decimal, weights: Sequence[Decimal]) -> list[Decimal]:
    """The amount in parts by these weights, equal parts if all are zero; the parts add up to it exactly."""
    if not weights:
        return []
    whole = sum(weights, ZERO)
    if not whole:
        weights, whole = [Decimal(1)] * len(weights), Decimal(len(weights))
    shares, given, reached = [], ZERO, ZERO
    with localcontext(_EXACT):
        for weight in weights:
            reached += weight
            upto = amount if reached == whole else (amount * reached / whole).quantize(_STEP)
            shares.append(upto - given)
            given = upto
    return shares


def _days_ahead(span: Span, at: datetime) -> dict[date, Decimal]:
    """The days of the period from today on, with the part of each that is still to come."""
    days: dict[date, Decimal] = {}
    begins = max(at, span[0].astimezone(UTC))
    ends = span[1].astimezone(UTC)
    while begins < ends:
        until = min(ends, datetime.combine(begins.date() + A_DAY, time(), UTC))
        days[begins.date()] = Decimal((until - begins) // timedelta(microseconds=1)) / Decimal(86_400_000_000)
        begins = until
    return days


def _sum_of(series: Sequence[Daily], today: date) -> dict[date, Decimal]:
    """The sums by day before today, from the first day on that has one other than zero."""
    found: dict[date, Decimal] = {}
    oldest = today - timedelta(days=MOST_DAYS)
    for one in series:
        for day, amount in one.items():
            if oldest <= day < today:
                found[day] = found.get(day, ZERO) + amount
    return {day: amount for day, amount in found.items() if amount}


def _series(amounts: Daily, first: date, today: date) -> list[Decimal]:
    return [amounts.get(first + timedelta(days=number), ZERO) for number in range((today - first).days)]


def _missing(usual: Decimal, part: Decimal, running: Decimal) -> Decimal:
    """What new work adds on a day. Never less than nothing: no credit is expected."""
    with localcontext(_EXACT):
        return max(ZERO, (usual * part).quantize(_STEP) - running)


def _cumulated(posted: Decimal, running: Daily, expected: Daily, tested: BackTest | None) -> tuple[DayAhead, ...]:
    """The range widens evenly up to that of the last day."""
    days: list[DayAhead] = []
    total = posted
    for number, day in enumerate(running, 1):
        total += running[day] + expected[day]
        low = high = total
        if tested is not None:
            below, above = tested.off_at(number)
            low = max(posted, min(total, total + Decimal(below).quantize(_STEP, context=_EXACT)))
            high = max(total, total + Decimal(above).quantize(_STEP, context=_EXACT))
        days.append(DayAhead(day, running[day], expected[day], total, low, high))
    return tuple(days)
