"""The page of lost work: what it costs in a month, by tenant and cause, and the policy that says which of it is not charged."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from fractions import Fraction

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect
from django.urls import reverse

from billing.engine.credits import CAUSE_MEANINGS, LossCause
from billing.engine.shares import shown_parts
from billing.models import CreditPolicy
from billing.operations.credits import NewCreditPolicy, set_credit_policy
from billing.queries.credits import LostWorkReport, lost_work_report, policies_of
from billing.queries.sharing_report import visible_organisations
from foundation.clock import database_now
from foundation.pages import Form, show, typed
from foundation.problems import Invalid, Problem
from tenancy.engine.roles import Permission
from tenancy.queries import Actor, visible_tenants
from tenancy.web import page

from .typing_in import month_of as typed_month
from .usage import month_of, months_offered

PLACES = 2
CONTROLS = {"effective_from": "effective_from", "causes": "causes", "organisation": "organisation"}


@dataclass(frozen=True, slots=True)
class LostRow:
    tenant: str
    cause: str
    meaning: str
    currency: str
    runs: int
    gpu_hours: Decimal
    cost: Decimal
    credits: Decimal
    charged: Decimal


@dataclass(frozen=True, slots=True)
class LostWorkPage:
    organisation: str
    report: LostWorkReport | None
    rows: tuple[LostRow, ...]
    policies: Sequence[CreditPolicy]
    """Empty for users who do not see the whole organisation."""
    causes: tuple[tuple[str, str, bool], ...]
    """Each cause with its meaning, and whether it is chosen."""
    form: Form
    organisations: Sequence[tuple[str, str]]
    months: Sequence[tuple[str, str]]
    may_set: bool


@page(takes=("organisation", "month"))
def lost_work(request: HttpRequest, actor: Actor) -> HttpResponse:
    """The month of an organisation; users who may close months set a policy here."""
    if request.method != "POST":
        return _page(request, actor, Form(), request.GET.get("organisation", ""))
    values = typed(request)
    chosen = [str(cause) for cause in request.POST.getlist("causes")]
    try:
        policy = set_credit_policy(
            actor, NewCreditPolicy(values.get("organisation", ""), _month(values.get("effective_from", "")), chosen)
        )
    except Problem as problem:
        form = Form.refused(values, problem, CONTROLS)
        return _page(request, actor, form, values.get("organisation", ""), chosen, status=problem.status)
    query = QueryDict(mutable=True)
    query["organisation"] = policy.organisation.path
    messages.success(request, f"The policy applies from {policy.effective_from:%B %Y} on. The ledger follows.")
    return redirect(f"{reverse('lost-work')}?{query.urlencode()}")


def _month(text: str) -> date:
    try:
        return typed_month(text)
    except Invalid as refused:
        raise Invalid.field("effective_from", "not_a_month", "choose a month") from refused


def _page(
    request: HttpRequest,
    actor: Actor,
    form: Form,
    asked: str,
    chosen: Sequence[str] | None = None,
    *,
    status: int = 200,
) -> HttpResponse:
    year, number = month_of(request.GET.get("month", ""))
    month = min(date(year, number, 1), database_now().date().replace(day=1))
    paths = visible_organisations(actor)
    path = asked if asked in paths or chosen is None else ""
    path = path or (paths[0] if paths else "")
    report = lost_work_report(actor, path, month) if path else None
    ticked = set(chosen if chosen is not None else report.causes if report else ())
    whole = visible_tenants(actor).filter(path=path, parent=None).exists()
    values = {"organisation": path, "month": f"{month:%Y-%m}", "effective_from": f"{month:%Y-%m}", **form.values}
    shown = LostWorkPage(
        organisation=path,
        report=report,
        rows=_rows(report) if report else (),
        policies=policies_of(path) if whole else (),
        causes=tuple((cause.value, CAUSE_MEANINGS[cause], cause.value in ticked) for cause in LossCause),
        form=Form(values, form.errors, form.problem, form.loose),
        organisations=[(one, one) for one in paths],
        months=months_offered(),
        may_set=visible_tenants(actor, Permission.CLOSE_PERIOD).filter(path=path, parent=None).exists(),
    )
    return show(request, "billing/lost_work.html", shown, status=status)


def _rows(report: LostWorkReport) -> tuple[LostRow, ...]:
    """The rows, rounded so that what is charged and the credits add up to the cost."""
    rows = []
    for line in report.lines:
        (charged, credited), cost = shown_parts([Fraction(line.cost + line.credits), -Fraction(line.credits)], PLACES)
        meaning = CAUSE_MEANINGS[LossCause(line.cause)]
        rows.append(
            LostRow(
                line.tenant, line.cause, meaning, line.currency, line.runs, line.gpu_hours, cost, -credited, charged
            )
        )
    return tuple(rows)
