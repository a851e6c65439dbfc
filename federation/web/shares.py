"""Shares: why a tenant is behind, and the form that sets a weight."""

from dataclasses import dataclass
from decimal import Decimal, InvalidOperation

from django.conf import settings
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect

from federation.models import KeptRoom
from federation.queries.kept_room import Cost, costs_of, kept_rooms
from federation.queries.turns import TenantTurn, turns_of
from foundation.pages import Form, asked, show, typed
from foundation.problems import Invalid, Problem
from tenancy.operations import set_weight
from tenancy.queries import (
    Actor,
    TenantMatch,
    first_choice,
    match_tenants,
    path_suggestions,
    tenant_choices,
    visible_tenants,
    weighable_paths,
)
from tenancy.web import page

from .jobs import Options

MOST_SHOWN = 200
CONTROLS = {"tenant": "tenant", "weight": "weight"}


@dataclass(frozen=True, slots=True)
class ShareRow:
    """A tenant's share, at its depth in the tree; parts in percent."""

    turn: TenantTurn
    indent: int
    held: float
    used: float
    share: float
    credit: float | None


@dataclass(frozen=True, slots=True)
class KeptRow:
    """Room that is kept for a job, with what it costs."""

    room: KeptRoom
    cost: Cost


@dataclass(frozen=True, slots=True)
class SharesPage:
    rows: tuple[ShareRow, ...]
    kept: tuple[KeptRow, ...]
    is_cut: bool
    is_on: bool
    cap: float
    half_life_hours: float
    match: TenantMatch
    form: Form
    paths: Options
    may_edit: bool


@dataclass(frozen=True, slots=True)
class WeightPage:
    form: Form
    tenants: Options


@page(takes=("tenant",))
def shares(request: HttpRequest, actor: Actor) -> HttpResponse:
    """The tree of tenants with what each holds, what its past use adds, whose turn is next, and the room that is kept."""
    match = match_tenants(actor, asked(request).get("tenant", ""))
    tenants = sorted(match.tenants.order_by("path")[: MOST_SHOWN + 1], key=lambda tenant: tenant.path.split("/"))
    turns = turns_of(actor, tenants[:MOST_SHOWN]) if tenants else ()
    top = min((turn.depth for turn in turns), default=0)
    shown = SharesPage(
        rows=tuple(_row(turn, top) for turn in turns),
        kept=_kept(actor, match),
        is_cut=len(tenants) > MOST_SHOWN,
        is_on=settings.FAIR_SHARE,
        cap=float(settings.FAIR_SHARE_CREDIT_CAP) * 100,
        half_life_hours=settings.FAIR_SHARE_HALF_LIFE_SECONDS / 3600,
        match=match,
        form=Form(values={"tenant": match.typed}),
        paths=path_suggestions(actor),
        may_edit=bool(weighable_paths(actor)),
    )
    return show(request, "federation/shares.html", shown, live="federation/shares_live.html")


@page(takes=("tenant",))
def set_share(request: HttpRequest, actor: Actor) -> HttpResponse:
    """The form that sets the weight of a tenant."""
    if request.method != "POST":
        paths = sorted(weighable_paths(actor))
        tenant = first_choice(paths, asked=asked(request).get("tenant", ""))
        known = visible_tenants(actor).filter(path=tenant).values_list("weight", flat=True).first()
        weight = "1" if known is None else f"{known.normalize():f}"
        return _form(request, actor, Form(values={"tenant": tenant, "weight": weight}))
    values = typed(request)
    try:
        if not values.get("tenant"):
            raise Invalid.field("tenant", "required", "choose a tenant")
        tenant = set_weight(actor, values["tenant"], _number(values.get("weight", ""))).path
    except Problem as problem:
        return _form(request, actor, Form.refused(values, problem, CONTROLS), status=problem.status)
    messages.success(request, f"The weight of {tenant} is set.")
    return redirect("shares")


def _form(request: HttpRequest, actor: Actor, form: Form, *, status: int = 200) -> HttpResponse:
    options = tenant_choices(sorted(weighable_paths(actor)), form.values.get("tenant", ""))
    return show(request, "federation/weight.html", WeightPage(form, options), status=status)


def _number(text: str) -> Decimal:
    try:
        return Decimal(text.strip()[:20])
    except InvalidOperation:
        raise Invalid.field("weight", "malformed", "a decimal number, such as 2 or 0.5") from None


def _kept(actor: Actor, match: TenantMatch) -> tuple[KeptRow, ...]:
    rooms = list(kept_rooms(actor).filter(job__tenant__in=match.tenants).order_by("since_at")[:MOST_SHOWN])
    costs = costs_of(rooms)
    return tuple(KeptRow(room, costs[room.id]) for room in rooms)


def _row(turn: TenantTurn, top: int) -> ShareRow:
    line = turn.line
    return ShareRow(
        turn, turn.depth - top, line.held * 100, line.used * 100, line.share * 100, turn.credit and turn.credit * 100
    )
