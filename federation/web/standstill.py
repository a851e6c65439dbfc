"""The standstill after a restore: the line at the head of every page, and the page on which operators end it."""

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect

from federation.operations.restoration import open_on_request
from federation.queries.standstill import open_standstill, standing_for
from foundation.pages import show, typed
from foundation.problems import Conflict, Invalid
from tenancy.queries import Actor
from tenancy.web import action, page


def standstill(request: HttpRequest) -> dict[str, object]:
    """For templates: the reason of the standstill, for signed-in users."""
    user = getattr(request, "user", None)
    return {"standstill": open_standstill() if user is not None and user.is_authenticated else None}


@page
def shown(request: HttpRequest, actor: Actor) -> HttpResponse:
    """What is left to compare before dispatch may resume, for operators."""
    return show(request, "federation/standstill.html", standing_for(actor), live="federation/standstill_live.html")


@action
def open_again(request: HttpRequest, actor: Actor) -> HttpResponse:
    """Resumes dispatch, then redirects to the page."""
    try:
        open_on_request(actor, {"note": typed(request).get("note", "")})
        messages.success(request, "Placement and dispatch resume.")
    except (Conflict, Invalid) as problem:
        messages.error(request, "; ".join(error.detail for error in problem.errors) or problem.detail)
    return redirect("standstill")
