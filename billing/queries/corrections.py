"""Corrections of prices: those that there are, and what one would change."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

from django.db import connection
from django.db.models import QuerySet

from billing.engine.corrected import Correction
from billing.engine.ledger import PriceBook, RatedSegment, corrected_cost, money
from billing.engine.rating import Load
from billing.models import Price, PriceCorrection, Rate
from clusters.queries import require_at_owner, visible_clusters
from foundation.problems import Invalid, NotFound
from tenancy.engine.roles import Permission
from tenancy.queries import Actor

from .charges import corrections_of
from .prices import price_spans

MOST_SEGMENTS = 200_000
"""In the span of one correction, so that its effect can be computed while a person waits."""


@dataclass(frozen=True, slots=True)
class Effect:
    """What a correction changes for the usage of one tenant path: its cost in the span, before and after."""

    tenant_path: str
    currency: str
    old: Decimal
    new: Decimal


def price_to_correct(actor: Actor, price_id: UUID) -> Price:
    """The price. NotFound if the actor may not see it; NotAllowedHere if they may only see it."""
    price = visible_price(actor, price_id)
    require_at_owner(actor, price.rate.cluster, Permission.MANAGE_PRICES)
    return price


def corrections_of_price(actor: Actor, price_id: UUID) -> QuerySet[PriceCorrection]:
    """The corrections of the price's rate, which anyone who sees the price may see."""
    return PriceCorrection.objects.filter(rate=visible_price(actor, price_id).rate)


def visible_price(actor: Actor, price_id: UUID) -> Price:
    """The price; NotFound if the actor may not see it. Also that of a cluster that was removed: what ran there was paid for."""
    prices = Price.objects.filter(rate__cluster__in=visible_clusters(actor, with_removed=True))
    price = prices.select_related("rate__cluster__owner").filter(id=price_id).first()
    if price is None:
        raise NotFound
    return price


def effects_of(rate: Rate, new: Correction) -> tuple[Effect, ...]:
    """The cost of metered time in the span, by tenant path, without and with this correction.

    Time that is metered later is corrected too. Raises Invalid `span_too_large`.
    """
    start, until = new.span.valid_from, new.span.valid_until
    assert until is not None
    prices = price_spans({rate.cluster_id}, start, until)
    known = corrections_of({rate.cluster_id}, start, until)
    capacity = rate.capacity_type
    books = {
        (flavor, capacity): PriceBook(tuple(prices.get(key, ())), known.get(key, ()))
        for key in {*prices, *known, (rate.cluster_id, rate.flavor, capacity)}
        for _, flavor, of in [key]
        if of == capacity
    }
    own = books[rate.flavor, capacity]
    changed = {**books, (rate.flavor, capacity): replace(own, corrections=(*own.corrections, new))}
    sums: Mapping[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0])
    for path, segment in _segments(rate, start, until):
        for column, book in enumerate((books, changed)):
            for currency, cost in corrected_cost(segment, book)[0].items():
                sums[path, currency][column] += cost
    return tuple(Effect(*key, money(old), money(after)) for key, (old, after) in sorted(sums.items()))


def _segments(rate: Rate, start: datetime, until: datetime) -> Iterator[tuple[str, RatedSegment]]:
    values: dict[str, Any] = {
        "start": start, "until": until, "day_before": start - timedelta(days=1), "cluster": rate.cluster_id,
        "capacity": rate.capacity_type, "flavor": rate.flavor, "most": MOST_SEGMENTS + 1,
    }  # fmt: skip
    with connection.cursor() as cursor:
        cursor.execute(TOUCHED, values)
        rows = cursor.fetchall()
    if len(rows) > MOST_SEGMENTS:
        detail = "too much time was metered in this span; correct it in shorter parts"
        raise Invalid.field("effective_until", "span_too_large", detail)
    for path, begins, ends, unit, gpus, cpu, memory, since, flavor, cpu_flavor in rows:
        load = Load(unit, gpus, cpu, since, memory)
        yield path, RatedSegment(load, rate.capacity_type, flavor, cpu_flavor, begins, ends, Decimal(0), "")


TOUCHED = """
SELECT m.tenant_path, greatest(lower(s.period), %(start)s), least(upper(s.period), %(until)s), m.unit, m.gpu_units,
    m.cpu_millicores, m.memory_mib, m.metered_from, m.flavor, m.cpu_flavor
FROM billing_usagesegment AS s JOIN billing_meter AS m ON m.id = s.meter_id
WHERE lower(s.period) > %(day_before)s AND lower(s.period) < %(until)s AND upper(s.period) > %(start)s
    AND m.cluster_id = %(cluster)s AND m.capacity_type = %(capacity)s AND %(flavor)s IN (m.flavor, m.cpu_flavor)
LIMIT %(most)s
"""
