"""The page of lost work: what it costs in a month, by tenant and cause, and the policy that says which of it is not charged."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from fractions import Fraction
from operator import attrgetter

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect
from django.urls import reverse

from billing.engine.credits import CAUSE_MEANINGS, LossCause
from billing.engine.months import month_before
from billing.engine.shares import shown_parts
from billing.models import CreditPolicy
from billing.operations.credits import NewCreditPolicy, preview_credit_policy, set_credit_policy
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
CONTROLS = {name: name for name in ("effective_from", "causes", "organisation", "preview_month")} | {
    "month": "preview_month"
}
BEFORE, AFTER = attrgetter("before"), attrgetter("after")


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
class PreviewRow:
    """What a tenant's lost work of one cause is credited in a month as it is, and by the policy that is previewed."""

    tenant: str
    cause: str
    currency: str
    before: Decimal
    after: Decimal

    @property
    def difference(self) -> Decimal:
        """Of the figures that are shown."""
        return self.after - self.before


@dataclass(frozen=True, slots=True)
class Preview:
    """A month under a policy that is not set. Rows and totals leave out what no policy can credit: time without a price."""

    month: date
    rows: tuple[PreviewRow, ...]
    totals: tuple[PreviewRow, ...]


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
    preview: Preview | None = None


@dataclass(frozen=True, slots=True)
class Draft:
    """A policy that a user is about to set. `causes`: None if the user chose none yet."""

    form: Form
    causes: Sequence[str] | None = None
    preview: Preview | None = None


@page(takes=("organisation", "month"))
def lost_work(request: HttpRequest, actor: Actor) -> HttpResponse:
    """The month of an organisation; users who may close months set a policy here."""
    if request.method != "POST":
        return _page(request, actor, request.GET.get("organisation", ""), Draft(Form()))
    values = typed(request)
    chosen = [str(cause) for cause in request.POST.getlist("causes")]
    path = values.get("organisation", "")
    try:
        wanted = NewCreditPolicy(path, _month("effective_from", values), chosen)
        if values.get("what") != "set":
            tried = _preview(*preview_credit_policy(actor, wanted, _month("preview_month", values)))
            return _page(request, actor, path, Draft(Form(values), chosen, tried))
        policy = set_credit_policy(actor, wanted)
    except Problem as problem:
        form = Form.refused(values, problem, CONTROLS)
        return _page(request, actor, path, Draft(form, chosen), status=problem.status)
    query = QueryDict(mutable=True)
    query["organisation"] = policy.organisation.path
    messages.success(request, f"The policy applies from {policy.effective_from:%B %Y} on. The ledger follows.")
    return redirect(f"{reverse('lost-work')}?{query.urlencode()}")


def _month(field: str, values: Mapping[str, str]) -> date:
    try:
        return typed_month(values.get(field, ""))
    except Invalid as refused:
        raise Invalid.field(field, "not_a_month", "choose a month") from refused


def _preview(before: LostWorkReport, after: LostWorkReport) -> Preview:
    rows = tuple(
        PreviewRow(one.tenant, one.cause, one.currency, _shown(one.credits), _shown(other.credits))
        for one, other in zip(before.lines, after.lines, strict=True)
        if one.currency
    )
    totals = tuple(
        PreviewRow("", "", currency, *(sum((value(row) for row in own), Decimal(0)) for value in (BEFORE, AFTER)))
        for currency in sorted({row.currency for row in rows})
        if (own := [row for row in rows if row.currency == currency])
    )
    return Preview(before.month, rows, totals)


def _shown(amount: Decimal) -> Decimal:
    return shown_parts([Fraction(amount)], PLACES)[1]


def _page(request: HttpRequest, actor: Actor, asked: str, draft: Draft, *, status: int = 200) -> HttpResponse:
    form, chosen = draft.form, draft.causes
    year, number = month_of(request.GET.get("month", ""))
    month = min(date(year, number, 1), database_now().date().replace(day=1))
    paths = visible_organisations(actor)
    path = asked if asked in paths or chosen is None else ""
    path = path or (paths[0] if paths else "")
    report = lost_work_report(actor, path, month) if path else None
    ticked = set(chosen if chosen is not None else report.causes if report else ())
    whole = visible_tenants(actor).filter(path=path, parent=None).exists()
    last = f"{month_before(database_now().date()):%Y-%m}"
    values = {
        "organisation": path,
        "month": f"{month:%Y-%m}",
        "effective_from": f"{month:%Y-%m}",
        "preview_month": last,
        **form.values,
    }
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
        preview=draft.preview,
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
