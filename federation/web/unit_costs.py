"""The page of unit costs: what the jobs that ended in a month cost each. The API writes the same as CSV."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from decimal import Decimal
from fractions import Fraction

from django.http import HttpRequest, HttpResponse, QueryDict

from billing.engine.shares import shown_parts
from billing.queries.paths import tenants_were_under
from billing.web.usage import month_of, months_offered
from federation.engine.unit_costs import Bridge, UnitCostRow
from federation.queries.unit_costs import GROUPS, LABEL, JobFilters, UnitCostReport, label_filter, unit_cost_report
from foundation.pages import Form, asked, show
from foundation.plain_json import instant
from tenancy.queries import Actor, TenantMatch, match_tenants, path_suggestions
from tenancy.web import page

DEFAULT_GROUPS = ("tenant",)
MOST_ROWS_SHOWN = 500
DECEMBER = 12
PLACES = 2
FILTERS = ("user", "label", "job_name", "group_label")


@dataclass(frozen=True, slots=True)
class UnitCostLine:
    """A row with its keys; the value of a label that its jobs do not have is empty."""

    keys: tuple[tuple[str, str], ...]
    row: UnitCostRow
    cost: Decimal
    gpu_hours: Decimal


@dataclass(frozen=True, slots=True)
class BridgeLine:
    """The steps from the cost of jobs to that of usage, with two decimals that add up."""

    currency: str
    cost: Decimal
    outside: Decimal
    others: Decimal
    usage_cost: Decimal


@dataclass(frozen=True, slots=True)
class UnitCostPage:
    lines: tuple[UnitCostLine, ...]
    totals: tuple[UnitCostRow, ...]
    """Of each currency."""
    bridges: tuple[BridgeLine, ...]
    columns: tuple[str, ...]
    hidden: int
    unsettled_jobs: int
    groups: Sequence[tuple[str, bool]]
    months: Sequence[tuple[str, str]]
    match: TenantMatch
    form: Form
    tenants: Sequence[tuple[str, str]]
    csv_query: str
    """Empty if several tenants match the input: the API takes only whole paths."""


@page(takes=("month", "tenant", "user", "label", "job_name", "group_by", "group_label"))
def unit_costs(request: HttpRequest, actor: Actor) -> HttpResponse:
    """The report of a month; by default the current month by tenant."""
    given = asked(request)
    year, number = month_of(given.get("month", ""))
    span = (
        datetime(year, number, 1, tzinfo=UTC),
        datetime(year + number // DECEMBER, number % DECEMBER + 1, 1, tzinfo=UTC),
    )
    match = match_tenants(actor, given.get("tenant", ""))
    if not match.count and tenants_were_under(actor, match.typed):
        match = replace(match, is_exact=True)
    words = _words([text.replace("\x00", "") for text in request.GET.getlist("group_by")], given.get("group_label", ""))
    values = {name: given.get(name, "").strip() for name in FILTERS}
    among = None if match.is_exact or match.path else match.tenants
    report = unit_cost_report(actor, match.path, span, words, _filters(values), among=among)
    columns = tuple(name for name in report.columns if not name.endswith("_id"))
    shown = UnitCostPage(
        lines=_lines(report, columns)[:MOST_ROWS_SHOWN],
        totals=report.totals,
        bridges=tuple(_bridge(one) for one in report.bridges),
        columns=tuple(name.removeprefix(LABEL) for name in columns),
        hidden=max(len(report.rows) - MOST_ROWS_SHOWN, 0),
        unsettled_jobs=report.unsettled_jobs,
        groups=tuple((word, word in words) for word in GROUPS),
        months=months_offered(),
        match=match,
        form=Form(values=values | {"tenant": match.typed, "month": f"{year:04d}-{number:02d}"}),
        tenants=path_suggestions(actor),
        csv_query=_csv_query(report, values, match.path) if match.is_exact or match.path else "",
    )
    return show(request, "federation/unit_costs.html", shown)


def _lines(report: UnitCostReport, columns: Sequence[str]) -> tuple[UnitCostLine, ...]:
    """The rows. Costs and hours have two decimals and add up to the displayed totals of their currency."""
    found: dict[int, UnitCostLine] = {}
    for total in report.totals:
        numbers = [number for number, row in enumerate(report.rows) if row.currency == total.currency]
        rows = [report.rows[number] for number in numbers]
        costs, _ = shown_parts([Fraction(row.cost) for row in rows], PLACES)
        hours, _ = shown_parts([Fraction(row.gpu_hours) for row in rows], PLACES)
        for number, row, cost, gpu_hours in zip(numbers, rows, costs, hours, strict=True):
            keys = tuple((name.removeprefix(LABEL), row.keys[name] or "") for name in columns)
            found[number] = UnitCostLine(keys, row, cost, gpu_hours)
    return tuple(found[number] for number in range(len(report.rows)))


def _bridge(one: Bridge) -> BridgeLine:
    steps = [Fraction(one.cost), -Fraction(one.outside), Fraction(one.others)]
    (cost, less, others), usage_cost = shown_parts(steps, PLACES)
    return BridgeLine(one.currency, cost, -less, others, usage_cost)


def _words(given: Sequence[str], label: str) -> list[str]:
    """The words to group by: those of the boxes in the order of GROUPS, then the others."""
    words = {word.strip() for text in given for word in text.split(",")} - {""}
    if label.strip():
        words.add(LABEL + label.strip())
    return [*(word for word in GROUPS if word in words), *sorted(words - set(GROUPS))] or list(DEFAULT_GROUPS)


def _filters(values: Mapping[str, str]) -> JobFilters:
    return JobFilters(values["user"], values["job_name"], label_filter(values["label"]) if values["label"] else None)


def _csv_query(report: UnitCostReport, values: Mapping[str, str], tenant: str) -> str:
    """The query that gets the same report as a file from the API, which also accepts the browser's session."""
    query = QueryDict(mutable=True)
    start, until = (str(instant(at)) for at in (report.start, report.until))
    query.update({"from": start, "to": until, "group_by": ",".join(report.group_by), "format": "csv"})
    query.update({name: values[name] for name in ("user", "label", "job_name") if values[name]})
    if tenant:
        query["tenant"] = tenant
    return query.urlencode()
