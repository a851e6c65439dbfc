"""What pools of nodes offered, at the corrected prices: from the history of the fleet."""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any, NamedTuple, TypeAlias
from uuid import UUID

from django.db import connection

from billing.engine.corrected import corrected_spans
from billing.engine.idle import Offered, Worth, by_day, worth_of
from billing.engine.ledger import units
from billing.engine.rating import READINGS_AN_HOUR, PriceSpan
from clusters.queries.history import OfferedSpan, history_begins, offered_by_nodes, offered_together

from .charges import corrections_of
from .corrected import HAS_CORRECTION
from .prices import RateKey, price_spans


class PoolDayKey(NamedTuple):
    """A pool's day in one currency."""

    cluster_id: UUID
    flavor: str
    day: date
    currency: str


@dataclass(frozen=True, slots=True)
class ReservedTime:
    """A node that a tenant has reserved in [start, until)."""

    cluster_id: UUID
    node: str
    tenant_id: UUID
    tenant_path: str
    start: datetime
    until: datetime


ReservationSource: TypeAlias = Callable[[Collection[UUID], datetime, datetime], Sequence[ReservedTime]]
reservation_sources: list[ReservationSource] = []
"""The rooms above fill it when they are ready: this room knows no reservations."""


@dataclass(frozen=True, slots=True)
class NodeOffered:
    """What one node offered of a flavor during a part of a day."""

    node: str
    uid: str
    offered: Offered


@dataclass(frozen=True, slots=True)
class Pools:
    """What the pools of some clusters offered in [start, until). `known_from`: when each cluster's history begins."""

    start: datetime
    until: datetime
    worth: Mapping[PoolDayKey, Worth]
    prices: Mapping[RateKey, Sequence[PriceSpan]]
    known_from: Mapping[UUID, date]

    def is_known(self, key: PoolDayKey) -> bool:
        """Whether the history of its cluster contains the day."""
        return key.cluster_id in self.known_from and self.known_from[key.cluster_id] <= key.day


def pools_of(cluster_ids: Collection[UUID], start: datetime, until: datetime) -> Pools:
    """The worth of each pool's days. Equal nodes are counted together: the statement returns few rows."""
    prices = corrected_prices(cluster_ids, start, until)
    worth: dict[PoolDayKey, Worth] = defaultdict(Worth)
    known_from = {id_: at.astimezone(UTC).date() for id_, at in history_begins(cluster_ids).items()}
    for span in offered_together(cluster_ids, start, until):
        cluster_id, flavor = span.cluster_id, span.flavor
        spans = prices.get((cluster_id, flavor, span.capacity_type), ())
        for day, offered in by_day([_offer(span)]).items():
            for currency, part in worth_of(offered, spans).items():
                key = PoolDayKey(cluster_id, flavor, day, currency)
                worth[key] = worth[key].plus(part)
    return Pools(start, until, worth, prices, known_from)


def nodes_offered(
    cluster_ids: Collection[UUID], start: datetime, until: datetime, names: Collection[str] = ()
) -> Mapping[RateKey, list[NodeOffered]]:
    """The offers of each node (of these names, if given) within [start, until), by cluster, flavor and capacity type."""
    found: dict[RateKey, list[NodeOffered]] = defaultdict(list)
    for span in offered_by_nodes(cluster_ids, start, until, names):
        key = (span.cluster_id, span.flavor, span.capacity_type)
        found[key].append(NodeOffered(span.node, span.uid, _offer(span)))
    return found


def _offer(span: OfferedSpan) -> Offered:
    return Offered(
        span.start.astimezone(UTC), span.until.astimezone(UTC), span.unit, span.units, span.cpu_millicores, span.memory_mib,
        span.is_available, span.is_assumed,
    )  # fmt: skip


def corrected_prices(
    cluster_ids: Collection[UUID], start: datetime, until: datetime
) -> Mapping[RateKey, Sequence[PriceSpan]]:
    """The prices of each rate with the corrections put in their place."""
    book = price_spans(cluster_ids, start, until)
    corrections = corrections_of(cluster_ids, start, until)
    return {key: corrected_spans(book.get(key, ()), corrections.get(key, ())) for key in {*book, *corrections}}


