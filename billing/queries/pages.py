"""What the overview shows of cost, as frozen values. The usage page asks the report itself."""

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from django.db.models import Q, Sum

from billing.models import Price, UsageSegment
from clusters.queries import visible_clusters
from foundation.clock import now
from tenancy.queries import Actor, visible_tenants

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


def spend_this_month(actor: Actor) -> Spend:
    """Cost and use since the first of the month (UTC), up to what has been metered."""
    first = now().replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    segments = UsageSegment.objects.filter(period__startswith__gte=first, meter__tenant__in=visible_tenants(actor))
    rows = segments.values("currency").annotate(
        cost_sum=Sum("cost"), gpu=Sum("gpu_milliseconds"), unpriced=Sum("gpu_milliseconds", filter=Q(price=None))
    )
    found = list(rows)
    priced = sorted(((row["cost_sum"], row["currency"]) for row in found if row["currency"]), reverse=True)
    amount, currency = priced[0] if priced else (Decimal(0), NO_CURRENCY)
    return Spend(
        amount=amount,
        currency=currency,
        others=tuple(priced[1:]),
        gpu_milliseconds=sum(row["gpu"] or 0 for row in found),
        unpriced_gpu_milliseconds=sum(row["unpriced"] or 0 for row in found),
    )


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
    return PriceLine(
        cluster=price.rate.cluster.name,
        flavor=price.rate.flavor,
        capacity_type=price.rate.capacity_type,
        unit_price=price.unit_price,
        currency=price.currency,
        valid_from=start,
        valid_to=end,
        state=state,
    )
