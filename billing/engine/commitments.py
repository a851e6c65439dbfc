"""Commitments: capacity, or a spend, that an organisation committed to, spread over its term and split hour by hour.

What was paid is spread evenly over the hours of the term (`amortised`): the amount until an hour is a reading of one growing
total, so hours of any span add up to the last 10**-12. An hour's amount is split by largest remainder between those who used
the committed units in it and what was unused. So `used + unused == amortised` in each hour, whatever the order of reports.

The hour of a savings plan is a spend, which pays for usage at the plan's rates (`savings_plans`). Capacity takes first.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from fractions import Fraction
from itertools import pairwise
from math import floor
from typing import TypeAlias
from uuid import UUID

from .idle import split
from .months import midnight
from .rating import DAY, MILLISECOND
from .savings_plans import PlanRate, paid_by, rounded
from .savings_plans import Usage as Offered

HOUR = timedelta(hours=1)
QUANTITY_AN_HOUR = 3_600_000_000
"""Of one unit, in thousandths of a unit times milliseconds."""
User: TypeAlias = tuple[str, str, str]
"""Who used something: the cluster's id, the tenant's path at the time, and the tenant's id."""
UNUSED: User = ("", "", "")
Amounts: TypeAlias = Mapping[str, int]
"""Money by currency, in 10**-12."""


@dataclass(frozen=True, slots=True)
class Commitment:
    """One version of a commitment: `units` of a flavor and capacity type on any of some clusters, in [start, until).

    `start` and `until` are whole hours. `upfront` is paid at the start, `recurring` at the start and each month after it, in
    10**-12 of the currency. A savings plan has `rates` in place of flavor and units; `hourly` is its spend an hour, and what
    `upfront` does not pay of it is paid at the start and each month after it, for the hours until the next payment.
    """

    id: UUID
    number: int
    name: str
    clusters: frozenset[UUID]
    flavor: str
    capacity_type: str
    units: int
    start: datetime
    until: datetime
    upfront: int
    recurring: int
    currency: str
    hourly: int = 0
    rates: tuple[PlanRate, ...] = ()

    @property
    def is_plan(self) -> bool:
        """Whether it is a savings plan."""
        return bool(self.rates)

    @property
    def kinds(self) -> Sequence[tuple[str, str]]:
        """The flavors and capacity types that it covers."""
        return [(one.flavor, one.capacity_type) for one in self.rates] or [(self.flavor, self.capacity_type)]

    @property
    def order(self) -> tuple[bool, datetime, str]:
        """Its place among others that cover the same usage: capacity first, then the earlier start, then the lesser name."""
        return self.is_plan, self.start, self.name

    @property
    def payments(self) -> Sequence[tuple[date, int]]:
        """What is paid on which day, without days on which nothing is."""
        found = Counter({self.start.date(): self.upfront})
        times = [*payment_times(self.start, self.until), self.until]
        for at, following in pairwise(times):
            found[at.date()] += self._rest(following) - self._rest(at) if self.is_plan else self.recurring
        return [(day, amount) for day, amount in sorted(found.items()) if amount]

    @property
    def total(self) -> int:
        """All that is paid over the term."""
        if self.is_plan:
            return self.hourly * self._hours
        return self.upfront + self.recurring * count_of_payments(self.start, self.until)

    def amortised(self, start: datetime, until: datetime) -> int:
        """The part of the total that belongs to the whole hours of [start, until)."""
        return self._reading(until) - self._reading(start)

    @property
    def _hours(self) -> int:
        return (self.until - self.start) // HOUR

    def _reading(self, at: datetime) -> int:
        return self.total * self._elapsed(at) // self._hours

    def _rest(self, at: datetime) -> int:
        """What the payments for the hours until a time amount to, without the first one's `upfront`."""
        return (self.total - self.upfront) * self._elapsed(at) // self._hours

    def _elapsed(self, at: datetime) -> int:
        return (min(max(at, self.start), self.until) - self.start) // HOUR

    def hours_of(self, day: date) -> Iterator[datetime]:
        """The hours of a day (UTC) that are in its term."""
        for number in range(24):
            hour = midnight(day) + number * HOUR
            if self.start <= hour < self.until:
                yield hour


@dataclass(frozen=True, slots=True)
class Worth:
    """What a part of a run cost, at one price."""

    start: datetime
    until: datetime
    currency: str
    cost: int


