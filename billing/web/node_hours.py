"""The pages of hours of nodes with negative idle: the list, and one with the runs behind it."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect

from billing.models import NegativeNodeHour
from billing.models.periods import REASON_LENGTH
from billing.operations.node_hours import accept_node_hour
from billing.queries.node_hours import node_hour_by_id, node_hours_of, runs_behind
from foundation.pages import Form, asked, show, typed
from foundation.problems import Invalid, Problem
from tenancy.engine.roles import Permission
from tenancy.queries import Actor, permissions_at
from tenancy.web import page

State, Cause = NegativeNodeHour.State, NegativeNodeHour.Cause
MOST_SHOWN = 200
WHY = {
    Cause.UNKNOWN_NODE: "The history of the fleet does not have the node on that day.",
    Cause.NODE_SEEN_LATE: "Jobs ran before the node was seen, or after it had left.",
    Cause.DOUBLE_REPORT: "One pod is metered twice for the same time.",
    Cause.OVERLAP: "Jobs used more units than the node had.",
    Cause.PRICES_DIFFER: "Jobs paid another price, or for more cores or memory, than the node was offered at.",
}


@dataclass(frozen=True, slots=True)
class HourShown:
    """A row, the amount by which jobs paid too much, and why."""

    row: NegativeNodeHour
    too_much: Decimal
    why: str


@dataclass(frozen=True, slots=True)
class HoursPage:
    hours: tuple[HourShown, ...]
    hidden: int
    form: Form
    states: Sequence[tuple[str, str]]
    csv_query: str


@dataclass(frozen=True, slots=True)
class HourPage:
    hour: HourShown
    runs: Sequence[dict[str, Any]]
    may_decide: bool
    form: Form


@page(takes=("state",))
def node_hours(request: HttpRequest, actor: Actor) -> HttpResponse:
    """The latest of a state; by default those that wait for a decision."""
    state = asked(request).get("state", State.OPEN.value)
    if state not in ("all", *State.values):
        raise Invalid.field("state", "unknown_state", f"one of all, {', '.join(State.values)}")
    rows = node_hours_of(actor, state="" if state == "all" else state)
    query = QueryDict(mutable=True)
    query.update({"format": "csv"} if state == "all" else {"state": state, "format": "csv"})
    shown = HoursPage(
        hours=tuple(_shown(row) for row in rows.order_by("-hour", "-id")[:MOST_SHOWN]),
        hidden=max(0, rows.count() - MOST_SHOWN),
        form=Form(values={"state": state}),
        states=[*((one.value, one.label) for one in State), ("all", "All")],
        csv_query=query.urlencode(),
    )
    return show(request, "billing/node_hours.html", shown)


@page(takes=())
def node_hour(request: HttpRequest, actor: Actor, row_id: UUID) -> HttpResponse:
    """One with its runs; users who may close months accept it here."""
    if request.method != "POST":
        return _one(request, actor, row_id, Form())
    values = typed(request)
    try:
        note = values.get("note", "").strip()
        if not 0 < len(note) <= REASON_LENGTH:
            raise Invalid.field("note", "required", f"say why, in at most {REASON_LENGTH} characters")
        accept_node_hour(actor, row_id, note)
    except Problem as problem:
        form = Form.refused(values, problem, {"note": "note"})
        return _one(request, actor, row_id, form, status=problem.status)
    messages.success(request, "The hour is accepted as it is.")
    return redirect("node-hour", row_id)


def _one(request: HttpRequest, actor: Actor, row_id: UUID, form: Form, *, status: int = 200) -> HttpResponse:
    row = node_hour_by_id(actor, row_id)
    runs = [
        {**run, "charged": Decimal(run["charged"]), **{name: datetime.fromisoformat(run[name]) for name in ("from", "until")}}
        for run in runs_behind(row)
    ]  # fmt: skip
    may_decide = row.state == State.OPEN and Permission.CLOSE_PERIOD in permissions_at(actor, row.organisation)
    return show(request, "billing/node_hour.html", HourPage(_shown(row), runs, may_decide, form), status=status)


def _shown(row: NegativeNodeHour) -> HourShown:
    return HourShown(row, row.charged - row.cost, WHY[Cause(row.cause)])
