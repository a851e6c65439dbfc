"""A price from own costs: the steps are shown first, then the price is set."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect

from billing.engine.own_costs import INPUTS, NotOwnCosts, OwnCosts, Steps, read_own_costs, stored_costs
from billing.operations.prices import NewPrice, create_price, try_own_costs
from billing.queries.corrections import visible_price
from clusters.models import Flavor
from clusters.queries import require_at_owner, visible_clusters
from foundation.pages import Form, show, typed
from foundation.problems import Conflict, FieldError, Invalid, NotFound, PermissionDenied, Problem
from tenancy.engine.roles import Permission
from tenancy.queries import Actor, visible_tenants
from tenancy.web import page

from .typing_in import midnight_of

CONTROLS = {name: name for name in ("cluster", "flavor", "currency", *INPUTS, "effective_from")}
CONTROLS["capacity_type"] = "flavor"
LABELS = {
    "purchase_price": "Purchase price per node",
    "residual_value": "Residual value per node",
    "life_months": "Life in months",
    "nodes": "Nodes",
    "units_per_node": "Units per node",
    "spares_percent": "Spare nodes, %",
    "power_watts": "Power per node, W",
    "load_percent": "Average load, %",
    "pue": "PUE",
    "electricity_price": "Electricity per kWh",
    "space_cost": "Space per node and month",
    "network_cost": "Network per node and month",
    "support_cost": "Support per year",
    "support_percent": "Support per year, % of purchase",
    "staff_cost": "Staff per month",
    "capital_percent": "Cost of capital per year, %",
    "utilisation_percent": "Expected utilisation, %",
    "margin_percent": "Margin, %",
}


@dataclass(frozen=True, slots=True)
class OwnCostsPage:
    form: Form
    clusters: Sequence[tuple[str, str]]
    flavors: Sequence[tuple[str, str]]
    steps: Steps | None = None
    """Of what was typed; None before."""
    currency: str = ""


@page(takes=("price",))
def own_costs(request: HttpRequest, actor: Actor) -> HttpResponse:
    """Users who manage prices see what their costs give, and set it. What they set is what the page has shown."""
    managed = visible_tenants(actor, Permission.MANAGE_PRICES)
    if not managed.exists():
        raise PermissionDenied("This needs the permission to set prices.")
    if request.method != "POST":
        return _page(request, actor, Form(_kept(actor, request.GET.get("price", ""))))
    values = typed(request)
    steps = None
    try:
        wanted, costs = _wanted(values)
        steps = try_own_costs(actor, wanted, costs)
        if values.get("what") != "set":
            return _page(request, actor, Form(values), steps, wanted.currency)
        if values.get("shown") != _shown(steps, wanted.currency):
            raise Conflict("The price is not the one that was shown. Check the steps below, then set it.")
        price = create_price(actor, wanted)
    except Problem as problem:
        form = Form.refused(values, problem, CONTROLS)
        currency = "" if steps is None else wanted.currency
        return _page(request, actor, form, steps, currency, status=problem.status)
    told = f"{price.unit_price.normalize():f} {price.currency}"
    messages.success(request, f"{price.rate.flavor} on {price.rate.cluster.name} costs {told}.")
    return redirect("price", price.id)


def _kept(actor: Actor, price_id: str) -> dict[str, str]:
    """The costs that a price keeps, to begin with; nothing without a price."""
    if not price_id:
        return {}
    try:
        price = visible_price(actor, UUID(price_id))
    except ValueError:
        raise NotFound from None
    require_at_owner(actor, price.rate.cluster, Permission.MANAGE_PRICES)
    texts = stored_costs(price.own_costs).as_text() if price.own_costs else {}
    return {"cluster": price.rate.cluster.name, "flavor": price.rate.flavor, "currency": price.currency, **texts}


def _shown(steps: Steps, currency: str) -> str:
    return f"{steps.rate:f} {currency}"


def _wanted(values: Mapping[str, str]) -> tuple[NewPrice, OwnCosts]:
    errors: list[FieldError] = []
    effective_from = midnight_of(values.get("effective_from", ""), errors)
    if not values.get("flavor", "").strip():
        errors.append(FieldError("flavor", "required", "name the flavor"))
    texts = {name: values.get(name, "").strip() for name in INPUTS}
    try:
        costs = read_own_costs(values.get("currency", "").strip().upper(), texts)
    except NotOwnCosts as refused:
        raise Invalid(errors=[*errors, *(FieldError(*fault) for fault in refused.faults)]) from refused
    if errors:
        raise Invalid(errors=errors)
    wanted = NewPrice.from_own_costs(
        values.get("cluster", ""), values["flavor"].strip(), costs, effective_from=effective_from
    )
    return wanted, costs


def _page(
    request: HttpRequest, actor: Actor, form: Form, steps: Steps | None = None, currency: str = "", *, status: int = 200
) -> HttpResponse:
    managed = visible_tenants(actor, Permission.MANAGE_PRICES)
    clusters = list(visible_clusters(actor).filter(owner__in=managed).order_by("name"))
    flavors = Flavor.objects.filter(cluster__in=clusters).order_by("name").values_list("name", flat=True)
    if steps is not None:
        form = Form({**form.values, "shown": _shown(steps, currency)}, form.errors, form.problem, form.loose)
    shown = OwnCostsPage(
        form=form,
        clusters=tuple((cluster.name, cluster.name) for cluster in clusters),
        flavors=tuple((name, "") for name in dict.fromkeys(flavors)),
        steps=steps,
        currency=currency,
    )
    return show(request, "billing/own_costs.html", shown, status=status)