@dataclass(frozen=True, slots=True)
class Run:
    """What was used in [start, until) of one day: `rate` thousandths of a unit at any time. `worth` is what was charged for it."""

    user: User
    flavor: str
    capacity_type: str
    start: datetime
    until: datetime
    rate: int
    worth: Sequence[Worth] = ()


@dataclass(frozen=True, slots=True)
class HourSplit:
    """A commitment's hour: `used + unused == amortised`, and `used_quantity` of its `quantity` (thousandths of a unit times ms; of
    a savings plan, its spend).
    """

    hour: datetime
    quantity: int
    used_quantity: int
    amortised: int
    used: int

    @property
    def unused(self) -> int:
        """What no tenant used."""
        return self.amortised - self.used


@dataclass(frozen=True, slots=True)
class DaySplit:
    """A commitment's day. `used` and `quantities` by who used it; `covered` is what the same usage was charged before. The
    quantities of a savings plan are what was used of its spend.
    """

    commitment: Commitment
    day: date
    hours: tuple[HourSplit, ...]
    used: Mapping[User, int] = field(default_factory=dict)
    quantities: Mapping[User, int] = field(default_factory=dict)
    covered: Mapping[User, Amounts] = field(default_factory=dict)

    @property
    def amortised(self) -> int:
        """Of all hours."""
        return sum(one.amortised for one in self.hours)

    @property
    def unused(self) -> int:
        """Of all hours."""
        return sum(one.unused for one in self.hours)

    @property
    def unused_quantity(self) -> int:
        """Of all hours."""
        return sum(one.quantity - one.used_quantity for one in self.hours)

    @property
    def paid(self) -> int:
        """What is paid for the commitment on the day."""
        return dict(self.commitment.payments).get(self.day, 0)


def payment_times(start: datetime, until: datetime) -> Iterator[datetime]:
    """The start and the same time of each month after it, before the end; a shorter month has it on its last day.

    >>> [f"{at:%m-%d}" for at in payment_times(datetime(2026, 1, 31), datetime(2026, 4, 1))]
    ['01-31', '02-28', '03-31']
    """
    for number in range(count_of_payments(start, until)):
        yield _months_after(start, number)


def count_of_payments(start: datetime, until: datetime) -> int:
    """How many times `payment_times` has. It takes no longer for a longer term: each hour's amount asks for it.

    >>> count_of_payments(datetime(2026, 1, 31), datetime(2026, 2, 28, 1)), count_of_payments(datetime(2026, 1, 31), datetime(2026, 2, 28))
    (2, 1)
    """
    months = (until.year - start.year) * 12 + until.month - start.month
    return months + (_months_after(start, months) < until)


