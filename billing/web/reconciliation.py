"""The page of reconciliation: a month beside invoices of providers; importing them, and accepting a variance."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from fractions import Fraction
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect
from django.urls import reverse

from billing.engine.ledger import SCALE, money
from billing.engine.provider_invoices import MOST_CHARACTERS
from billing.engine.reconciliation import Total
from billing.engine.shares import shown_parts
from billing.operations.reconciliation import accept_variance, import_provider_invoices, set_variance_tolerance
from billing.queries.reconciliation import (
    ReconciledRow,
    Reconciliation,
    visible_provider_invoices,
)
from billing.queries.reconciliation import reconciliation as reconciliation_report
from billing.queries.sharing import visible_whole_organisations
from foundation.clock import database_now
from foundation.pages import Form, asked, show, typed
from foundation.paging import page_of
from foundation.problems import Invalid, Problem
from tenancy.engine.roles import Permission
from tenancy.queries import Actor, visible_tenants
from tenancy.web import page

from .typing_in import decimal_of
from .typing_in import month_of as typed_month
from .usage import month_of, months_offered

PLACES = 2
LINES_SHOWN = "20"
NOTE_LENGTH = 500
STEPS = ("Charged to jobs", "Idle", "Nodes that took no jobs", "Clusters without an invoice", "Variance")
OF_FILE = {"file": "file"}
OF_TOLERANCE = {"effective_from": "effective_from", "percent": "percent"}
OF_ACCEPTANCE = {"variance": "variance"}


@dataclass(frozen=True, slots=True)
class Line:
    """A cluster's month; its amounts are rounded so that cost and variance add up to what is billed."""

    of: ReconciledRow
    cost: Decimal
    variance: Decimal | None
    invoiced: Decimal | None
    percent: str
    is_settled: bool
    exact: str
    """The variance with every digit, for the acceptance."""


@dataclass(frozen=True, slots=True)
class BridgeLine:
    """From what jobs are charged to what is billed, in one currency."""

    currency: str
    steps: tuple[tuple[str, Decimal], ...]
    invoiced: Decimal


@dataclass(frozen=True, slots=True)
class ReconciliationPage:
    organisation: str
    organisations: Sequence[tuple[str, str]]
    month: date
    months: Sequence[tuple[str, str]]
    report: Reconciliation | None
    lines: tuple[Line, ...]
    bridges: tuple[BridgeLine, ...]
    invoices: Mapping[str, Any]
    is_later: bool
    tolerance: str
    platform: Decimal
    form: Form
    file_form: Form
    tolerance_form: Form
    acceptance_form: Form
    may_set: bool
    csv_query: str


@page(takes=("organisation", "month", "cursor"))
def reconciliation(request: HttpRequest, actor: Actor) -> HttpResponse:
    """The month of an organisation; users who may close months import, accept and set a tolerance here."""
    if request.method != "POST":
        given = asked(request)
        return _page(request, actor, given.get("organisation", ""), given.get("month", ""))
    values = typed(request)
    path, what = values.get("organisation", ""), values.get("what", "")
    what = what if what in ACTIONS else "file"
    act, controls = ACTIONS[what]
    try:
        said = act(actor, values)
    except Problem as problem:
        refused = {what: Form.refused(values, problem, controls)}
        return _page(request, actor, path, values.get("month", ""), refused, status=problem.status)
    messages.success(request, said)
    query = QueryDict(mutable=True)
    query.update({"organisation": path, "month": values.get("month", "")})
    return redirect(f"{reverse('reconciliation')}?{query.urlencode()}")


def _import(actor: Actor, values: Mapping[str, str]) -> str:
    text = values.get("file", "")
    if len(text) > MOST_CHARACTERS:
        raise Invalid.field("file", "out_of_range", "too long: import it in parts")
    found = import_provider_invoices(actor, values.get("organisation", ""), text)
    return found.summary


