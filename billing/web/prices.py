"""Prices by cluster and flavor with their period of validity, and setting a new one."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect

from billing.models import MOST_INTERRUPTIONS
from billing.operations.prices import NewPrice, create_price
from billing.queries.pages import PriceLine, price_lines
from clusters.models import Flavor
from clusters.queries import visible_clusters
from foundation.pages import Form, asked, show, typed
from foundation.problems import FieldError, Invalid, Problem
from tenancy.engine.roles import Permission
from tenancy.queries import Actor, visible_tenants
from tenancy.web import page

from .typing_in import PLACES, decimal_of, fault_of_currency, midnight_of

CONTROLS = {
    "cluster": "cluster",
    "flavor": "flavor",
    "unit_price": "unit_price",
    "cpu_price": "cpu_price",
    "memory_price": "memory_price",
    "interruptions_per_hour": "interruptions_per_hour",
    "currency": "currency",
    "capacity_type": "flavor",
    "effective_from": "effective_from",
}
MOST_PRICE = Decimal(10) ** 9


@dataclass(frozen=True, slots=True)
class PricesPage:
    prices: tuple[PriceLine, ...]
    unpriced: tuple[tuple[str, str], ...]
    form: Form
    clusters: Sequence[tuple[str, str]]
    flavors: Sequence[tuple[str, str]]
    may_set: bool


@page(takes=tuple(CONTROLS.values()))
def prices(request: HttpRequest, actor: Actor) -> HttpResponse:
    """Every price of the clusters that the viewer may see; users who manage prices set a new one here."""
    if request.method != "POST":
        return _page(request, actor, Form(values={"currency": "USD", **asked(request)}))
    values = typed(request)
    try:
        price = create_price(actor, _wanted(values))
    except Problem as problem:
        return _page(request, actor, Form.refused(values, problem, CONTROLS), status=problem.status)
    messages.success(
        request,
        f"{price.rate.flavor} on {price.rate.cluster.name} costs {price.unit_price.normalize():f} {price.currency}.",
    )
    return redirect("prices")


def _page(request: HttpRequest, actor: Actor, form: Form, *, status: int = 200) -> HttpResponse:
    lines = price_lines(actor)
    clusters = list(visible_clusters(actor).order_by("name"))
    flavors = Flavor.objects.filter(cluster__in=clusters).order_by("cluster__name", "name")
    offered = list(flavors.values_list("cluster__name", "name"))
    priced = {(line.cluster, line.flavor) for line in lines if line.state == "active"}
    shown = PricesPage(
        prices=lines,
        unpriced=tuple(pair for pair in offered if pair not in priced),
        form=form,
        clusters=tuple((cluster.name, cluster.name) for cluster in clusters),
        flavors=tuple((name, "") for name in dict.fromkeys(name for _, name in offered)),
        may_set=visible_tenants(actor, Permission.MANAGE_PRICES).exists(),
    )
    return show(request, "billing/prices.html", shown, status=status)


def _wanted(values: dict[str, str]) -> NewPrice:
    errors: list[FieldError] = []
    unit_price = amount_of("unit_price", values, errors)
    cpu_price, memory_price = (
        amount_of(name, values, errors) if values.get(name, "").strip() else None
        for name in ("cpu_price", "memory_price")
    )
    often = _frequency(values.get("interruptions_per_hour", ""), errors)
    currency = values.get("currency", "").strip().upper()
    if fault := fault_of_currency(currency):
        errors.append(FieldError("currency", "bad_format", fault))
    effective_from = midnight_of(values.get("effective_from", ""), errors)
    if not values.get("flavor", "").strip():
        errors.append(FieldError("flavor", "required", "name the flavor"))
    if errors:
        raise Invalid(errors=errors)
    return NewPrice(
        cluster_name=values.get("cluster", ""),
        flavor=values["flavor"].strip(),
        unit_price=unit_price,
        cpu_price=cpu_price,
        memory_price=memory_price,
        interruptions_per_hour=often,
        currency=currency,
        effective_from=effective_from,
    )


def amount_of(name: str, values: Mapping[str, str], errors: list[FieldError]) -> Decimal:
    """The price that the user typed into the control; 0, and one more error, if it is none."""
    amount = decimal_of(values.get(name, ""))
    if not amount.is_finite() or not 0 <= amount < MOST_PRICE or amount != round(amount, PLACES):
        errors.append(FieldError(name, "bad_format", f"a number such as 2.74, at most {PLACES} decimals"))
        return Decimal(0)
    return amount


def _frequency(text: str, errors: list[FieldError]) -> Decimal | None:
    if not text.strip():
        return None
    often = decimal_of(text)
    if not often.is_finite() or not 0 <= often <= MOST_INTERRUPTIONS or often != round(often, PLACES):
        detail = f"a number such as 0.05, from 0 to {MOST_INTERRUPTIONS}, at most {PLACES} decimals"
        errors.append(FieldError("interruptions_per_hour", "bad_format", detail))
        return None
    return often
