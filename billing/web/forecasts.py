"""The page of a tenant's expected month."""

from dataclasses import dataclass
from datetime import datetime

from django.http import HttpRequest, HttpResponse
from django.utils.http import urlencode

from billing.engine.forecast import LEAST_DAYS, Parts
from billing.queries.forecasts import PostedIn, tenant_forecast
from foundation.pages import Form, asked, show
from foundation.problems import Invalid, NotFound
from tenancy.queries import Actor, path_suggestions
from tenancy.web import page

from .forecast_chart import Outlook, outlook_of


@dataclass(frozen=True, slots=True)
class ForecastPage:
    form: Form
    paths: tuple[tuple[str, str], ...]
    path: str
    ends_at: datetime | None
    outlook: Outlook | None
    members: tuple[tuple[str, Parts], ...]
    posted_in: tuple[PostedIn, ...]
    csv_query: str
    least_days: int = LEAST_DAYS


@page(takes=("tenant",))
def forecast(request: HttpRequest, actor: Actor) -> HttpResponse:
    """What a tenant and all below it are expected to cost this month; by default the first organisation that the user sees."""
    paths = path_suggestions(actor)
    given = asked(request).get("tenant", "").strip("/ ")
    path = given or (paths[0][0] if paths else "")
    form = Form(values={"tenant": path})
    try:
        found = tenant_forecast(actor, path) if path else None
    except NotFound:
        form = Form(values={"tenant": path}, errors={"tenant": ["no tenant that you see has this path"]})
        found = None
    except Invalid as problem:
        form = Form.refused({"tenant": path}, problem, {"tenant": "tenant"})
        found = None
    shown = ForecastPage(
        form=form,
        paths=paths,
        path=path,
        ends_at=None if found is None else found.span[1],
        outlook=None if found is None else outlook_of(found.outlook, found.past, found.currency),
        members=() if found is None else tuple(found.outlook.members.items()),
        posted_in=() if found is None else found.posted_in,
        csv_query="" if found is None else urlencode({"tenant": path, "format": "csv"}),
    )
    return show(request, "billing/forecast.html", shown)
