"""Egress prices by date: a new price replaces prices scheduled after its start; earlier prices do not change."""

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from uuid import UUID

from django.db import transaction
from psycopg.types.range import TimestamptzRange

from billing import locks
from billing.engine.rating import whole_milliseconds
from billing.models import EgressPrice, EgressRoute
from billing.queries.egress import egress_price_by_id
from foundation.clock import now
from foundation.outbox import announce
from foundation.plain_json import instant
from foundation.problems import Conflict, Invalid, PermissionDenied
from tenancy.engine.roles import Permission
from tenancy.models import Tenant
from tenancy.operations import record_audit
from tenancy.queries import Actor, tenant_by_path, visible_tenants

from .prices import refuse_mixed_currencies


@dataclass(frozen=True, slots=True)
class NewEgressPrice:
    """A price per GiB to set; regions may contain `*`. Without `effective_from` it begins now.

    `organisation` is a path, or empty for the one organisation where the actor may set prices.
    """

    from_region: str
    to_region: str
    price_per_gib: Decimal
    currency: str = "USD"
    organisation: str = ""
    effective_from: datetime | None = None


def create_egress_price(actor: Actor, wanted: NewEgressPrice) -> EgressPrice:
    """The new price, in force from its start until another price of the same two regions replaces it.

    Raises NotFound and NotAllowedHere (organisation), PermissionDenied, Invalid (`required`, `not_an_organisation`,
    `unknown_currency`, `mixed_currencies`, `in_the_past`).
    """
    owner = _owner(actor, wanted.organisation)
    with transaction.atomic():
        locks.rewrite_price_book()
        at = whole_milliseconds(now())
        begins = whole_milliseconds(wanted.effective_from) if wanted.effective_from else at
        if begins < at:
            raise Invalid.field("effective_from", "in_the_past", "past prices cannot change: start now or later")
        refuse_mixed_currencies(owner.path, wanted.currency, begins)
        route, _ = EgressRoute.objects.get_or_create(
            owner=owner, from_region=wanted.from_region, to_region=wanted.to_region
        )
        _make_room(route, begins)
        price = EgressPrice.objects.create(
            route=route,
            price_per_gib=wanted.price_per_gib,
            currency=wanted.currency,
            valid=TimestamptzRange(begins, None),
        )
        _record(actor, "egress_price.create", price, {"effective_from": instant(begins)})
    return egress_price_by_id(actor, price.id)


def end_egress_price(actor: Actor, price_id: UUID) -> None:
    """Ends a price now, or withdraws one that has not begun. Afterwards its route has no price, unless a less specific
    price matches.

    Raises NotFound, NotAllowedHere, Conflict `state_conflict` for one that has ended.
    """
    with transaction.atomic():
        locks.rewrite_price_book()
        price = egress_price_by_id(actor, price_id, Permission.MANAGE_PRICES)
        at = whole_milliseconds(now())
        if price.valid.upper is not None and price.valid.upper <= at:
            raise Conflict(f"This price already ended {instant(price.valid.upper)}.", code="state_conflict")
        _record(actor, "egress_price.end", price, {"ended_at": instant(max(at, price.valid.lower))})
        if price.valid.lower >= at:
            EgressPrice.objects.filter(id=price.id).delete()
        else:
            EgressPrice.objects.filter(id=price.id).update(valid=TimestamptzRange(price.valid.lower, at))


def _owner(actor: Actor, path: str) -> Tenant:
    if path:
        owner = tenant_by_path(actor, path, Permission.MANAGE_PRICES)
        if owner.depth:
            raise Invalid.field("organisation", "not_an_organisation", "egress prices apply to a whole organisation")
        return owner
    organisations = list(visible_tenants(actor, Permission.MANAGE_PRICES).filter(depth=0).order_by("path")[:2])
    if not organisations:
        raise PermissionDenied("This needs the permission manage_prices at an organisation.")
    if len(organisations) > 1:
        raise Invalid.field(
            "organisation", "required", "give the organisation whose fleet the price is for, as a path such as acme"
        )
    return organisations[0]


def _make_room(route: EgressRoute, begins: datetime) -> None:
    """Withdraws prices scheduled for later and ends the price in force where the new one begins."""
    EgressPrice.objects.filter(route=route, valid__startswith__gte=begins).delete()
    for price in EgressPrice.objects.filter(route=route, valid__contains=begins):
        EgressPrice.objects.filter(id=price.id).update(valid=TimestamptzRange(price.valid.lower, begins))


def _record(actor: Actor, action: str, price: EgressPrice, more: dict[str, str | None]) -> None:
    detail = {
        "from_region": price.route.from_region,
        "to_region": price.route.to_region,
        "price_per_gib": format(price.price_per_gib, "f"),
        "currency": price.currency,
        **more,
    }
    owner_id = price.route.owner_id
    record_audit(actor, action, object_kind="egress_price", object_id=price.id, tenant_id=owner_id, detail=detail)
    announce("cycle")
