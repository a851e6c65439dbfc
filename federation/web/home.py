"""The overview: the fleet's health, waiting and running jobs, this month's costs."""

from dataclasses import dataclass

from django.http import HttpRequest, HttpResponse

from billing.queries.pages import Spend, spend_this_month
from clusters.queries.pages import Fleet, fleet_view
from federation.queries.books import Books, books
from federation.queries.failure_rates import BrakeView, brakes
from federation.queries.overview import Workload, workload
from foundation.pages import show
from tenancy.queries import Actor
from tenancy.web import page

from .jobs import LIVE


@dataclass(frozen=True, slots=True)
class HomePage:
    fleet: Fleet
    work: Workload
    spend: Spend
    books: Books | None
    """The result of the last proof, only for operators."""
    brakes: tuple[BrakeView, ...]
    """Where retries wait, only for operators."""
    live_states: str = LIVE


@page
def home(request: HttpRequest, actor: Actor) -> HttpResponse:
    """Everything at a glance, kept fresh."""
    shown = HomePage(
        fleet=fleet_view(actor),
        work=workload(actor),
        spend=spend_this_month(actor),
        books=_books(actor),
        brakes=brakes() if actor.is_operator else (),
    )
    return show(request, "federation/home.html", shown, live="federation/home_live.html")


def _books(actor: Actor) -> Books | None:
    return books() if actor.is_operator else None
