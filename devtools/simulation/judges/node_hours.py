"""What must hold of each node and hour: what it cost is what jobs were charged, what no job could use, and what was idle.

Counted here from the history of the fleet, segments, prices and corrections alone.
"""

from collections import defaultdict
from collections.abc import Iterator
from datetime import date, datetime, timedelta
from decimal import Decimal
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple, TypeAlias
from uuid import UUID

from billing.engine.rating import READINGS_AN_HOUR
from billing.operations.node_hours import judge_node_hours
from billing.queries.node_hours import NodeHour, judge
from devtools.simulation.core.scheduler import MICROSECONDS

from .promises import judging

if TYPE_CHECKING:
    from devtools.simulation.worlds.world import World

HOUR_US, MILLISECOND = 3600 * MICROSECONDS, timedelta(milliseconds=1)
PARTS = 10**12 * READINGS_AN_HOUR
"""In how many the balance counts a dollar."""
ROUNDING = Decimal("2e-4")
"""In dollars: what a node costs in sixty milliseconds. The balance cuts times at milliseconds, and this judge does not."""
Place: TypeAlias = tuple[UUID, str, date]
"""A node's day."""


class _Time(NamedTuple):
    """A node that offers units, or a run that uses them, at the price that it was given; None: none."""

    cluster: UUID
    node: str
    rate: int
    units: int
    start: datetime
    until: datetime
    price: Decimal | None


class _Price(NamedTuple):
    rate: int
    start: datetime
    until: datetime
    price: Decimal


