"""What the overview shows of cost, as frozen values. The usage page asks the report itself."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from fractions import Fraction

from django.db import connection

from billing.engine.shares import shown_parts
from billing.models import Price
from clusters.queries import visible_clusters
from foundation.clock import now
from tenancy.queries import Actor, visible_tenants

from .progress import Whose, open_runs, positions, provisional_parts

NO_CURRENCY = "USD"
MILLISECONDS_AN_HOUR = 3_600_000
HOURS_PLACES = 2


@dataclass(frozen=True, slots=True)
class Spend:
    """What the actor's tenants have used since the month began, in the currency that most of it is in.

    GPU-hours are of physical GPUs, with two decimals.
    """

    amount: Decimal
    currency: str
    others: tuple[tuple[Decimal, str], ...]
    gpu_hours: Decimal
    unpriced_gpu_hours: Decimal


@dataclass(frozen=True, slots=True)
class PriceLine:
    """A price with the time it holds. `state` is `active`, `pending` (later) or `expired`."""

    cluster: str
    flavor: str
    capacity_type: str
    unit_price: Decimal
    currency: str
    valid_from: datetime
    valid_to: datetime | None
    state: str
    cpu_price: Decimal | None
    memory_price: Decimal | None
    interruptions_per_hour: str


def spend_this_month(actor: Actor) -> Spend:
    """Cost and use since the first of the month (UTC), running work up to now included."""
    at = now()
    first = at.astimezone(UTC).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    tenants = list(visible_tenants(actor).values_list("id", flat=True))
    running = open_runs(Whose(tenants=tenants), at)
    with connection.cursor() as cursor:
        cursor.execute(SPENT, [first, *positions(running), tenants])
        lines = [
            (currency, cost, int(gpu) * Fraction(numerator, denominator))
            for currency, cost, gpu, numerator, denominator in cursor.fetchall()
        ]
    lines += [
        (part.piece.currency, part.piece.cost, part.piece.gpu_milliseconds * part.meter.gpu_share)
        for part in provisional_parts(running, start=first)
    ]
    costs: dict[str, Decimal] = defaultdict(Decimal)
    for currency, cost, _ in lines:
        costs[currency] += cost
    priced = sorted(((cost, currency) for currency, cost in costs.items() if currency), reverse=True)
    amount, currency = priced[0] if priced else (Decimal(0), NO_CURRENCY)
    return Spend(
        amount=amount,
        currency=currency,
        others=tuple(priced[1:]),
        gpu_hours=_hours(gpu for _, _, gpu in lines),
        unpriced_gpu_hours=_hours(gpu for currency, _, gpu in lines if not currency),
    )


def _hours(milliseconds: Iterable[Fraction]) -> Decimal:
    _, total = shown_parts([part / MILLISECONDS_AN_HOUR for part in milliseconds], HOURS_PLACES)
    return total


SPENT = """
WITH part AS (SELECT * FROM billing_usagesegment WHERE lower(period) >= %s)
SELECT part.currency, sum(part.cost), sum(part.gpu_milliseconds), m.gpu_numerator, m.gpu_denominator
FROM part JOIN billing_meter AS m ON m.id = part.meter_id
LEFT JOIN unnest(%s::uuid[], %s::text[], %s::timestamptz[]) AS known(cluster_id, source_uid, until)
    ON known.cluster_id = m.cluster_id AND known.source_uid = m.source_uid
WHERE m.tenant_id = ANY(%s) AND (known.until IS NULL OR lower(part.period) < known.until)
GROUP BY part.currency, m.gpu_numerator, m.gpu_denominator
"""
"""What has no price has no currency either."""


def price_lines(actor: Actor, cluster: str = "") -> tuple[PriceLine, ...]:
    """Every price of the clusters the actor may see, by cluster and flavor, the newest first."""
    at = now()
    prices = Price.objects.filter(rate__cluster__in=visible_clusters(actor)).select_related("rate__cluster")
    if cluster:
        prices = prices.filter(rate__cluster__name=cluster)
    ordered = prices.order_by("rate__cluster__name", "rate__flavor", "rate__capacity_type", "-valid")
    return tuple(_price_line(price, at) for price in ordered)


def _price_line(price: Price, at: datetime) -> PriceLine:
    start, end = price.valid.lower, price.valid.upper
    state = "pending" if start > at else "expired" if end is not None and end <= at else "active"
    often = price.interruptions_per_hour
    return PriceLine(
        cluster=price.rate.cluster.name,
        flavor=price.rate.flavor,
        capacity_type=price.rate.capacity_type,
        unit_price=price.unit_price,
        currency=price.currency,
        valid_from=start,
        valid_to=end,
        state=state,
        cpu_price=price.cpu_price,
        memory_price=price.memory_price,
        interruptions_per_hour="" if often is None else f"{often.normalize():f}",
    )
