"""The page of commitments: how much of them was used in a month, what they covered, and who bears it."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from fractions import Fraction

from django.http import HttpRequest, HttpResponse, QueryDict

from billing.engine.focus_commitments import hours
from billing.engine.ledger import SCALE
from billing.engine.shares import shown_parts
from billing.queries.commitment_report import CommitmentMonth, CommitmentReport, commitment_report
from billing.queries.sharing import visible_whole_organisations
from foundation.clock import database_now
from foundation.pages import Form, show
from tenancy.queries import Actor
from tenancy.web import page

from .usage import month_of, months_offered

PLACES = 2


@dataclass(frozen=True, slots=True)
class CommitmentLine:
    """A commitment's month. Used and unused are rounded so that they add up to what is amortised."""

    of: CommitmentMonth
    title: str
    used: Decimal
    unused: Decimal
    amortised: Decimal
    percent: Decimal | None


@dataclass(frozen=True, slots=True)
class CoverageLine:
    flavor: str
    hours: Decimal
    covered: Decimal
    percent: Decimal | None


@dataclass(frozen=True, slots=True)
class BorneLine:
    tenant: str
    currency: str
    used: Decimal
    covered: Decimal
    net: Decimal


@dataclass(frozen=True, slots=True)
class CommitmentsPage:
    report: CommitmentReport | None
    rows: tuple[CommitmentLine, ...]
    coverage: tuple[CoverageLine, ...]
    tenants: tuple[BorneLine, ...]
    form: Form
    organisations: Sequence[tuple[str, str]]
    months: Sequence[tuple[str, str]]
    csv_query: str


@page(takes=("organisation", "month"))
def commitments(request: HttpRequest, actor: Actor) -> HttpResponse:
    """The month of an organisation; by default of the first one that the user sees whole, and the current month."""
    year, number = month_of(request.GET.get("month", ""))
    month = min(date(year, number, 1), database_now().date().replace(day=1))
    paths = visible_whole_organisations(actor)
    path = request.GET.get("organisation", "") or (paths[0] if paths else "")
    report = commitment_report(actor, path, month) if path else None
    query = QueryDict(mutable=True)
    query.update({"organisation": path, "month": f"{month:%Y-%m}", "format": "csv"})
    shown = CommitmentsPage(
        report=report,
        rows=tuple(_row(one) for one in report.commitments) if report else (),
        coverage=_coverage(report) if report else (),
        tenants=_tenants(report) if report else (),
        form=Form(values={"organisation": path, "month": f"{month:%Y-%m}"}),
        organisations=[(one, one) for one in paths],
        months=months_offered(),
        csv_query=query.urlencode(),
    )
    return show(request, "billing/commitments.html", shown)


def _row(one: CommitmentMonth) -> CommitmentLine:
    (used, unused), amortised = shown_parts([Fraction(one.used, SCALE), Fraction(one.unused, SCALE)], PLACES)
    title = f"{one.units} of {one.flavor}, {one.capacity_type.replace('_', ' ')}, on {', '.join(one.clusters)}"
    if one.is_plan:
        spend = f"{one.hourly.normalize():f} {one.currency} an hour"
        title = f"{spend} for {', '.join(one.flavors)}, on {', '.join(one.clusters)}"
    return CommitmentLine(one, title, used, unused, amortised, _percent(one.used_quantity, one.quantity))


def _coverage(report: CommitmentReport) -> tuple[CoverageLine, ...]:
    return tuple(
        CoverageLine(
            one.flavor,
            round(hours(one.quantity), PLACES),
            round(hours(one.covered), PLACES),
            _percent(one.covered, one.quantity),
        )
        for one in report.coverage
    )


def _tenants(report: CommitmentReport) -> tuple[BorneLine, ...]:
    lines = []
    for (tenant, currency), its in report.tenants.items():
        (used, covered), net = shown_parts([Fraction(its.used, SCALE), Fraction(-its.covered, SCALE)], PLACES)
        lines.append(BorneLine(tenant, currency, used, covered, net))
    return tuple(lines)


def _percent(part: int, whole: int) -> Decimal | None:
    return round(Decimal(100 * part) / whole, 1) if whole else None