def _tolerate(actor: Actor, values: Mapping[str, str]) -> str:
    try:
        month = typed_month(values.get("effective_from", ""))
    except Invalid as refused:
        raise Invalid.field("effective_from", "not_a_month", "choose a month") from refused
    row = set_variance_tolerance(actor, values.get("organisation", ""), month, decimal_of(values.get("percent", "")))
    return f"Invoices may differ by {row.percent.normalize():f} % from {month:%B %Y} on."


def _accept(actor: Actor, values: Mapping[str, str]) -> str:
    note = values.get("note", "").strip()
    if not note or len(note) > NOTE_LENGTH:
        raise Invalid.field("note", "required", f"say why, in up to {NOTE_LENGTH} characters")
    variance = decimal_of(values.get("variance", ""))
    month = typed_month(values.get("month", ""))
    row = accept_variance(
        actor, values.get("organisation", ""), month, values.get("cluster", ""), variance=variance, note=note
    )
    return f"The variance of {row.cluster.name} is accepted."


ACTIONS: dict[str, tuple[Callable[[Actor, Mapping[str, str]], str], dict[str, str]]] = {
    "file": (_import, OF_FILE),
    "tolerance": (_tolerate, OF_TOLERANCE),
    "acceptance": (_accept, OF_ACCEPTANCE),
}


def _line(report: Reconciliation, row: ReconciledRow) -> Line:
    its = row.compared
    (cost, variance), invoiced = shown_parts([Fraction(its.cost, SCALE), Fraction(its.variance or 0, SCALE)], PLACES)
    percent = "–" if its.percent is None else f"{shown_parts([its.percent], PLACES)[1]:+f} %"
    is_compared = its.variance is not None
    return Line(
        row, cost, variance if is_compared else None, invoiced if is_compared else None, percent, report.is_settled(row),
        f"{money(its.variance or 0):f}",
    )  # fmt: skip


def _bridge(one: Total) -> BridgeLine:
    amounts = [one.charged, one.idle, one.overhead, -one.not_invoiced, one.variance]
    parts, invoiced = shown_parts([Fraction(amount, SCALE) for amount in amounts], PLACES)
    return BridgeLine(one.currency, tuple(zip(STEPS, parts, strict=True)), invoiced)


def _page(
    request: HttpRequest,
    actor: Actor,
    wanted: str,
    text: str,
    refused: Mapping[str, Form] | None = None,
    *,
    status: int = 200,
) -> HttpResponse:
    now = database_now().date().replace(day=1)
    year, number = month_of(text)
    month = min(date(year, number, 1), now)
    paths = visible_whole_organisations(actor)
    path = wanted if wanted in paths else (paths[0] if paths else "")
    report = reconciliation_report(actor, path, month) if path else None
    forms, own = refused or {}, {"organisation": path, "month": f"{month:%Y-%m}"}
    query = QueryDict(mutable=True)
    query.update({**own, "format": "csv"})
    cursor = request.GET.get("cursor", "")
    invoices = page_of(
        visible_provider_invoices(actor).filter(organisation__path=path, month=month),
        {"cursor": cursor, "limit": LINES_SHOWN},
        orders={"newest": "-id"},
        scope=f"provider-invoices|{actor.user_id}|{path}|{month}",
        render=lambda row: row,
    )
    tolerance = f"{report.tolerance.normalize():f}" if report else ""
    usual = {**own, "effective_from": f"{now:%Y-%m}", "percent": tolerance}
    shown = ReconciliationPage(
        organisation=path,
        organisations=[(one, one) for one in paths],
        month=month,
        months=months_offered(),
        report=report,
        lines=tuple(_line(report, row) for row in report.rows) if report else (),
        bridges=tuple(_bridge(one) for one in report.totals) if report else (),
        invoices=invoices,
        is_later=bool(cursor),
        tolerance=tolerance,
        platform=money(report.platform if report else 0),
        form=Form(own),
        file_form=forms.get("file", Form(own)),
        tolerance_form=forms.get("tolerance", Form(usual)),
        acceptance_form=forms.get("acceptance", Form(own)),
        may_set=visible_tenants(actor, Permission.CLOSE_PERIOD).filter(path=path, parent=None).exists(),
        csv_query=query.urlencode(),
    )
    return show(request, "billing/reconciliation.html", shown, status=status)
