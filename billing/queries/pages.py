"""What the overview shows of cost, as frozen values. The usage page asks the report itself."""

from collections import defaultdict
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal

from django.db import connection

from billing.models import Price
from clusters.queries import visible_clusters
from foundation.clock import now
from tenancy.queries import Actor, visible_tenants

from .progress import Whose, open_runs, positions, provisional_parts

NO_CURRENCY = "USD"


@dataclass(frozen=True, slots=True)
class Spend:
    """What the actor's tenants have used since the month began, in the currency that most of it is in."""

    amount: Decimal
    currency: str
    others: tuple[tuple[Decimal, str], ...]
    gpu_milliseconds: int
    unpriced_gpu_milliseconds: int


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
        lines = [(currency, cost, int(gpu), int(unpriced)) for currency, cost, gpu, unpriced in cursor.fetchall()]
    for part in provisional_parts(running, start=first):
        gpu = part.piece.gpu_milliseconds
        lines.append((part.piece.currency, part.piece.cost, gpu, 0 if part.piece.price_id else gpu))
    costs: dict[str, Decimal] = defaultdict(Decimal)
    for currency, cost, _, _ in lines:
        costs[currency] += cost
    priced = sorted(((cost, currency) for currency, cost in costs.items() if currency), reverse=True)
    amount, currency = priced[0] if priced else (Decimal(0), NO_CURRENCY)
    return Spend(
        amount=amount,
        currency=currency,
        others=tuple(priced[1:]),
        gpu_milliseconds=sum(gpu for _, _, gpu, _ in lines),
        unpriced_gpu_milliseconds=sum(unpriced for _, _, _, unpriced in lines),
    )


SPENT = """
WITH part AS (SELECT * FROM billing_usagesegment WHERE lower(period) >= %s)
SELECT part.currency, sum(part.cost), sum(part.gpu_milliseconds),
    coalesce(sum(part.gpu_milliseconds) FILTER (WHERE part.price_id IS NULL), 0)
FROM part JOIN billing_meter AS m ON m.id = part.meter_id
LEFT JOIN unnest(%s::uuid[], %s::text[], %s::timestamptz[]) AS known(cluster_id, source_uid, until)
    ON known.cluster_id = m.cluster_id AND known.source_uid = m.source_uid
WHERE m.tenant_id = ANY(%s) AND (known.until IS NULL OR lower(part.period) < known.until)
GROUP BY part.currency
"""


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