@judging
def promise_16_the_hours_of_nodes_balance(world: "World") -> list[str]:
    """`charged + overhead + idle = cost`, each counted twice; and hours for which jobs paid more are set aside for people."""
    end_us = (world.scheduler.now_us // HOUR_US + 1) * HOUR_US
    world.watch.set_clock(end_us)  # until then no hour has ended
    found = [*judge_node_hours()]
    end = world.watch.rows("SELECT now()")[0][0]
    days = [day for (day,) in world.watch.rows(DAYS)]
    hours = [hour for day in days for hour in judge(day).hours]
    found += _unbalanced(hours) + _miscounted(world, hours, days, end)
    negative = {(one.cluster_id, one.node, one.hour, one.currency) for one in hours if one.balance.is_negative}
    set_aside = {row for row in world.watch.rows(SET_ASIDE) if row[2].date() in days}
    found += [f"the history of {node} begins in the future, at {at}" for node, at in world.watch.rows(FUTURE)]
    found += [f"the hour {key} is negative, and not set aside" for key in sorted(negative - set_aside, key=str)]
    found += [f"the hour {key} is set aside, and not negative" for key in sorted(set_aside - negative, key=str)]
    world.watch.set_clock(world.scheduler.now_us)
    return found


def _unbalanced(hours: list[NodeHour]) -> list[str]:
    return [
        f"{one.node} at {one.hour}: {its.charged} + {its.overhead} + {its.idle} is not {its.cost}"
        for one in hours
        if (its := one.balance).charged + its.overhead + its.idle != its.cost or its.overhead < 0
    ]


def _miscounted(world: "World", hours: list[NodeHour], days: list[date], end: datetime) -> list[str]:
    corrections = [_Price(*row) for row in world.watch.rows(CORRECTIONS)]
    prices = [_Price(*row) for row in world.watch.rows(PRICES)]
    offers = [_Time._make((*row[:5], row[5] or end, None)) for row in world.watch.rows(OFFERED)]
    uses = [_Time(*row) for row in world.watch.rows(USED)]
    cost, charged = _by_place(offers, prices, corrections), _by_place(uses, [], corrections)
    said: dict[Place, list[Decimal]] = defaultdict(lambda: [Decimal(0), Decimal(0)])
    for one in hours:
        place = said[one.cluster_id, one.node, one.hour.date()]
        place[0] += Decimal(one.balance.cost) / PARTS
        place[1] += Decimal(one.balance.charged) / PARTS
    known = {(offer.cluster, offer.start.date()) for offer in offers}
    begins = {cluster: min(day for one, day in known if one == cluster) for cluster, _ in known}
    return [
        f"{node} on {day}: the {what} of its hours adds up to {said[place][which]:f}, and is {counted[place]:f}"
        for which, what, counted in ((0, "cost", cost), (1, "charge", charged))
        for place in sorted({*counted, *said}, key=str)
        if (node := place[1]) and (day := place[2]) in days and begins.get(place[0], end.date()) <= day
        if abs(said[place][which] - counted[place]) > ROUNDING
    ]


def _by_place(times: list[_Time], prices: list[_Price], corrections: list[_Price]) -> dict[Place, Decimal]:
    """What times cost, by node and day: at the last price that was agreed for it, else at the price that it was given, else at the
    one in force.
    """
    found: dict[Place, Decimal] = defaultdict(Decimal)
    for one in times:
        agreed, usual = (
            [each for each in spans if each.rate == one.rate and each.start < one.until and each.until > one.start]
            for spans in (corrections, prices)
        )
        for start, until in pairwise(sorted(_bounds(one, [*agreed, *usual]))):
            price = next((each.price for each in reversed(agreed) if each.start <= start < each.until), one.price)
            if price is None:
                price = next((each.price for each in usual if each.start <= start < each.until), Decimal(0))
            hours = Decimal((until - start) // MILLISECOND) / 3_600_000
            found[one.cluster, one.node, start.date()] += price * one.units * hours
    return found


def _bounds(one: _Time, spans: list[_Price]) -> set[datetime]:
    return {one.start, one.until, *_midnights(one.start, one.until)} | {
        at for each in spans for at in (each.start, each.until) if one.start < at < one.until
    }


def _midnights(start: datetime, until: datetime) -> Iterator[datetime]:
    at = start.replace(hour=0, minute=0, second=0, microsecond=0) + timedelta(days=1)
    while at < until:
        yield at
        at += timedelta(days=1)


FUTURE = """
SELECT offer.node, lower(span.period) FROM clusters_nodespan AS span JOIN clusters_nodeoffer AS offer ON offer.id = span.offer_id
 WHERE lower(span.period) > now() ORDER BY span.id
"""
DAYS = """
SELECT DISTINCT (lower(period) AT TIME ZONE 'UTC')::date FROM billing_usagesegment ORDER BY 1
"""
OFFERED = """
SELECT offer.cluster_id, offer.node, rate.id, span.units, lower(span.period), upper(span.period)
  FROM clusters_nodespan AS span JOIN clusters_nodeoffer AS offer ON offer.id = span.offer_id
  JOIN billing_rate AS rate ON (rate.cluster_id, rate.flavor, rate.capacity_type)
                             = (offer.cluster_id, offer.flavor, span.capacity_type)
 WHERE NOT isempty(span.period) ORDER BY span.id
"""
USED = """
SELECT meter.cluster_id, meter.node, rate.id, meter.gpu_units, lower(segment.period), upper(segment.period), price.unit_price
  FROM billing_usagesegment AS segment JOIN billing_meter AS meter ON meter.id = segment.meter_id
  JOIN billing_rate AS rate ON (rate.cluster_id, rate.flavor, rate.capacity_type)
                             = (meter.cluster_id, meter.flavor, meter.capacity_type)
  LEFT JOIN billing_price AS price ON price.id = segment.price_id
 WHERE meter.node <> '' ORDER BY segment.id
"""
PRICES = """
SELECT rate_id, coalesce(lower(valid), '2000-01-01'), coalesce(upper(valid), '2100-01-01'), unit_price FROM billing_price
 WHERE NOT isempty(valid) ORDER BY id
"""
CORRECTIONS = """
SELECT rate_id, lower(span), upper(span), unit_price FROM billing_pricecorrection ORDER BY id
"""
SET_ASIDE = """
SELECT cluster_id, node, hour, currency FROM billing_negativenodehour WHERE state <> 'superseded'
"""
