"""The page of utilisation: what a month's jobs allocated of GPUs, and what they used. The API writes the same as CSV."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal

from django.http import HttpRequest, HttpResponse, QueryDict

from billing.queries.utilisation import Source, UtilisationRow, is_measured, sources, utilisation_report
from foundation.pages import Form, asked, show
from foundation.plain_json import instant
from foundation.problems import Invalid
from tenancy.queries import Actor, TenantMatch, match_tenants, path_suggestions
from tenancy.web import page

from .usage import GROUPS, month_of, months_offered

DEFAULT_GROUPS = ("tenant",)
MOST_ROWS_SHOWN = 500
DECEMBER = 12
HOURS = ("allocated_gpu_hours", "measured_gpu_hours", "unmeasured_gpu_hours", "utilised_gpu_hours")


@dataclass(frozen=True, slots=True)
class UtilisationLine:
    """A row with its keys, and the measured hours in which GPUs did nothing."""

    keys: tuple[tuple[str, str], ...]
    row: UtilisationRow

    @property
    def unused_gpu_hours(self) -> Decimal:
        """Measured, and not used."""
        return self.row.measured_gpu_hours - self.row.utilised_gpu_hours


@dataclass(frozen=True, slots=True)
class Hours:
    """The sums of all rows, whatever their currency."""

    allocated_gpu_hours: Decimal
    measured_gpu_hours: Decimal
    unmeasured_gpu_hours: Decimal
    utilised_gpu_hours: Decimal

    @property
    def percent(self) -> Decimal | None:
        """The used part of measured time."""
        return 100 * self.utilised_gpu_hours / self.measured_gpu_hours if self.measured_gpu_hours else None


@dataclass(frozen=True, slots=True)
class UtilisationPage:
    lines: tuple[UtilisationLine, ...]
    totals: tuple[UtilisationRow, ...]
    """Of each currency; one with an empty currency is of time without a price."""
    hours: Hours
    columns: tuple[str, ...]
    hidden: int
    is_connected: bool
    """Whether a cluster that the viewer may see has a Prometheus."""
    sources: tuple[Source, ...]
    """Those of the clusters that the viewer manages."""
    groups: Sequence[tuple[str, bool]]
    months: Sequence[tuple[str, str]]
    match: TenantMatch
    form: Form
    tenants: Sequence[tuple[str, str]]
    csv_query: str
    """Empty if several tenants match the input: the API takes only whole paths."""


@page(takes=("month", "tenant", "group_by"))
def utilisation(request: HttpRequest, actor: Actor) -> HttpResponse:
    """The report of a month; by default the current month by tenant."""
    year, number = month_of(request.GET.get("month", ""))
    groups = _groups(request.GET.getlist("group_by")) or list(DEFAULT_GROUPS)
    match = match_tenants(actor, asked(request).get("tenant", ""))
    among = None if match.is_exact or match.path else match.tenants
    start = datetime(year, number, 1, tzinfo=UTC)
    until = datetime(year + number // DECEMBER, number % DECEMBER + 1, 1, tzinfo=UTC)
    report = utilisation_report(actor, match.path, start, until, groups, among=among)
    columns = tuple(column for column in report.columns if not column.endswith("_id"))
    lines = tuple(
        UtilisationLine(tuple((column, row.keys[column]) for column in columns), row)
        for row in report.rows[:MOST_ROWS_SHOWN]
    )
    shown = UtilisationPage(
        lines=lines,
        totals=report.totals,
        hours=Hours(**{name: sum((getattr(one, name) for one in report.totals), Decimal(0)) for name in HOURS}),
        columns=columns,
        hidden=max(len(report.rows) - MOST_ROWS_SHOWN, 0),
        is_connected=is_measured(actor),
        sources=sources(actor),
        groups=tuple((word, word in groups) for word in GROUPS),
        months=months_offered(),
        match=match,
        form=Form(values={"tenant": match.typed, "month": f"{year:04d}-{number:02d}"}),
        tenants=path_suggestions(actor),
        csv_query=_csv_query((start, until), groups, match.path) if match.is_exact or match.path else "",
    )
    return show(request, "billing/utilisation.html", shown)


def _groups(given: Sequence[str]) -> list[str]:
    words = {word.strip() for text in given for word in text.split(",")} - {""}
    if unknown := sorted(words - set(GROUPS)):
        raise Invalid.field("group_by", "unknown_group", f"group by {', '.join(GROUPS)}; not by {unknown[0][:50]}")
    return [word for word in GROUPS if word in words]


def _csv_query(span: tuple[datetime, datetime], groups: Sequence[str], tenant: str) -> str:
    """The query that gets the same report as a file from the API, which also accepts the browser's session."""
    query = QueryDict(mutable=True)
    start, until = (str(instant(at)) for at in span)
    query.update({"from": start, "to": until, "group_by": ",".join(groups), "format": "csv"})
    if tenant:
        query["tenant"] = tenant
    return query.urlencode()