def _months_after(start: datetime, months: int) -> datetime:
    month = start.month - 1 + months
    first = start.replace(year=start.year + month // 12, month=month % 12 + 1, day=1)
    last = (first.replace(day=28) + 4 * DAY).replace(day=1) - DAY
    return first.replace(day=min(start.day, last.day))


def split_day(day: date, commitments: Iterable[Commitment], runs: Sequence[Run]) -> tuple[DaySplit, ...]:
    """The split of a day of all commitments that have hours in it, in the order in which they are applied.

    A commitment takes from what those before it left, from all users in proportion to what is left of them.
    """
    usage = _Usage(runs)
    splits = []
    for one in sorted(commitments, key=lambda each: each.order):
        hours = list(one.hours_of(day))
        if hours or dict(one.payments).get(day):
            splits.append(_split(one, day, hours, usage))
    return tuple(splits)


class _Usage:
    """The usage of a day by kind (flavor and capacity type), hour and user, and what of it commitments took."""

    def __init__(self, runs: Sequence[Run]) -> None:
        self.whole: dict[tuple[str, str, datetime], Counter[User]] = defaultdict(Counter)
        self.worth: dict[tuple[str, str, datetime, User], dict[str, Fraction]] = defaultdict(
            lambda: defaultdict(Fraction)
        )
        for run in runs:
            for hour, milliseconds in _hours(run.start, run.until):
                self.whole[run.flavor, run.capacity_type, hour][run.user] += run.rate * milliseconds
            for part in run.worth:
                whole = (part.until - part.start) // MILLISECOND
                for hour, milliseconds in _hours(part.start, part.until):
                    worth = self.worth[run.flavor, run.capacity_type, hour, run.user]
                    worth[part.currency] += Fraction(part.cost * milliseconds, whole)
        self.left: dict[tuple[str, str, datetime], dict[User, int | Fraction]] = {
            key: dict(by) for key, by in self.whole.items()
        }
        self.covered: dict[tuple[str, str, User, str], Fraction] = defaultdict(Fraction)

    def take(self, one: Commitment, hour: datetime) -> Mapping[User, int]:
        """What each user has of the committed units in an hour; it is no longer left for others."""
        key = one.flavor, one.capacity_type, hour
        ids = {str(id_) for id_ in one.clusters}
        left = {user: int(amount) for user, amount in self.left.get(key, {}).items() if amount and user[0] in ids}
        if not left:
            return {}
        taken = split(min(one.units * QUANTITY_AN_HOUR, sum(left.values())), left)
        for user, amount in taken.items():
            self.left[key][user] -= amount
            for currency, worth in self.worth[*key, user].items():
                self.covered[*key[:2], user, currency] += worth * Fraction(amount, self.whole[key][user])
        return taken

    def spend(self, one: Commitment, hour: datetime, amount: int) -> Mapping[User, int]:
        """What each user bears of a savings plan's hour; what it pays for is no longer left for others."""
        ids = {str(id_) for id_ in one.clusters}
        offered = [
            found
            for rate in one.rates
            for user, quantity in self.left.get((rate.flavor, rate.capacity_type, hour), {}).items()
            if quantity and user[0] in ids and (found := self._offered(one, hour, rate, user))
        ]
        parts = paid_by(amount, offered)
        spent: dict[User, Fraction] = defaultdict(Fraction)
        for each in offered:
            if part := parts.get(each.key):
                flavor, capacity_type, user = each.key
                spent[user] += part * each.cost
                self.left[flavor, capacity_type, hour][user] *= 1 - part
                self.covered[*each.key, one.currency] += part * each.charged
        return rounded(spent)

    def _offered(
        self, one: Commitment, hour: datetime, rate: PlanRate, user: User
    ) -> Offered[tuple[str, str, User]] | None:
        """What is left of a user's usage; None if some of it was charged in another currency, or nothing was charged."""
        key = rate.flavor, rate.capacity_type, hour
        worth = self.worth[*key, user]
        if set(worth) != {one.currency}:
            return None
        left = Fraction(self.left[key][user])
        charged = worth[one.currency] * left / self.whole[key][user]
        return Offered((rate.flavor, rate.capacity_type, user), rate, left / QUANTITY_AN_HOUR, charged)

    def covered_of(self, one: Commitment) -> Mapping[tuple[str, str, User, str], int]:
        """What the taken usage of its kinds was charged so far, rounded down."""
        kinds = set(one.kinds)
        return {key: floor(amount) for key, amount in self.covered.items() if key[:2] in kinds}


def _split(one: Commitment, day: date, hours: Sequence[datetime], usage: _Usage) -> DaySplit:
    before = usage.covered_of(one)
    found = []
    used, quantities = Counter[User](), Counter[User]()
    for hour in hours:
        amount = one.amortised(hour, hour + HOUR)
        if one.is_plan:
            spent = usage.spend(one, hour, amount)
            found.append(HourSplit(hour, amount, sum(spent.values()), amount, sum(spent.values())))
            used.update({user: part for user, part in spent.items() if part})
            continue
        taken, quantity = usage.take(one, hour), one.units * QUANTITY_AN_HOUR
        used_quantity = sum(taken.values())
        parts = split(amount, {**taken, UNUSED: quantity - used_quantity})
        found.append(HourSplit(hour, quantity, used_quantity, amount, amount - parts.get(UNUSED, 0)))
        used.update({user: part for user, part in parts.items() if part and user != UNUSED})
        quantities.update(taken)
    covered: dict[User, Counter[str]] = defaultdict(Counter)
    for key, amount in usage.covered_of(one).items():
        if amount > before.get(key, 0):
            covered[key[2]][key[3]] += amount - before.get(key, 0)
    return DaySplit(
        one, day, tuple(found), dict(used), dict(used if one.is_plan else quantities),
        {user: dict(by) for user, by in covered.items()},
    )  # fmt: skip


def _hours(start: datetime, until: datetime) -> Iterator[tuple[datetime, int]]:
    """The hours of a time, each with its milliseconds."""
    start = start.astimezone(UTC)
    while start < until:
        hour = start.replace(minute=0, second=0, microsecond=0)
        end = min(hour + HOUR, until)
        yield hour, (end - start) // MILLISECOND
        start = end
