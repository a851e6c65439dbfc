"""The page of currencies: what an organisation is billed in, and rates of exchange; setting and importing them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.contrib import messages
from django.db.models import Q
from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect
from django.urls import reverse

from billing.engine.reference_rates import MOST_CHARACTERS
from billing.models import BillingCurrency
from billing.operations.exchange import (
    NewRate,
    import_reference_rates,
    set_billing_currency,
    set_exchange_rate,
)
from billing.queries.exchange import visible_billing_currencies, visible_rates
from foundation.pages import Form, show, typed
from foundation.paging import page_of
from foundation.problems import Invalid, Problem
from tenancy.engine.roles import Permission
from tenancy.queries import Actor, visible_tenants
from tenancy.web import page

from .typing_in import day_of, decimal_of, month_of

RATES_SHOWN = "15"
OF_CURRENCY = {"organisation": "organisation", "effective_from": "effective_from", "currency": "currency"}
OF_RATE = {name: name for name in ("organisation", "base", "quote", "rate", "valid_from", "valid_until", "reason")}
OF_FILE = {name: name for name in ("organisation", "rates", "source", "corrects")}


@dataclass(frozen=True, slots=True)
class CurrenciesPage:
    organisation: str
    organisations: Sequence[tuple[str, str]]
    currencies: Sequence[BillingCurrency]
    rates: Mapping[str, Any]
    """`items`, the newest first, and the cursor of the `next` ones."""
    is_later: bool
    """Whether newer rates exist."""
    currency_form: Form
    rate_form: Form
    file_form: Form
    may_set: bool


@page(takes=("organisation", "cursor"))
def currencies(request: HttpRequest, actor: Actor) -> HttpResponse:
    """The currencies and rates of an organisation; users who may close its months set them here."""
    if request.method != "POST":
        return _page(request, actor, request.GET.get("organisation", ""))
    values = {"organisation": "", **typed(request)}
    path, what = values["organisation"], values.get("what", "")
    what = what if what in ACTIONS else "currency"
    act, controls = ACTIONS[what]
    try:
        told = act(actor, values)
    except Problem as problem:
        refused = {what: Form.refused(values, problem, controls)}
        return _page(request, actor, path, refused, status=problem.status)
    messages.success(request, told)
    query = QueryDict(mutable=True)
    query["organisation"] = path
    return redirect(f"{reverse('currencies')}?{query.urlencode()}")


def _set_currency(actor: Actor, values: dict[str, str]) -> str:
    try:
        month = month_of(values.get("effective_from", ""))
    except Invalid as refused:
        raise Invalid.field("effective_from", "not_a_month", "choose a month") from refused
    row = set_billing_currency(actor, values["organisation"], month, values.get("currency", "").strip().upper())
    return f"Documents are in {row.currency} from {month:%B %Y} on. The ledger follows."


def _set_rate(actor: Actor, values: dict[str, str]) -> str:
    rate = decimal_of(values.get("rate", ""))
    if not rate.is_finite():
        raise Invalid.field("rate", "bad_format", "a number such as 0.92")
    reason = values.get("reason", "").strip()
    if not reason:
        raise Invalid.field("reason", "required", "say why")
    base, quote = (values.get(name, "").strip().upper() for name in ("base", "quote"))
    start, until = (day_of(name, values.get(name, "")) for name in ("valid_from", "valid_until"))
    row = set_exchange_rate(actor, NewRate(values["organisation"], base, quote, rate, start, until, reason[:500]))
    return f"One {row.base} is worth {row.rate.normalize():f} {row.quote}. The ledger follows."


def _import(actor: Actor, values: dict[str, str]) -> str:
    text = values.get("rates", "")
    if len(text) > MOST_CHARACTERS:
        raise Invalid.field("rates", "out_of_range", "too long: import a file of fewer days")
    source = values.get("source", "").strip()[:60] or "ECB"
    found = import_reference_rates(actor, values["organisation"], text, source, corrects=bool(values.get("corrects")))
    return f"{found.added} rates added, {found.corrected} corrected, {found.known} known."


ACTIONS: dict[str, tuple[Callable[[Actor, dict[str, str]], str], dict[str, str]]] = {
    "currency": (_set_currency, OF_CURRENCY),
    "rate": (_set_rate, OF_RATE),
    "file": (_import, OF_FILE),
}


def _page(
    request: HttpRequest, actor: Actor, asked: str, refused: dict[str, Form] | None = None, *, status: int = 200
) -> HttpResponse:
    paths = list(visible_tenants(actor).filter(parent=None).order_by("path").values_list("path", flat=True))
    path = asked if asked in paths else (paths[0] if paths else "")
    forms, own = refused or {}, {"organisation": path}
    cursor = request.GET.get("cursor", "")
    rates = page_of(
        visible_rates(actor).filter(Q(organisation=None) | Q(organisation__path=path)),
        {"cursor": cursor, "limit": RATES_SHOWN},
        orders={"newest": "-id"},
        scope=f"exchange-rates|{actor.user_id}|{path}",
        render=lambda row: row,
    )
    shown = CurrenciesPage(
        organisation=path,
        organisations=[(one, one) for one in paths],
        currencies=list(
            visible_billing_currencies(actor).filter(organisation__path=path).order_by("-effective_from", "-id")
        ),
        rates=rates,
        is_later=bool(cursor),
        currency_form=forms.get("currency", Form(own)),
        rate_form=forms.get("rate", Form(own)),
        file_form=forms.get("file", Form({**own, "source": "ECB"})),
        may_set=visible_tenants(actor, Permission.CLOSE_PERIOD).filter(path=path, parent=None).exists(),
    )
    return show(request, "billing/currencies.html", shown, status=status)
