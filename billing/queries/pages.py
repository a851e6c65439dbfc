"""The cost figures of the overview, as frozen values. The usage page uses the report itself."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from fractions import Fraction
from typing import Any
from uuid import UUID

from django.db import connection

from billing.engine.shares import shown_parts
from billing.models import Price
from clusters.queries import visible_clusters
from foundation.clock import now
from tenancy.queries import Actor, visible_tenants

from .progress import OpenRun, Whose, open_runs, positions, provisional_parts

NO_CURRENCY = "USD"
MILLISECONDS_AN_HOUR = 3_600_000
HOURS_PLACES = 2


@dataclass(frozen=True, slots=True)
class Spend:
    """The usage of the actor's tenants since the month began, in the currency of the largest part.

    GPU-hours are of physical GPUs, with two decimals.
    """

    amount: Decimal
    currency: str
    others: tuple[tuple[Decimal, str], ...]
    gpu_hours: Decimal
    unpriced_gpu_hours: Decimal


@dataclass(frozen=True, slots=True)
class PriceLine:
    """A price with its period of validity. `state` is `active`, `pending` (later) or `expired`."""

    id: UUID
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
    """Cost and use since the first of the month (UTC), including running work up to now."""
    at = now()
    first = at.astimezone(UTC).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    tenants = list(visible_tenants(actor).values_list("id", flat=True))
    running = open_runs(Whose(tenants=tenants), at)
    with connection.cursor() as cursor:
        cursor.execute(SPENT, spent_values(first, tenants, running))
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


def spent_values(first: datetime, tenants: Sequence[UUID], running: Sequence[OpenRun]) -> dict[str, Any]:
    """The parameters of SPENT for the month that begins at `first`."""
    clusters, uids, ends = positions(running)
    return {
        "first": first, "month": first.date(), "tenants": list(tenants), "clusters": clusters, "uids": uids, "ends": ends,
    }  # fmt: skip


def _hours(milliseconds: Iterable[Fraction]) -> Decimal:
    _, total = shown_parts([part / MILLISECONDS_AN_HOUR for part in milliseconds], HOURS_PLACES)
    return total


SPENT = """
SELECT currency, sum(cost), sum(gpu_milliseconds), gpu_numerator, gpu_denominator FROM (
    SELECT currency, cost, gpu_milliseconds, gpu_numerator, gpu_denominator
    FROM billing_tenantmonth WHERE tenant_id = ANY(%(tenants)s) AND month = %(month)s
    UNION ALL
    SELECT s.currency, -s.cost, -s.gpu_milliseconds, m.gpu_numerator, m.gpu_denominator
    FROM unnest(%(clusters)s::uuid[], %(uids)s::text[], %(ends)s::timestamptz[]) AS known(cluster_id, source_uid, until)
    JOIN billing_meter AS m ON m.cluster_id = known.cluster_id AND m.source_uid = known.source_uid
        AND m.metered_until > known.until
    JOIN billing_usagesegment AS s ON s.meter_id = m.id
    WHERE lower(s.period) >= greatest(known.until, %(first)s)
        AND lower(s.period) < %(first)s + interval '1 month'
    UNION ALL
    SELECT l.currency, l.amount, 0, 1, 1
    FROM billing_ledgerentry AS e JOIN billing_ledgerline AS l ON l.entry_id = e.id
    JOIN billing_ledgeraccount AS a ON a.id = l.account_id AND a.kind = 'tenant_expense'
    WHERE e.tenant_id = ANY(%(tenants)s) AND e.kind IN ('reversal', 'reentry', 'credit')
        AND e.charge_day >= %(month)s AND e.charge_day < %(month)s + interval '1 month'
) AS part GROUP BY currency, gpu_numerator, gpu_denominator
"""
"""The stored sums of the month, less what was recorded of open runs since they were read: their provisional part
contains it. Added are the corrections of prices and the credits that the ledger posted. What has no price has no currency either.
"""


def price_lines(actor: Actor, cluster: str = "") -> tuple[PriceLine, ...]:
    """Every price of the clusters that the actor may see, by cluster and flavor, newest first."""
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
        id=price.id,
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
