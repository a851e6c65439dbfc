"""Prices of flavors, by date."""

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from uuid import UUID

from django.db.models import QuerySet

from billing.engine.rating import PriceSpan
from billing.models import Price
from clusters.queries import cluster_by_name, visible_clusters
from tenancy.engine.roles import Permission
from tenancy.queries import Actor, visible_tenants

RateKey = tuple[UUID, str, str]
"""Cluster id, flavor name, capacity type."""


VIEWED = ("id", "unit_price", "currency", "cpu_price", "memory_price", "interruptions_per_hour")
"""In the order of `PriceView`."""


@dataclass(frozen=True, slots=True)
class PriceView:
    """A price of one unit (a GPU, slice or share; a core of CPU-only flavors) for one hour.

    `cpu_price` (per core) and `memory_price` (per GiB) apply in addition; None if the price includes them.
    """

    id: UUID
    unit_price: Decimal
    currency: str
    cpu_price: Decimal | None = None
    memory_price: Decimal | None = None
    interruptions_per_hour: Decimal | None = None
    """Of spot capacity; None if not set."""


def price_book(at: datetime) -> Mapping[tuple[UUID, str], PriceView]:
    """The prices in force at `at`, by cluster id and flavor name. A flavor without an entry has no price."""
    rows = (
        Price.objects.filter(valid__contains=at, rate__cluster__removed_at__isnull=True)
        .order_by("created_at", "id")
        .values_list("rate__cluster_id", "rate__flavor", *VIEWED)
    )
    return {(cluster_id, flavor): PriceView(*viewed) for cluster_id, flavor, *viewed in rows}


def announced_prices(at: datetime) -> Mapping[tuple[UUID, str], tuple[tuple[datetime, PriceView], ...]]:
    """The prices that begin after `at`, earliest first, by cluster id and flavor name."""
    found: dict[tuple[UUID, str], tuple[tuple[datetime, PriceView], ...]] = defaultdict(tuple)
    rows = Price.objects.filter(valid__startswith__gt=at, rate__cluster__removed_at__isnull=True)
    for row in rows.select_related("rate").order_by("valid", "id"):
        view = PriceView(*(getattr(row, name) for name in VIEWED))
        found[row.rate.cluster_id, row.rate.flavor] += ((row.valid.lower, view),)
    return dict(found)


def price_spans(cluster_ids: Collection[UUID], start: datetime, until: datetime) -> Mapping[RateKey, list[PriceSpan]]:
    """Every price of these clusters in force at some time in [start, until), by cluster, flavor and capacity type."""
    spans: dict[RateKey, list[PriceSpan]] = defaultdict(list)
    rows = Price.objects.select_related("rate").filter(rate__cluster__in=cluster_ids, valid__overlap=(start, until))
    for row in rows:
        key = (row.rate.cluster_id, row.rate.flavor, row.rate.capacity_type)
        spans[key].append(
            PriceSpan(
                row.id, row.unit_price, row.currency, row.valid.lower, row.valid.upper, row.cpu_price, row.memory_price
            )
        )
    return spans


def visible_prices(actor: Actor, *, cluster_name: str = "", flavor: str = "") -> QuerySet[Price]:
    """Prices, including past and future ones, of the clusters that the actor may see. NotFound for a cluster they may
    not see.
    """
    prices = Price.objects.select_related("rate__cluster")
    if cluster_name:
        prices = prices.filter(rate__cluster=cluster_by_name(actor, cluster_name))
    else:
        prices = prices.filter(rate__cluster__in=visible_clusters(actor))
    return prices.filter(rate__flavor=flavor) if flavor else prices


def owners_of_costs(actor: Actor) -> frozenset[UUID]:
    """The owners of clusters whose own costs the actor may see: those whose prices they may set."""
    owners = Price.objects.filter(own_costs__isnull=False).values("rate__cluster__owner_id")
    return frozenset(
        visible_tenants(actor, Permission.MANAGE_PRICES).filter(id__in=owners).values_list("id", flat=True)
    )
