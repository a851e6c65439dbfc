"""Egress prices by region with their period of validity; setting a new one and ending one."""

from dataclasses import dataclass
from decimal import Decimal
from uuid import UUID

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect

from billing.engine.egress import MOST_EGRESS_PRICE, REGION, is_region
from billing.operations.egress import NewEgressPrice, create_egress_price, end_egress_price
from billing.queries.egress import EgressLine, egress_lines
from clusters.queries import visible_clusters
from foundation.pages import Form, asked, show, typed
from foundation.problems import FieldError, Invalid, Problem
from tenancy.engine.roles import Permission
from tenancy.queries import Actor, visible_tenants
from tenancy.web import action, page

from .typing_in import PLACES, decimal_of, fault_of_currency, midnight_of

CONTROLS = {
    name: name for name in ("organisation", "from_region", "to_region", "price_per_gib", "currency", "effective_from")
}


@dataclass(frozen=True, slots=True)
class EgressPage:
    prices: tuple[EgressLine, ...]
    form: Form
    organisations: tuple[tuple[str, str], ...]
    """Where the viewer may set prices; may be empty."""
    regions: tuple[tuple[str, str], ...]
    may_set: bool
    """Prices of capacity, of some tenant."""


@page(takes=tuple(CONTROLS))
def egress(request: HttpRequest, actor: Actor) -> HttpResponse:
    """Every egress price that the viewer may see; users who manage prices set a new one here."""
    if request.method != "POST":
        return _page(request, actor, Form(values={"currency": "USD", **asked(request)}))
    values = typed(request)
    try:
        price = create_egress_price(actor, _wanted(values))
    except Problem as problem:
        return _page(request, actor, Form.refused(values, problem, CONTROLS), status=problem.status)
    told = f"{price.price_per_gib.normalize():f} {price.currency}"
    messages.success(request, f"A GiB from {price.route.from_region} to {price.route.to_region} costs {told}.")
    return redirect("egress")


@action
def end(request: HttpRequest, actor: Actor, price_id: UUID) -> HttpResponse:
    """Ends a price now, or withdraws it."""
    end_egress_price(actor, price_id)
    messages.success(request, "The egress price is ended.")
    return redirect("egress")


def _page(request: HttpRequest, actor: Actor, form: Form, *, status: int = 200) -> HttpResponse:
    owners = visible_tenants(actor, Permission.MANAGE_PRICES).filter(depth=0).order_by("path")
    regions = visible_clusters(actor).exclude(region="").order_by("region").values_list("region", flat=True)
    shown = EgressPage(
        prices=egress_lines(actor),
        form=form,
        organisations=tuple((path, path) for path in owners.values_list("path", flat=True)),
        regions=tuple((name, "") for name in dict.fromkeys(regions)),
        may_set=visible_tenants(actor, Permission.MANAGE_PRICES).exists(),
    )
    return show(request, "billing/egress.html", shown, status=status)


def _wanted(values: dict[str, str]) -> NewEgressPrice:
    errors: list[FieldError] = []
    regions = {name: values.get(name, "").strip() for name in ("from_region", "to_region")}
    errors += [FieldError(name, "bad_format", REGION) for name, text in regions.items() if not is_region(text)]
    price = decimal_of(values.get("price_per_gib", ""))
    if not price.is_finite() or not 0 <= price <= MOST_EGRESS_PRICE or price != round(price, PLACES):
        errors.append(FieldError("price_per_gib", "bad_format", f"a number such as 0.02, at most {PLACES} decimals"))
        price = Decimal(0)
    currency = values.get("currency", "").strip().upper()
    if fault := fault_of_currency(currency):
        errors.append(FieldError("currency", "bad_format", fault))
    effective_from = midnight_of(values.get("effective_from", ""), errors)
    if errors:
        raise Invalid(errors=errors)
    return NewEgressPrice(
        regions["from_region"],
        regions["to_region"],
        price,
        currency,
        values.get("organisation", ""),
        effective_from,
    )
