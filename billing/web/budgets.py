"""Budgets along the tenant tree; setting and removing one; overrides."""

from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from uuid import UUID

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect

from billing.engine.budgets import Measure
from billing.engine.forecast import LEAST_DAYS
from billing.models import Budget
from billing.operations.budgets import (
    USUAL_FORECAST_THRESHOLDS,
    USUAL_THRESHOLDS,
    WantedBudget,
    delete_budget,
    put_budget,
)
from billing.operations.overrides import MAY_ASK, approve_override, request_override
from billing.queries.budget_pages import (
    BudgetRow,
    OverrideRow,
    budget_row,
    budget_rows,
    editable_budgets,
    override_rows,
)
from billing.queries.budgets import budget_by_id
from billing.queries.forecasts import budget_forecast
from foundation.clock import now
from foundation.pages import Form, asked, show, typed
from foundation.problems import FieldError, Invalid, Problem
from tenancy.queries import (
    Actor,
    TenantMatch,
    first_choice,
    match_tenants,
    path_suggestions,
    permissions_at,
    tenant_choices,
)
from tenancy.web import action, page

from .forecast_chart import Outlook, outlook_of
from .typing_in import PLACES, decimal_of, fault_of_currency, midnight_of

MEASURES = (("money", "Money"), ("gpu_hours", "GPU-hours"))
PERIODS = (("month", "Each month"), ("quarter", "Each quarter"), ("year", "Each year"), ("dates", "From day to day"))
STOPS = (("yes", "No new job starts beyond the amount"), ("no", "Jobs start; alerts only"))
FIELDS = (
    "tenant",
    "measure",
    "amount",
    "currency",
    "period",
    "starts_on",
    "ends_on",
    "notify_at",
    "notify_forecast_at",
    "stops_admission",
)
CONTROLS = {name: name for name in FIELDS} | {"gpu_hours": "amount"}
OVERRIDE_CONTROLS = {name: name for name in ("amount", "reason", "expires_at")}
DAY = timedelta(days=1)
UNREADABLE = Decimal(-1)


@dataclass(frozen=True, slots=True)
class BudgetsPage:
    budgets: tuple[BudgetRow, ...]
    match: TenantMatch
    form: Form
    paths: tuple[tuple[str, str], ...]
    may_edit: bool


@dataclass(frozen=True, slots=True)
class BudgetPage:
    budget: BudgetRow
    overrides: tuple[OverrideRow, ...]
    outlook: Outlook | None
    reached_on: date | None
    form: Form
    may_ask: bool
    least_days: int = LEAST_DAYS


@dataclass(frozen=True, slots=True)
class BudgetEditPage:
    form: Form
    tenants: tuple[tuple[str, str], ...]
    measures: tuple[tuple[str, str], ...]
    periods: tuple[tuple[str, str], ...]
    stops: tuple[tuple[str, str], ...]
    budget_id: UUID | None


@page(takes=("tenant",))
def budgets(request: HttpRequest, actor: Actor) -> HttpResponse:
    """The budgets with what is spent and held of each."""
    match = match_tenants(actor, asked(request).get("tenant", ""))
    shown = BudgetsPage(
        budgets=budget_rows(actor, match.tenants, now()),
        match=match,
        form=Form(values={"tenant": match.typed}),
        paths=path_suggestions(actor),
        may_edit=bool(editable_budgets(actor)),
    )
    return show(request, "billing/budgets.html", shown, live="billing/budgets_live.html")


@page(takes=())
def budget(request: HttpRequest, actor: Actor, budget_id: UUID) -> HttpResponse:
    """One budget with its alerts and overrides; users who may request an override do so here."""
    found = budget_by_id(actor, budget_id)
    if request.method != "POST":
        return _one(request, actor, found, Form())
    values = typed(request)
    try:
        override = request_override(
            actor,
            budget_id,
            amount=_amount(values, []),
            reason=values.get("reason", ""),
            expires_at=_end_of(values.get("expires_at", "")),
        )
    except Problem as problem:
        form = Form.refused(values, problem, OVERRIDE_CONTROLS)
        return _one(request, actor, found, form, status=problem.status)
    messages.success(request, f"The override of {override.amount.normalize():f} waits for another user's approval.")
    return redirect("budget", budget_id)


@page(takes=("budget", "tenant"))
def edit(request: HttpRequest, actor: Actor) -> HttpResponse:
    """The form that sets a budget, filled from an existing one when `budget` names it."""
    budget_id = _id(request.GET.get("budget", ""))
    if request.method != "POST":
        values = _values_of(actor, budget_id, asked(request).get("tenant", ""))
        return _form(request, actor, Form(values=values), budget_id)
    values = typed(request)
    try:
        found, is_new = put_budget(actor, _wanted(values))
    except Problem as problem:
        return _form(request, actor, Form.refused(values, problem, CONTROLS), budget_id, status=problem.status)
    messages.success(request, f"The budget of {found.tenant.path} is {'set' if is_new else 'changed'}.")
    return redirect("budgets")


@action
def remove(request: HttpRequest, actor: Actor, budget_id: UUID) -> HttpResponse:
    """Removes a budget, then redirects to the list."""
    delete_budget(actor, budget_id)
    messages.success(request, "The budget is removed.")
    return redirect("budgets")


