"""Advance reservations: the list, one reservation, and the forms that make, shorten and cancel it."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect

from federation.models import Reservation
from federation.operations import cancel_reservation, make_reservation, shorten_reservation
from federation.queries.gpu_models import gpu_models
from federation.queries.pages import tenant_used_last
from federation.queries.pod_set_lines import pod_set_text
from federation.queries.reservations import (
    ReservationView,
    filtered_reservations,
    has_been_used,
    may_change,
    reservation_of,
    views_of,
)
from foundation import clock
from foundation.ids import new_id
from foundation.pages import Form, asked, show, typed
from foundation.problems import Conflict, Problem
from tenancy.engine.roles import Permission
from tenancy.queries import Actor, first_choice, tenant_choices, visible_tenants
from tenancy.web import action, page

from .jobs import LIVE, MOST_OPTIONS, Options, cluster_options
from .submit import LEVEL_OPTIONS, MODE_OPTIONS, POD
from .typing_in import check_chosen, whole_number, words_of

MOST_SHOWN = 200
NOT_OVER = "scheduled,active"
STATE_OPTIONS: Options = ((NOT_OVER, "not ended"), ("active", "active"), ("scheduled", "scheduled"), ("ended", "ended"),
                          ("released", "released"), ("cancelled", "cancelled"))  # fmt: skip
CONTROLS = {
    "tenant": "tenant",
    "name": "name",
    "cluster": "cluster",
    "starts_at": "starts_at",
    "ends_at": "ends_at",
    "count": "count",
    "recall_seconds": "recall",
    f"{POD}.count": "pods",
    f"{POD}.gpu": "gpus",
    f"{POD}.gpu.count": "gpus",
    f"{POD}.gpu.models": "models",
    f"{POD}.cpu": "cpu",
    f"{POD}.memory": "memory",
    "topology.level": "level",
    "topology.mode": "mode",
}
DEFAULTS = {
    "count": "1", "pods": "1", "gpus": "8", "cpu": "8", "memory": "32Gi", "level": "cluster", "mode": "preferred",
}  # fmt: skip
_MINUTE = re.compile(r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}(:\d{2})?")


@dataclass(frozen=True, slots=True)
class ReservationsPage:
    form: Form
    reservations: tuple[ReservationView, ...]
    is_cut: bool
    may_reserve: bool
    clusters: Options
    states: Options = STATE_OPTIONS


@dataclass(frozen=True, slots=True)
class ReservePage:
    """With `key`, a form that is sent twice by accident makes one reservation."""

    form: Form
    key: str
    tenants: Options
    clusters: Options
    models: Options
    levels: Options = LEVEL_OPTIONS
    modes: Options = MODE_OPTIONS


@dataclass(frozen=True, slots=True)
class ReservationPage:
    reservation: ReservationView
    asks: str
    wishes: tuple[tuple[str, str], ...]
    may_change: bool
    form: Form
    is_unvisited: bool
    """Whether none of its jobs has come, so that it will be released."""
    live_states: str = LIVE


@page(takes=("state", "cluster"))
def reservations(request: HttpRequest, actor: Actor) -> HttpResponse:
    """Reservations that serve the viewer's tenants, newest first."""
    state, cluster = asked(request).get("state", NOT_OVER), asked(request).get("cluster", "").strip()[:63]
    state = state if state in {value for value, _ in STATE_OPTIONS} else NOT_OVER
    query = {"state": state} | ({"cluster": cluster} if cluster else {})
    rows = list(filtered_reservations(actor, query).order_by("starts_at", "id")[: MOST_SHOWN + 1])
    shown = ReservationsPage(
        form=Form(values={"state": state, "cluster": cluster}),
        reservations=tuple(views_of(rows[:MOST_SHOWN], clock.now())),
        is_cut=len(rows) > MOST_SHOWN,
        may_reserve=visible_tenants(actor, Permission.RESERVE).exists(),
        clusters=cluster_options(actor),
    )
    return show(request, "federation/reservations.html", shown)


@page
def reserve(request: HttpRequest, actor: Actor) -> HttpResponse:
    """The empty form; on success the new reservation's page."""
    if request.method != "POST":
        tenant = first_choice(_tenant_paths(actor), last_used=tenant_used_last(actor, Reservation))
        return _form(request, actor, Form(values={**DEFAULTS, "tenant": tenant, "key": str(new_id())}))
    values = typed(request)
    body = _body(values)
    try:
        check_chosen(values)
        raw = json.dumps(body, sort_keys=True).encode()
        answer = make_reservation(actor, body, show=_made, key=values.get("key", "")[:64], raw=raw)
    except Problem as problem:
        return _form(request, actor, Form.refused(values, problem, CONTROLS), status=problem.status)
    messages.success(request, f"{answer.body['name']} is reserved on {answer.body['cluster']}.")
    return redirect("reservation", answer.body["id"])


