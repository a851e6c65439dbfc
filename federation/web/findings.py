"""The page of findings: which jobs of a month cost money without use. The API writes the same as CSV."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from django.http import HttpRequest, HttpResponse, QueryDict

from billing.queries.utilisation import is_measured
from billing.web.usage import month_of, months_offered
from federation.engine.advice import Kind, Recommendation
from federation.queries.recommendations import Total, recommendations
from foundation.pages import Form, asked, show
from tenancy.queries import Actor, TenantMatch, match_tenants, path_suggestions
from tenancy.web import page

DECEMBER = 12


@dataclass(frozen=True, slots=True)
class Section:
    """The recommendations of one kind."""

    items: tuple[Recommendation, ...]
    totals: tuple[Total, ...]

    @property
    def left_out(self) -> int:
        """Those with smaller amounts that the page does not show."""
        return sum(one.left_out for one in self.totals)


@dataclass(frozen=True, slots=True)
class FindingsPage:
    idle: Section
    late: Section
    is_connected: bool
    """Whether a cluster that the viewer may see has a Prometheus."""
    months: Sequence[tuple[str, str]]
    match: TenantMatch
    form: Form
    tenants: Sequence[tuple[str, str]]
    csv_query: str
    """Empty if several tenants match the input: the API takes only whole paths."""


@page(takes=("month", "tenant"))
def shown(request: HttpRequest, actor: Actor) -> HttpResponse:
    """The recommendations of a month; by default the current one."""
    year, number = month_of(request.GET.get("month", ""))
    match = match_tenants(actor, asked(request).get("tenant", ""))
    among = None if match.is_exact or match.path else match.tenants
    start = datetime(year, number, 1, tzinfo=UTC)
    until = datetime(year + number // DECEMBER, number % DECEMBER + 1, 1, tzinfo=UTC)
    found = recommendations(actor, match.path, start, until, among=among)
    sections = {
        kind: Section(
            tuple(one for one in found.items if one.kind is kind),
            tuple(one for one in found.totals if one.kind is kind),
        )
        for kind in Kind
    }
    month = f"{year:04d}-{number:02d}"
    query = QueryDict(mutable=True)
    query.update({"month": month, "format": "csv"} | ({"tenant": match.path} if match.path else {}))
    return show(
        request,
        "federation/findings.html",
        FindingsPage(
            idle=sections[Kind.IDLE],
            late=sections[Kind.LATE_FAILURES],
            is_connected=is_measured(actor),
            months=months_offered(),
            match=match,
            form=Form(values={"tenant": match.typed, "month": month}),
            tenants=path_suggestions(actor),
            csv_query=query.urlencode() if match.is_exact or match.path else "",
        ),
    )
