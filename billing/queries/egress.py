"""Prices of moving data between regions, by date."""

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from uuid import UUID

from django.db.models import Exists, OuterRef, Q, QuerySet, Value
from django.db.models.functions import Concat

from billing.engine.egress import EgressRate
from billing.models import EgressPrice
from foundation.clock import now
from foundation.problems import NotFound
from tenancy.engine.roles import Permission
from tenancy.queries import Actor, NotAllowedHere, permissions_at, visible_tenants


@dataclass(frozen=True, slots=True)
class EgressLine:
    """An egress price with its period of validity. `state` is `active`, `pending` (later) or `expired`."""

    id: UUID
    organisation: str
    from_region: str
    to_region: str
    price_per_gib: Decimal
    currency: str
    valid_from: datetime
    valid_to: datetime | None
    state: str
    may_end: bool


def visible_egress_prices(actor: Actor) -> QuerySet[EgressPrice]:
    """Egress prices, including past and future ones, of the organisations at or above a tenant that the
    actor may see.
    """
    own = OuterRef("route__owner__path")
    at_or_below = Q(path=own) | Q(path__startswith=Concat(own, Value("/")))
    found = EgressPrice.objects.filter(Exists(visible_tenants(actor).filter(at_or_below)))
    return found.select_related("route__owner")


def egress_price_by_id(actor: Actor, price_id: UUID, permission: Permission = Permission.VIEW) -> EgressPrice:
    """The price. NotFound if it does not exist or the actor may not see it; NotAllowedHere if the actor may only see
    it.
    """
    price = visible_egress_prices(actor).filter(id=price_id).first()
    if price is None:
        raise NotFound
    owner = price.route.owner
    if permission != Permission.VIEW and permission not in permissions_at(actor, owner):
        raise NotAllowedHere(owner, permission)
    return price


def egress_rates(at: datetime) -> tuple[EgressRate, ...]:
    """The prices in force at `at`, and those scheduled for later."""
    rows = EgressPrice.objects.filter(Q(valid__endswith__isnull=True) | Q(valid__endswith__gt=at))
    return tuple(
        EgressRate(
            owner_path=row.route.owner.path,
            from_region=row.route.from_region,
            to_region=row.route.to_region,
            price_per_gib=row.price_per_gib,
            currency=row.currency,
            since=row.valid.lower,
            until=row.valid.upper,
        )
        for row in rows.select_related("route__owner").order_by("route_id", "valid")
    )


def egress_lines(actor: Actor) -> tuple[EgressLine, ...]:
    """Every egress price that the actor may see, by regions, newest first."""
    at = now()
    mine = set(visible_tenants(actor, Permission.MANAGE_PRICES).values_list("id", flat=True))
    ordered = visible_egress_prices(actor).order_by(
        "route__owner__path", "route__from_region", "route__to_region", "-valid"
    )
    return tuple(_line(price, at, is_own=price.route.owner_id in mine) for price in ordered)


def _line(price: EgressPrice, at: datetime, *, is_own: bool) -> EgressLine:
    start, end = price.valid.lower, price.valid.upper
    is_over = end is not None and end <= at
    return EgressLine(
        id=price.id,
        organisation=price.route.owner.path,
        from_region=price.route.from_region,
        to_region=price.route.to_region,
        price_per_gib=price.price_per_gib,
        currency=price.currency,
        valid_from=start,
        valid_to=end,
        state="expired" if is_over else "pending" if start > at else "active",
        may_end=is_own and not is_over,
    )
