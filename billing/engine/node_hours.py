"""What one node cost in one hour, and what jobs paid for it, in exact arithmetic: `charged + overhead + idle == cost`.

Amounts are integers in 1 / READINGS_AN_HOUR of 10**-12, so that no hour is rounded: the hours of a run add up to what its day
costs before that is rounded down, once. A negative `idle` is an error in the data; `cause_of` finds out which.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from itertools import pairwise
from uuid import UUID

from .idle import Offered
from .rating import MILLISECOND, READINGS_AN_HOUR, Load, PriceSpan, Tariff, tariffs_of

HOUR = timedelta(hours=1)


class Cause(StrEnum):
    """Why jobs paid more for a node than it cost."""

    UNKNOWN_NODE = "unknown_node"
    """The history does not contain the node on that day."""
    NODE_SEEN_LATE = "node_seen_late"
    """Jobs ran before the history of the node begins, or after it ends."""
    DOUBLE_REPORT = "double_report"
    """One pod is metered twice for the same time."""
    OVERLAP = "overlap"
    """Jobs used more units than the node had."""
    PRICES_DIFFER = "prices_differ"
    """Jobs paid another price, or for more cores or memory, than the node was offered at."""


@dataclass(frozen=True, slots=True)
class Offer:
    """What a node offered in [start, until) of one currency, at `rate` for a millisecond."""

    start: datetime
    until: datetime
    currency: str
    rate: int
    units: int
    is_available: bool = True


@dataclass(frozen=True, slots=True)
class Use:
    """What a run was charged in [start, until), at `rate` for a millisecond.

    `pod` names the pod, also if several meters count it. `is_beside`: the price of the node does not contain it, because
    a pod without GPUs pays the price of a CPU-only flavor.
    """

    meter: int
    pod: str
    start: datetime
    until: datetime
    currency: str
    rate: int
    units: int
    price: UUID
    is_beside: bool = False

    def within(self, start: datetime, until: datetime) -> int:
        """What of it is charged in a part of the time."""
        return self.rate * max(0, (min(self.until, until) - max(self.start, start)) // MILLISECOND)


@dataclass(frozen=True, slots=True)
class HourBalance:
    """A node's hour in one currency: `charged + overhead + idle == cost`."""

    cost: int
    charged: int
    overhead: int
    idle: int

    @property
    def is_negative(self) -> bool:
        """Whether jobs paid at least 10**-12 more than the node cost."""
        return self.charged // READINGS_AN_HOUR > self.cost // READINGS_AN_HOUR


def offers_of(offered: Offered, spans: Iterable[PriceSpan]) -> Iterator[Offer]:
    """An offer of a node, cut at the changes of its prices. Time without a price costs nothing and is left out."""
    for span in spans:
        start = max(offered.start, span.valid_from)
        until = offered.until if span.valid_until is None else min(offered.until, span.valid_until)
        if start < until:
            load = Load(offered.unit, offered.units, offered.cpu_millicores, span.valid_from, offered.memory_mib)
            rate = Tariff(load, span).per_millisecond
            yield Offer(start, until, span.currency, rate, offered.units, offered.is_available)


def uses_of(
    meter: int, pod: str, load: Load, span: tuple[datetime, datetime], prices: tuple[Sequence[PriceSpan], Sequence[PriceSpan]]
) -> Iterator[Use]:  # fmt: skip
    """A run, cut at the changes of its price: its flavor's prices, then those of the flavor that stands in."""
    for start, until, tariff in tariffs_of(load, *span, *prices):
        if tariff is not None:
            yield Use(
                meter, pod, start, until, tariff.span.currency, tariff.per_millisecond, load.gpu_units, tariff.span.id,
                tariff.stands_in,
            )  # fmt: skip


def balances(
    offers: Collection[Offer], uses: Collection[Use], start: datetime, until: datetime
) -> Mapping[tuple[datetime, str], HourBalance]:
    """The balances of one node's hours within [start, until), by hour and currency: those in which it cost or charged something."""
    cost: Counter[tuple[datetime, str]] = Counter()
    charged: Counter[tuple[datetime, str]] = Counter()
    unavailable: Counter[tuple[datetime, str]] = Counter()
    for offer in offers:
        for hour, milliseconds in _hours(offer.start, offer.until, start, until):
            cost[hour, offer.currency] += offer.rate * milliseconds
            if not offer.is_available:
                unavailable[hour, offer.currency] += offer.rate * milliseconds
    for use in uses:
        for hour, milliseconds in _hours(use.start, use.until, start, until):
            charged[hour, use.currency] += use.rate * milliseconds
            if use.is_beside:
                cost[hour, use.currency] += use.rate * milliseconds
    found = {}
    for key in sorted({*cost, *charged}):
        rest = cost[key] - charged[key]
        overhead = max(0, min(rest, unavailable[key]))
        found[key] = HourBalance(cost[key], charged[key], overhead, rest - overhead)
    return found


def cause_of(offers: Collection[Offer], uses: Collection[Use], hour: datetime, *, is_known: bool) -> Cause:
    """Why an hour is negative: the reason of the largest part of what is too much. `is_known`: the history has the node that day."""
    until = hour + HOUR
    edges = {hour, until}
    spans = [(each.start, each.until) for each in offers] + [(each.start, each.until) for each in uses]
    edges.update(at for span in spans for at in span if hour < at < until)
    excess: Counter[Cause] = Counter()
    for a, b in pairwise(sorted(edges)):
        there = [offer for offer in offers if offer.start <= a < offer.until]
        running = [use for use in uses if use.start <= a < use.until and not use.is_beside]
        too_much = sum(use.rate for use in running) - sum(offer.rate for offer in there)
        if too_much > 0:
            excess[_cause(there, running, is_known=is_known)] += too_much * ((b - a) // MILLISECOND)
    return max(excess, key=lambda cause: (excess[cause], cause), default=Cause.PRICES_DIFFER)


def _cause(there: Sequence[Offer], running: Sequence[Use], *, is_known: bool) -> Cause:
    if not there:
        return Cause.NODE_SEEN_LATE if is_known else Cause.UNKNOWN_NODE
    if len({use.pod for use in running}) < len(running):
        return Cause.DOUBLE_REPORT
    if sum(use.units for use in running) > sum(offer.units for offer in there):
        return Cause.OVERLAP
    return Cause.PRICES_DIFFER


def _hours(start: datetime, until: datetime, earliest: datetime, latest: datetime) -> Iterator[tuple[datetime, int]]:
    """The hours of a time within limits, each with its milliseconds."""
    start, until = max(start, earliest), min(until, latest)
    while start < until:
        hour = start.replace(minute=0, second=0, microsecond=0)
        end = min(hour + HOUR, until)
        yield hour, (end - start) // MILLISECOND
        start = end
