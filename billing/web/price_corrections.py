"""The page of one price: what it should have cost in past time, tried first and then set, and the corrections so far."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from fractions import Fraction
from uuid import UUID

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect

from billing.engine.months import midnight, month_before
from billing.engine.own_costs import Steps, steps_of, stored_costs
from billing.engine.shares import shown_parts
from billing.models import Price, PriceCorrection
from billing.models.periods import REASON_LENGTH
from billing.operations.corrections import NewCorrection, correct_price, preview_correction
from billing.queries.corrections import Effect, corrections_of_price, visible_price
from foundation.clock import database_now
from foundation.pages import Form, show, typed
from foundation.problems import FieldError, Invalid, Problem
from tenancy.engine.roles import Permission
from tenancy.queries import Actor, visible_tenants
from tenancy.web import page

from .own_costs import LABELS
from .prices import amount_of
from .sharing import ChangeLine
from .typing_in import day_of

CENTS = 2
SHOWN = 100
PRICES = ("unit_price", "cpu_price", "memory_price")
DAYS = ("effective_from", "effective_until")
CONTROLS = {name: name for name in (*PRICES, *DAYS, "reason")} | {"currency": "unit_price"}


@dataclass(frozen=True, slots=True)
class PricePage:
    price: Price
    corrections: Sequence[PriceCorrection]
    """The newest first. Of two for the same time, the later one applies."""
    form: Form
    may_correct: bool
    tried: tuple[ChangeLine, ...] | None = None
    """What the correction would change for each tenant; None without a preview."""
    totals: tuple[ChangeLine, ...] = ()
    costs: tuple[tuple[str, str], ...] = ()
    """The own costs that gave the price, for those who may set it: label and value."""
    steps: Steps | None = None


@page
def price(request: HttpRequest, actor: Actor, price_id: UUID) -> HttpResponse:
    """Anyone who sees the price sees its corrections; users who manage prices try and set one."""
    if request.method != "POST":
        return _page(request, actor, price_id, Form(_usual(visible_price(actor, price_id))))
    values = typed(request)
    try:
        wanted = _wanted(visible_price(actor, price_id), values)
        if values.get("what") != "set":
            effects = preview_correction(actor, wanted)
            return _page(request, actor, price_id, Form(values), effects)
        correction, _ = correct_price(actor, wanted)
    except Problem as problem:
        form = Form.refused(values, problem, CONTROLS)
        return _page(request, actor, price_id, form, status=problem.status)
    told = f"{correction.unit_price.normalize():f} {correction.currency}"
    messages.success(request, f"The price was corrected to {told}. The ledger follows.")
    return redirect("price", price_id)


def _usual(price: Price) -> dict[str, str]:
    """The price as it is, in the last month."""
    today = database_now().date()
    amounts = {name: getattr(price, name) for name in PRICES}
    return {
        **{name: "" if amount is None else f"{amount.normalize():f}" for name, amount in amounts.items()},
        "effective_from": f"{month_before(today)}",
        "effective_until": f"{today.replace(day=1)}",
    }


def _wanted(price: Price, values: Mapping[str, str]) -> NewCorrection:
    errors: list[FieldError] = []
    amounts = {
        name: amount_of(name, values, errors) for name in PRICES if name == "unit_price" or values.get(name, "").strip()
    }
    reason = values.get("reason", "").strip()
    if values.get("what") == "set" and not reason:
        errors.append(FieldError("reason", "required", "say why"))
    if len(reason) > REASON_LENGTH:
        errors.append(FieldError("reason", "too_long", f"at most {REASON_LENGTH} characters"))
    days: dict[str, date] = {}
    for name in DAYS:
        try:
            days[name] = day_of(name, values.get(name, ""))
        except Invalid as refused:
            errors += refused.errors
    if errors:
        raise Invalid(errors=errors)
    return NewCorrection(
        price_id=price.id,
        currency=price.currency,
        start=midnight(days["effective_from"]),
        until=midnight(days["effective_until"]),
        reason=reason,
        **amounts,
    )


def _page(
    request: HttpRequest,
    actor: Actor,
    price_id: UUID,
    form: Form,
    effects: Sequence[Effect] | None = None,
    *,
    status: int = 200,
) -> HttpResponse:
    price = visible_price(actor, price_id)
    tried = None if effects is None else tuple(change_line(one) for one in effects)
    may_correct = visible_tenants(actor, Permission.MANAGE_PRICES).filter(id=price.rate.cluster.owner_id).exists()
    costs = stored_costs(price.own_costs) if may_correct and price.own_costs else None
    shown = PricePage(
        price=price,
        corrections=list(corrections_of_price(actor, price_id).order_by("-id")[:SHOWN]),
        form=form,
        may_correct=may_correct,
        tried=tried,
        totals=totals_of(tried or ()),
        costs=() if costs is None else tuple((LABELS[name], text) for name, text in costs.as_text().items()),
        steps=None if costs is None else steps_of(costs),
    )
    return show(request, "billing/price.html", shown, status=status)


def change_line(effect: Effect) -> ChangeLine:
    """What prices change for a tenant, with the decimals of a page."""
    old, new = (shown_parts([Fraction(amount)], CENTS)[1] for amount in (effect.old, effect.new))
    return ChangeLine(effect.tenant_path, effect.currency, old, new)


def totals_of(lines: Sequence[ChangeLine]) -> tuple[ChangeLine, ...]:
    """Of the figures that are shown, by currency."""
    sums: dict[str, tuple[Decimal, Decimal]] = {}
    for one in lines:
        before, after = sums.get(one.currency, (Decimal(0), Decimal(0)))
        sums[one.currency] = (before + one.before, after + one.after)
    return tuple(ChangeLine("", currency, *both) for currency, both in sorted(sums.items()))
