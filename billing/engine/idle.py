"""What a pool of nodes cost on a day, what of it jobs paid, and who bears the rest. All amounts are integers in 10**-12.

A pool is the nodes of one cluster that offer one flavor. Its cost is what its nodes offered, at the prices in force:
`charged + overhead + idle == cost`, exactly. What is shared is split by largest remainder, so that no unit is lost.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from enum import StrEnum
from typing import TypeAlias, TypeVar

from .rating import DAY, MILLISECOND, READINGS_AN_HOUR, Load, PriceSpan, Tariff, Unit

Sharer: TypeAlias = tuple[str, str]
"""Who may bear a share: a tenant's path at the time, and its id."""
Key = TypeVar("Key", bound=tuple[str, ...])


class IdleSplit(StrEnum):
    """Who bears what no job used."""

    CENTRAL = "central"
    """The organisation."""
    PROPORTIONAL = "proportional"
    """The tenants, in proportion to what they are charged in the same pool on the same day."""
    RESERVATIONS = "reservations"
    """First the tenants whose reserved nodes were not used, then all in proportion."""


class PlatformSplit(StrEnum):
    """Who bears the monthly cost of the platform."""

    FIXED = "fixed"
    EVEN = "even"
    PROPORTIONAL = "proportional"


@dataclass(frozen=True, slots=True)
class Offered:
    """What nodes of one kind offered together from `start` to `until`, within one day."""

    start: datetime
    until: datetime
    unit: Unit
    units: int
    cpu_millicores: int
    memory_mib: int
    is_available: bool = True
    is_assumed: bool = False


@dataclass(frozen=True, slots=True)
class Worth:
    """The price of an offer: all of it, of nodes that took no jobs, and of time that was not observed.

    In parts of 10**-12 (`READINGS_AN_HOUR`), so that sums are rounded only once.
    """

    whole: int = 0
    unavailable: int = 0
    assumed: int = 0

    def plus(self, other: "Worth") -> "Worth":
        """The sum of both."""
        return Worth(self.whole + other.whole, self.unavailable + other.unavailable, self.assumed + other.assumed)


@dataclass(frozen=True, slots=True)
class Balance:
    """A pool's day in one currency: `charged + overhead + idle == cost`. A negative `idle` is an error in the data."""

    cost: int
    charged: int
    overhead: int
    idle: int
    assumed: int = 0
    """The part of the cost that is of time that was not observed."""

    @property
    def is_negative(self) -> bool:
        """Whether jobs paid for more than the pool had: people have to find out why."""
        return self.idle < 0


@dataclass(frozen=True, slots=True)
class Shared:
    """An amount with its parts: `central + sum(parts) == amount`."""

    central: int
    parts: Mapping[Sharer, int] = field(default_factory=dict)

    @property
    def amount(self) -> int:
        """All of it."""
        return self.central + sum(self.parts.values())


def worth_of(offered: Iterable[Offered], spans: Sequence[PriceSpan]) -> Mapping[str, Worth]:
    """What the offers of one day are worth by currency, at prices that do not overlap. Time without a price is worth nothing."""
    found: dict[str, Worth] = {}
    for offer in offered:
        for span in spans:
            start = max(offer.start, span.valid_from)
            until = offer.until if span.valid_until is None else min(offer.until, span.valid_until)
            if start < until:
                parts = _per_millisecond(offer, span) * ((until - start) // MILLISECOND)
                worth = Worth(parts, 0 if offer.is_available else parts, parts if offer.is_assumed else 0)
                found[span.currency] = found.get(span.currency, Worth()).plus(worth)
    return found


def _per_millisecond(offer: Offered, span: PriceSpan) -> int:
    load = Load(offer.unit, offer.units, offer.cpu_millicores, span.valid_from, offer.memory_mib)
    return Tariff(load, span).per_millisecond


def by_day(offered: Iterable[Offered]) -> Mapping[date, list[Offered]]:
    """The offers cut at midnights UTC, by day."""
    days: dict[date, list[Offered]] = {}
    for offer in offered:
        start = offer.start
        while start < offer.until:
            midnight = start.replace(hour=0, minute=0, second=0, microsecond=0) + DAY
            until = min(offer.until, midnight)
            days.setdefault(start.date(), []).append(replace(offer, start=start, until=until))
            start = until
    return days


def balance(worth: Worth, charged: int, guests: int = 0) -> Balance:
    """A pool's day. `guests` is the part of `charged` that jobs without GPUs paid at the price of a CPU-only flavor: the price of
    the GPUs does not contain it, so the cost does in addition.

    Of what jobs did not pay, the part of nodes that took no jobs is overhead, and the rest is idle.
    """
    cost = worth.whole // READINGS_AN_HOUR + guests
    rest = cost - charged
    overhead = max(0, min(rest, worth.unavailable // READINGS_AN_HOUR))
    return Balance(cost, charged, overhead, rest - overhead, worth.assumed // READINGS_AN_HOUR)


def split(amount: int, weights: Mapping[Key, int]) -> Mapping[Key, int]:
    """The amount in proportion to the weights, to the last unit: largest remainder, ties to the lesser key.

    Keys without a weight get nothing. ValueError for a negative number, or if no key has a weight.

    >>> split(10000, {("a", ""): 1, ("b", ""): 1, ("c", ""): 1, ("d", ""): 0})
    {('a', ''): 3334, ('b', ''): 3333, ('c', ''): 3333}
    """
    whole = sum(weights.values())
    if amount < 0 or whole <= 0 or min(weights.values()) < 0:
        raise ValueError("an amount is split by weights that are not negative and not all zero")
    keys = sorted(key for key, weight in weights.items() if weight)
    exact = {key: divmod(amount * weights[key], whole) for key in keys}
    parts = {key: exact[key][0] for key in keys}
    for key in sorted(keys, key=lambda each: (-exact[each][1], each))[: amount - sum(parts.values())]:
        parts[key] += 1
    return parts


def share_idle(
    idle: int, how: IdleSplit, charged: Mapping[Sharer, int], unused: Mapping[Sharer, int] | None = None
) -> Shared:
    """Who bears a pool's idle cost of a day. `unused` is the worth of reserved time that its tenant did not use.

    Negative idle, and idle without any user, stays central.
    """
    if idle <= 0 or how is IdleSplit.CENTRAL:
        return Shared(idle)
    parts: dict[Sharer, int] = {}
    rest = idle
    if how is IdleSplit.RESERVATIONS and unused and any(unused.values()):
        parts = dict(split(min(idle, sum(unused.values())), unused))
        rest -= sum(parts.values())
    users = {key: amount for key, amount in charged.items() if amount > 0}
    if rest and users:
        for key, part in split(rest, users).items():
            parts[key] = parts.get(key, 0) + part
        rest = 0
    return Shared(rest, {key: part for key, part in sorted(parts.items()) if part})


def share_platform(
    amount: int, how: PlatformSplit, charged: Mapping[Sharer, int], fixed: Mapping[Sharer, int] | None = None
) -> Shared:
    """Who bears the platform's cost of a month: by `fixed` weights, evenly among those who are charged, or in proportion.

    It stays central if that is no tenant.
    """
    weights: Mapping[Sharer, int] = {key: paid for key, paid in charged.items() if paid > 0}
    if how is PlatformSplit.FIXED:
        weights = fixed or {}
    elif how is PlatformSplit.EVEN:
        weights = dict.fromkeys(weights, 1)
    if not amount or not any(weights.values()):
        return Shared(amount)
    return Shared(0, {key: part for key, part in split(amount, weights).items() if part})
