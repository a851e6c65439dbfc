"""Moving a running job: a preview of what that would do, which asks to confirm it."""

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from uuid import UUID

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect

from clusters.queries import visible_clusters
from federation.operations import request_migration
from federation.queries.moves import Lost, MovePlan, movable_job, preview
from federation.queries.pending_stops import WAIT
from federation.queries.why_not import WhyNot, WhyNotGroup, grouped
from foundation.pages import asked, show, typed
from foundation.problems import Problem
from tenancy.queries import Actor
from tenancy.web import page

from .jobs import WAITS, wait_of

MOST_OPTIONS = 500


@dataclass(frozen=True, slots=True)
class Place:
    cluster: str
    flavor: str
    hourly_cost: Decimal | None
    currency: str


@dataclass(frozen=True, slots=True)
class MovePage:
    """`loses_all` asks to confirm that the job starts from its beginning; `refusal` says why it cannot be moved at all."""

    job_id: UUID
    name: str
    clusters: tuple[str, ...]
    chosen: str
    origin: Place | None
    destination: Place | None
    starts_at: datetime | None
    lost: Lost | None
    loses_all: bool
    refusal: str
    why_not: tuple[WhyNotGroup, ...]
    may_wait: bool
    """Whether the move can wait for a checkpoint."""


@page(takes=("cluster",))
def move(request: HttpRequest, actor: Actor, job_id: UUID) -> HttpResponse:
    """What moving the job would do now. Its form moves the job, then redirects to its page."""
    if request.method == "POST":
        return _move(request, actor, job_id)
    chosen = asked(request).get("cluster", "").strip()
    shown = _shown(actor, preview(actor, job_id, {"clusters": [chosen] if chosen else []}), chosen)
    return show(request, "federation/move.html", shown, live="federation/move_preview.html")


def _move(request: HttpRequest, actor: Actor, job_id: UUID) -> HttpResponse:
    given = typed(request)
    chosen = given.get("cluster", "").strip()
    body = {
        "clusters": [chosen] if chosen else [],
        "reason": given.get("reason", "").strip(),
        "lose_work": given.get("lose_work") == "yes",
        WAIT: wait_of(given),
    }
    movable_job(actor, job_id)
    try:
        request_migration(actor, job_id, body)
    except Problem as problem:
        details = [error.detail for error in problem.errors]
        messages.error(request, " ".join([problem.detail, *details]))
    else:
        waits = body[WAIT] != 0
        done = "The job is being stopped on its cluster, and continues on another one."
        messages.success(request, WAITS if waits else done)
    return redirect("job", job_id)


def _shown(actor: Actor, plan: MovePlan, chosen: str) -> MovePage:
    run, quote, place = plan.run, plan.quote, plan.place
    here = "" if run is None else run.cluster
    names = visible_clusters(actor).order_by("name").values_list("name", flat=True)[:MOST_OPTIONS]
    loses_all = plan.refusal is not None and plan.refusal.code == "cannot_resume"
    return MovePage(
        job_id=plan.job.id,
        name=plan.job.name,
        clusters=tuple(name for name in names if name != here),
        chosen=chosen,
        origin=None
        if run is None or quote is None
        else Place(run.cluster, run.pods[0].flavor, quote.hourly_cost, quote.currency),
        destination=None
        if place is None
        else Place(place.cluster, place.pod_sets[0].flavor, place.hourly_cost, place.currency),
        starts_at=quote.expected_start if quote else None,
        lost=plan.lost,
        loses_all=loses_all,
        refusal="" if plan.refusal is None or loses_all else plan.refusal.detail,
        why_not=grouped(WhyNot(one.cluster, one.code, one.message, one.is_for_good) for one in plan.why_not),
        may_wait=plan.job.spec.get("reports") is True,
    )