@page
def reservation(request: HttpRequest, actor: Actor, reservation_id: UUID) -> HttpResponse:
    """One reservation: its nodes, and what its jobs use of them. A POST shortens it."""
    row = reservation_of(actor, reservation_id)
    if request.method != "POST":
        return _one(request, actor, row, Form())
    values = typed(request)
    try:
        shorten_reservation(actor, row.id, {"ends_at": _instant(values.get("ends_at", ""))})
    except Problem as problem:
        form = Form.refused(values, problem, {"ends_at": "ends_at"})
        return _one(request, actor, row, form, status=problem.status)
    messages.success(request, "The reservation is shortened.")
    return redirect("reservation", row.id)


@action
def cancel(request: HttpRequest, actor: Actor, reservation_id: UUID) -> HttpResponse:
    """Cancels the reservation, then redirects to its page."""
    try:
        cancel_reservation(actor, reservation_id)
    except Conflict as conflict:
        messages.error(request, conflict.detail)
    else:
        messages.success(request, "The reservation is cancelled; its nodes are free for others.")
    return redirect("reservation", reservation_id)


def _one(request: HttpRequest, actor: Actor, row: Reservation, form: Form, *, status: int = 200) -> HttpResponse:
    (view,) = views_of([row], clock.now())
    topology, constraints = row.shape["topology"], row.shape["constraints"]
    wishes = [(name.replace("_", " "), ", ".join(values)) for name, values in constraints.items() if values]
    if topology["level"] != "cluster":
        wishes.append(("topology", f"one {topology['level']}, {topology['mode']}"))
    shown = ReservationPage(
        reservation=view,
        asks=" + ".join(pod_set_text(item) for item in row.shape["pod_sets"]),
        wishes=tuple(wishes),
        may_change=view.state in ("scheduled", "active") and may_change(actor, row),
        form=form,
        is_unvisited=view.release_at is not None and not has_been_used(row),
    )
    return show(request, "federation/reservation.html", shown, status=status)


def _form(request: HttpRequest, actor: Actor, form: Form, *, status: int = 200) -> HttpResponse:
    shown = ReservePage(
        form=form,
        key=form.values.get("key", ""),
        tenants=tenant_choices(_tenant_paths(actor), form.values.get("tenant", "")),
        clusters=cluster_options(actor),
        models=tuple((name, "") for name in gpu_models(actor)),
    )
    return show(request, "federation/reserve.html", shown, status=status)


def _tenant_paths(actor: Actor) -> list[str]:
    tenants = visible_tenants(actor, Permission.RESERVE).order_by("path")
    return list(tenants.values_list("path", flat=True)[:MOST_OPTIONS])


def _body(values: Mapping[str, str]) -> dict[str, Any]:
    pods: dict[str, Any] = {
        "count": whole_number(values.get("pods", "")),
        "cpu": values.get("cpu", "").strip(),
        "memory": values.get("memory", "").strip(),
    }
    if values.get("gpus", "").strip() not in {"", "0"}:
        pods["gpu"] = {"count": whole_number(values["gpus"]), "models": words_of(values.get("models", ""))}
    body: dict[str, Any] = {
        "tenant": values.get("tenant", "").strip(),
        "name": values.get("name", "").strip(),
        "cluster": values.get("cluster", "").strip() or None,
        "starts_at": _instant(values.get("starts_at", "")),
        "ends_at": _instant(values.get("ends_at", "")),
        "count": whole_number(values.get("count", "")),
        "recall_seconds": _seconds(values.get("recall", "")),
        "pod_sets": [pods],
        "topology": {"level": values.get("level") or "cluster", "mode": values.get("mode") or "preferred"},
    }
    return body


def _seconds(minutes: str) -> int | str | None:
    """Minutes in seconds; other text unchanged, None for nothing."""
    number = whole_number(minutes) if minutes.strip() else None
    return number * 60 if isinstance(number, int) else number


def _instant(text: str) -> str | None:
    """The value of a date and time control, in UTC; any other text unchanged."""
    text = text.strip()
    return f"{text}Z" if _MINUTE.fullmatch(text) else text or None


def _made(row: Reservation) -> dict[str, Any]:
    return {"id": str(row.id), "name": row.name, "cluster": row.cluster.name}
