"""The page of idle capacity: the month's bridge, what tenants bear before and after sharing, and a heat map that is a table."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from decimal import Decimal
from fractions import Fraction

from django.http import HttpRequest, HttpResponse, QueryDict

from billing.engine.ledger import SCALE, money
from billing.engine.months import next_month
from billing.engine.shares import shown_parts
from billing.queries.sharing_report import PoolShown, SharingReport, sharing_report, visible_organisations
from foundation.clock import database_now
from foundation.pages import Form, show
from tenancy.queries import Actor
from tenancy.web import page

from .usage import PLACES, month_of, months_offered
from .waterfall import Waterfall, waterfall_of

LEVELS = 5


@dataclass(frozen=True, slots=True)
class Cell:
    """A cluster's day: idle cost as a part of its cost. `level` is from 0 (none) to 5."""

    percent: int | None
    level: int
    title: str


@dataclass(frozen=True, slots=True)
class HeatRow:
    cluster: str
    currency: str
    cells: tuple[Cell, ...]
    idle: Decimal


@dataclass(frozen=True, slots=True)
class ShareLine:
    tenant: str
    currency: str
    direct: Decimal
    idle: Decimal
    platform: Decimal
    credits: Decimal
    commitment: Decimal
    total: Decimal


@dataclass(frozen=True, slots=True)
class AskedMonth:
    """The month of an organisation that a page is asked for: by default the current month of the first one."""

    organisation: str
    """Empty if the user sees none."""
    month: date
    report: SharingReport | None
    form: Form
    organisations: Sequence[tuple[str, str]]
    csv_query: str


@dataclass(frozen=True, slots=True)
class IdlePage:
    organisation: str
    report: SharingReport | None
    waterfalls: tuple[Waterfall, ...]
    shares: tuple[ShareLine, ...]
    days: tuple[int, ...]
    rows: tuple[HeatRow, ...]
    form: Form
    organisations: Sequence[tuple[str, str]]
    months: Sequence[tuple[str, str]]
    csv_query: str


@page(takes=("organisation", "month"))
def idle(request: HttpRequest, actor: Actor) -> HttpResponse:
    """The month of an organisation; by default of the first one, and the current month."""
    asked = asked_month(request, actor)
    month, report = asked.month, asked.report
    days = tuple(range(1, (next_month(month) - timedelta(days=1)).day + 1))
    shown = IdlePage(
        organisation=asked.organisation,
        report=report,
        waterfalls=tuple(map(waterfall_of, report.bridges)) if report else (),
        shares=_shares(report) if report else (),
        days=days,
        rows=_rows(report.pools, days) if report else (),
        form=asked.form,
        organisations=asked.organisations,
        months=months_offered(),
        csv_query=asked.csv_query,
    )
    return show(request, "billing/idle.html", shown)


def asked_month(request: HttpRequest, actor: Actor) -> AskedMonth:
    """What the request asks for, with its report. Raises NotFound, Invalid."""
    year, number = month_of(request.GET.get("month", ""))
    month = min(date(year, number, 1), database_now().date().replace(day=1))
    paths = visible_organisations(actor)
    path = request.GET.get("organisation", "") or (paths[0] if paths else "")
    given = {"organisation": path, "month": f"{month:%Y-%m}"}
    query = QueryDict(mutable=True)
    query.update({**given, "format": "csv"})
    return AskedMonth(
        organisation=path,
        month=month,
        report=sharing_report(actor, path, month) if path else None,
        form=Form(values=given),
        organisations=[(one, one) for one in paths],
        csv_query=query.urlencode(),
    )


def _shares(report: SharingReport) -> tuple[ShareLine, ...]:
    lines = []
    for one in report.tenants:
        (direct, idle_part, platform, credited, committed), total = shown_parts(
            [Fraction(part, SCALE) for part in (one.direct, one.idle, one.platform, one.credits, one.commitment)],
            PLACES,
        )
        lines.append(ShareLine(one.tenant, one.currency, direct, idle_part, platform, credited, committed, total))
    return tuple(lines)


def _rows(pools: Sequence[PoolShown], days: Sequence[int]) -> tuple[HeatRow, ...]:
    costs: dict[tuple[str, str, int], int] = defaultdict(int)
    idles: dict[tuple[str, str, int], int] = defaultdict(int)
    for one in pools:
        place = (one.cluster, one.key.currency, one.key.day.day)
        costs[place] += one.balance.cost
        idles[place] += one.balance.idle
    rows = []
    for cluster, currency in sorted({(cluster, currency) for cluster, currency, _ in costs}):
        cells = tuple(_cell(costs[cluster, currency, day], idles[cluster, currency, day], currency) for day in days)
        whole = sum(idles[cluster, currency, day] for day in days)
        rows.append(HeatRow(cluster, currency, cells, money(whole)))
    return tuple(rows)


def _cell(cost: int, idle_cost: int, currency: str) -> Cell:
    if not cost and not idle_cost:
        return Cell(None, 0, "")
    title = f"{round(money(idle_cost), PLACES):,} of {round(money(cost), PLACES):,} {currency}"
    if idle_cost < 0:
        return Cell(-1, LEVELS, f"Negative idle: {title}")
    return Cell(round(Fraction(100 * idle_cost, cost)), -(-LEVELS * idle_cost // cost), title)
