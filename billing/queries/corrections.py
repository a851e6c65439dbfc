"""Corrections of prices: those that there are, and what one would change."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
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
from .prices import RateKey, price_spans

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
    return effects_of_prices({(rate.cluster_id, rate.flavor, rate.capacity_type): (new,)}, start, until)


def effects_of_prices(
    changed: Mapping[RateKey, Sequence[Correction] | None], start: datetime, until: datetime
) -> tuple[Effect, ...]:
    """The cost of time in [start, until) that was metered on these rates, by tenant path: as it is, and with these
    corrections. None: without a price.

    Raises Invalid `span_too_large`.
    """
    sums: Mapping[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0])
    prices = price_spans({cluster for cluster, _, _ in changed}, start, until)
    known = corrections_of({cluster for cluster, _, _ in changed}, start, until)
    left = MOST_SEGMENTS
    for cluster_id, capacity in sorted({(cluster, capacity) for cluster, _, capacity in changed}):
        books = {
            (flavor, capacity): PriceBook(tuple(prices.get(key, ())), known.get(key, ()))
            for key in {*prices, *known, *changed}
            for of, flavor, its in [key]
            if (of, its) == (cluster_id, capacity)
        }
        its_changes = {flavor: new for (of, flavor, its), new in changed.items() if (of, its) == (cluster_id, capacity)}
        with_changes = {
            **books,
            **{(flavor, capacity): _with(books[flavor, capacity], new) for flavor, new in its_changes.items()},
        }
        for path, segment in _segments(cluster_id, capacity, list(its_changes), start, until, most=left):
            left -= 1
            for column, book in enumerate((books, with_changes)):
                for currency, cost in corrected_cost(segment, book)[0].items():
                    sums[path, currency][column] += cost
    return tuple(Effect(*key, money(old), money(after)) for key, (old, after) in sorted(sums.items()))


def _with(book: PriceBook, new: Sequence[Correction] | None) -> PriceBook:
    return PriceBook() if new is None else replace(book, corrections=(*book.corrections, *new))


def _segments(
    cluster_id: UUID, capacity: str, flavors: list[str], start: datetime, until: datetime, *, most: int
) -> Iterator[tuple[str, RatedSegment]]:
    values: dict[str, Any] = {
        "start": start, "until": until, "day_before": start - timedelta(days=1), "cluster": cluster_id,
        "capacity": capacity, "flavors": flavors, "most": most + 1,
    }  # fmt: skip
    with connection.cursor() as cursor:
        cursor.execute(TOUCHED, values)
        rows = cursor.fetchall()
    if len(rows) > most:
        detail = "too much time was metered in this span; correct it in shorter parts"
        raise Invalid.field("effective_until", "span_too_large", detail)
    for path, begins, ends, unit, gpus, cpu, memory, since, flavor, cpu_flavor in rows:
        load = Load(unit, gpus, cpu, since, memory)
        yield path, RatedSegment(load, capacity, flavor, cpu_flavor, begins, ends, Decimal(0), "")


TOUCHED = """
SELECT m.tenant_path, greatest(lower(s.period), %(start)s), least(upper(s.period), %(until)s), m.unit, m.gpu_units,
    m.cpu_millicores, m.memory_mib, m.metered_from, m.flavor, m.cpu_flavor
FROM billing_usagesegment AS s JOIN billing_meter AS m ON m.id = s.meter_id
WHERE lower(s.period) > %(day_before)s AND lower(s.period) < %(until)s AND upper(s.period) > %(start)s
    AND m.cluster_id = %(cluster)s AND m.capacity_type = %(capacity)s AND (m.flavor = ANY(%(flavors)s) OR m.cpu_flavor = ANY(%(flavors)s))
LIMIT %(most)s
"""