def charged_to_guests(cluster_ids: Collection[UUID], start: date, until: date) -> Mapping[PoolDayKey, int]:
    """What pods without GPUs on nodes with GPUs paid at the price of a CPU-only flavor, by the corrected prices."""
    found: dict[PoolDayKey, int] = defaultdict(int)
    values: dict[str, Any] = {"clusters": list(cluster_ids), "start": start, "until": until}
    with connection.cursor() as cursor:
        cursor.execute(GUESTS, values)
        rows = cursor.fetchall()
        cursor.execute(CORRECTED_GUESTS, values)
        rows += cursor.fetchall()
    for cluster_id, flavor, day, currency, cost in rows:
        if currency:
            found[PoolDayKey(cluster_id, flavor, day, currency)] += units(cost)
    return found


def reserved_worth(cluster_ids: Collection[UUID], pools: Pools) -> Mapping[PoolDayKey, Mapping[tuple[str, UUID], int]]:
    """What the nodes that tenants had reserved are worth, by pool, day and tenant."""
    times = [one for source in reservation_sources for one in source(cluster_ids, pools.start, pools.until)]
    if not times:
        return {}
    nodes = nodes_offered(cluster_ids, pools.start, pools.until, {one.node for one in times})
    of_node: dict[tuple[UUID, str], list[ReservedTime]] = defaultdict(list)
    for one in times:
        of_node[one.cluster_id, one.node].append(one)
    parts: dict[PoolDayKey, dict[tuple[str, UUID], int]] = defaultdict(lambda: defaultdict(int))
    for key, offers in nodes.items():
        for each in offers:
            for one in of_node.get((key[0], each.node), ()):
                for day, within in by_day(_overlap([each.offered], one)).items():
                    for currency, worth in worth_of(within, pools.prices.get(key, ())).items():
                        parts[PoolDayKey(key[0], key[1], day, currency)][one.tenant_path, one.tenant_id] += worth.whole
    return {key: {who: part // READINGS_AN_HOUR for who, part in by.items()} for key, by in parts.items()}


def _overlap(offers: Iterable[Offered], one: ReservedTime) -> list[Offered]:
    found = []
    for offer in offers:
        start, until = max(offer.start, one.start.astimezone(UTC)), min(offer.until, one.until.astimezone(UTC))
        if start < until:
            found.append(Offered(start, until, offer.unit, offer.units, offer.cpu_millicores, offer.memory_mib))
    return found


GUESTS = """
SELECT m.cluster_id, m.flavor, d.day, d.currency, sum(d.cost)
FROM billing_meterday AS d JOIN billing_meter AS m ON m.id = d.meter_id
JOIN billing_price AS p ON p.id = d.price_id JOIN billing_rate AS r ON r.id = p.rate_id
WHERE d.day >= %(start)s AND d.day < %(until)s AND m.cluster_id = ANY(%(clusters)s)
    AND m.unit = 'gpu' AND m.gpu_units = 0 AND r.flavor <> m.flavor
GROUP BY 1, 2, 3, 4
"""
CORRECTED_GUESTS = f"""
SELECT m.cluster_id, m.flavor, (lower(s.period) AT TIME ZONE 'UTC')::date, moved.currency, sum(moved.cost)
FROM billing_usagesegment AS s JOIN billing_meter AS m ON m.id = s.meter_id
JOIN billing_price AS p ON p.id = s.price_id JOIN billing_rate AS rate ON rate.id = p.rate_id
CROSS JOIN LATERAL (
    SELECT currency, cost FROM billing_corrected(m.id, s.period)
    UNION ALL
    SELECT s.currency, -s.cost
) AS moved
WHERE lower(s.period) >= %(start)s::timestamp AT TIME ZONE 'UTC' AND lower(s.period) < %(until)s::timestamp AT TIME ZONE 'UTC'
    AND m.cluster_id = ANY(%(clusters)s) AND m.unit = 'gpu' AND m.gpu_units = 0 AND rate.flavor <> m.flavor AND {HAS_CORRECTION}
GROUP BY 1, 2, 3, 4
"""
