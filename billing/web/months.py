"""The months of the ledger: their state, closing, and reopening by two people."""

from dataclasses import dataclass
from uuid import UUID

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect

from billing.operations.periods import approve_reopening, begin_closing, cancel_closing, request_reopening
from billing.queries.period_pages import PeriodDetail, PeriodRow, period_detail, period_rows
from foundation.pages import Form, show, typed
from foundation.problems import Invalid, Problem
from tenancy.queries import Actor
from tenancy.web import action, page

CONTROLS = {"reason": "reason"}


@dataclass(frozen=True, slots=True)
class MonthsPage:
    months: tuple[PeriodRow, ...]


@dataclass(frozen=True, slots=True)
class MonthPage:
    month: PeriodDetail
    form: Form


@page(takes=())
def months(request: HttpRequest, actor: Actor) -> HttpResponse:
    """The months of the organisations that the user sees as a whole."""
    return show(request, "billing/months.html", MonthsPage(period_rows(actor)))


@page(takes=())
def month(request: HttpRequest, actor: Actor, period_id: UUID) -> HttpResponse:
    """One month with its checklist; users who may close months ask here to reopen it."""
    if request.method != "POST":
        return _one(request, actor, period_id, Form())
    values = typed(request)
    try:
        reason = values.get("reason", "").strip()
        if not reason:
            raise Invalid.field("reason", "required", "say why it must be reopened")
        request_reopening(actor, period_id, reason)
    except Problem as problem:
        form = Form.refused(values, problem, CONTROLS)
        return _one(request, actor, period_id, form, status=problem.status)
    messages.success(request, "The month reopens when another person approves.")
    return redirect("month", period_id)


@action
def close(request: HttpRequest, actor: Actor, period_id: UUID) -> HttpResponse:
    """Begins to close a month, then redirects to it."""
    begin_closing(actor, period_id, accepts_unpriced=request.POST.get("accept_unpriced") == "yes")
    messages.success(request, "The month is closing. It is closed once the ledger has checked it again.")
    return redirect("month", period_id)


@action
def cancel(request: HttpRequest, actor: Actor, period_id: UUID) -> HttpResponse:
    """Sets a closing month back to open, then redirects to it."""
    cancel_closing(actor, period_id)
    messages.success(request, "The month is open.")
    return redirect("month", period_id)


@action
def approve(request: HttpRequest, actor: Actor, period_id: UUID) -> HttpResponse:
    """Approves that a month is reopened, then redirects to it."""
    approve_reopening(actor, period_id)
    messages.success(request, "The month is open again.")
    return redirect("month", period_id)


def _one(request: HttpRequest, actor: Actor, period_id: UUID, form: Form, *, status: int = 200) -> HttpResponse:
    return show(request, "billing/month.html", MonthPage(period_detail(actor, period_id), form), status=status)