@action
def approve(request: HttpRequest, actor: Actor, budget_id: UUID, override_id: UUID) -> HttpResponse:
    """Approves an override, then redirects to its budget."""
    approve_override(actor, budget_id, override_id)
    messages.success(request, "The override is approved.")
    return redirect("budget", budget_id)


def _one(request: HttpRequest, actor: Actor, found: Budget, form: Form, *, status: int = 200) -> HttpResponse:
    at = now()
    expected = budget_forecast(found)
    outlook, limit = expected.outlook, expected.state.limit
    unit = expected.state.terms.currency or "GPU-hours"
    shown = BudgetPage(
        budget=budget_row(actor, found, at),
        overrides=override_rows(actor, found, at),
        outlook=None if outlook is None else outlook_of(outlook, expected.past, unit, limit),
        reached_on=outlook.reaches(limit) if outlook is not None and outlook.has_history else None,
        form=form,
        may_ask=not MAY_ASK.isdisjoint(permissions_at(actor, found.tenant)),
    )
    return show(request, "billing/budget.html", shown, status=status)


def _form(request: HttpRequest, actor: Actor, form: Form, budget_id: UUID | None, *, status: int = 200) -> HttpResponse:
    shown = BudgetEditPage(
        form=form,
        tenants=tenant_choices(editable_budgets(actor), form.values.get("tenant", "")),
        measures=MEASURES,
        periods=PERIODS,
        stops=STOPS,
        budget_id=budget_id,
    )
    return show(request, "billing/budget_edit.html", shown, status=status)


def _wanted(values: dict[str, str]) -> WantedBudget:
    errors: list[FieldError] = []
    if not values.get("tenant"):
        errors.append(FieldError("tenant", "required", "choose a tenant"))
    measure: Measure = "gpu_hours" if values.get("measure") == "gpu_hours" else "money"
    currency = "" if measure == "gpu_hours" else values.get("currency", "").strip().upper()
    if measure == "money" and (fault := fault_of_currency(currency)):
        errors.append(FieldError("currency", "bad_format", fault))
    amount = _amount(values, errors)
    dated = values.get("period") == "dates"
    starts_at = _day(values, "starts_on", errors) if dated else None
    ends_at = _day(values, "ends_on", errors) if dated else None
    notify_at = _percentages(values, "notify_at", errors)
    notify_forecast_at = _percentages(values, "notify_forecast_at", errors)
    if errors:
        raise Invalid(errors=errors)
    return WantedBudget(
        tenant_path=values.get("tenant", ""),
        measure=measure,
        amount=amount,
        currency=currency,
        period=values.get("period", ""),
        starts_at=starts_at,
        ends_at=None if ends_at is None else ends_at + DAY,
        notify_at=notify_at,
        notify_forecast_at=notify_forecast_at,
        stops_admission=values.get("stops_admission") == "yes",
    )


def _amount(values: dict[str, str], errors: list[FieldError]) -> Decimal:
    amount = decimal_of(values.get("amount", ""))
    if amount.is_finite() and 0 <= amount < Decimal(10) ** 12 and amount == round(amount, PLACES):
        return amount
    errors.append(FieldError("amount", "bad_format", f"a number such as 500 or 2.50, at most {PLACES} decimals"))
    return UNREADABLE


def _percentages(values: dict[str, str], name: str, errors: list[FieldError]) -> tuple[int, ...]:
    words = values.get(name, "").replace("%", " ").replace(",", " ").split()
    if all(word.isascii() and word.isdigit() and len(word) <= len("1000") for word in words):
        return tuple(int(word) for word in words)
    errors.append(FieldError(name, "bad_format", "percentages such as 50, 80, 100"))
    return ()


def _day(values: dict[str, str], name: str, errors: list[FieldError]) -> datetime | None:
    faults: list[FieldError] = []
    day = midnight_of(values.get(name, ""), faults)
    errors += [FieldError(name, fault.code, fault.detail) for fault in faults]
    return day


def _end_of(text: str) -> datetime:
    """The end of the day that the user typed."""
    errors: list[FieldError] = []
    day = midnight_of(text, errors)
    if day is None or errors:
        raise Invalid.field("expires_at", "bad_format", "a day such as 2026-12-01")
    return datetime.combine(day, time.max, day.tzinfo)


def _id(text: str) -> UUID | None:
    try:
        return UUID(text)
    except ValueError:
        return None


def _values_of(actor: Actor, budget_id: UUID | None, tenant: str) -> dict[str, str]:
    if budget_id is None:
        return {
            "tenant": first_choice(editable_budgets(actor), asked=tenant),
            "measure": "money",
            "currency": "USD",
            "period": "month",
            "notify_at": ", ".join(map(str, USUAL_THRESHOLDS)),
            "notify_forecast_at": ", ".join(map(str, USUAL_FORECAST_THRESHOLDS)),
            "stops_admission": "yes",
        }
    found = budget_by_id(actor, budget_id)
    return {
        "tenant": found.tenant.path,
        "measure": found.measure,
        "amount": format(found.amount.normalize(), "f"),
        "currency": found.currency,
        "period": found.period,
        "starts_on": "" if found.starts_at is None else f"{found.starts_at:%Y-%m-%d}",
        "ends_on": "" if found.ends_at is None else f"{found.ends_at - DAY:%Y-%m-%d}",
        "notify_at": ", ".join(map(str, found.notify_at)),
        "notify_forecast_at": ", ".join(map(str, found.notify_forecast_at)),
        "stops_admission": "yes" if found.stops_admission else "no",
    }
