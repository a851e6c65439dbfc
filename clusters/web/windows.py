"""Plans and cancels maintenance windows of a cluster, from its page."""

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from uuid import UUID

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect

from clusters.operations.windows import WantedWindow, cancel_window, make_window
from clusters.queries.windows import scope_text
from foundation.pages import Form, typed
from foundation.problems import Conflict, FieldError, Invalid, Problem
from tenancy.queries import Actor
from tenancy.web import action

from .pages import Forms, show_cluster

CONTROLS = {name: name for name in ("starts_at", "ends_at", "reason", "nodes", "flavor", "drain")}
MOST_REASON = 300
_MINUTE = re.compile(r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}(:\d{2})?")


@action
def plan(request: HttpRequest, actor: Actor, cluster_id: UUID) -> HttpResponse:
    """Makes a maintenance window of the cluster."""
    values = typed(request)
    try:
        made = make_window(actor, cluster_id, _read(values))
    except Problem as problem:
        refused = Form.refused(values, problem, CONTROLS)
        return show_cluster(request, actor, cluster_id, Forms(plan=refused), status=problem.status)
    what = scope_text(made.nodes, made.flavor)
    messages.success(
        request, f"Maintenance of {what} is planned. Jobs that could run into it start elsewhere, or later."
    )
    return redirect("cluster", cluster_id)


@action
def cancel(request: HttpRequest, actor: Actor, cluster_id: UUID, window_id: UUID) -> HttpResponse:
    """Cancels a maintenance window, then redirects to its cluster's page."""
    try:
        cancel_window(actor, cluster_id, window_id)
    except Conflict as conflict:
        messages.error(request, conflict.detail)
    else:
        messages.success(request, "The maintenance window is cancelled. Jobs use its nodes again.")
    return redirect("cluster", cluster_id)


def _read(values: Mapping[str, str]) -> WantedWindow:
    """The window in the form, or Invalid with every wrong field."""
    errors: list[FieldError] = []
    starts_at, ends_at = (_time(values, name, errors) for name in ("starts_at", "ends_at"))
    reason = values.get("reason", "").strip()
    if not reason:
        errors.append(FieldError("reason", "required", "write for the users whose jobs wait"))
    elif len(reason) > MOST_REASON or not reason.isprintable():
        errors.append(FieldError("reason", "out_of_range", f"at most {MOST_REASON} printable characters"))
    if ends_at is None and not any(one.field == "ends_at" for one in errors):
        errors.append(FieldError("ends_at", "required", "say when it ends"))
    if errors or ends_at is None:
        raise Invalid(errors=errors)
    return WantedWindow(
        starts_at=starts_at,
        ends_at=ends_at,
        reason=reason,
        nodes=tuple(values.get("nodes", "").replace(",", " ").split()),
        flavor=values.get("flavor", "").strip(),
        drain=values.get("drain") == "1",
    )


def _time(values: Mapping[str, str], name: str, errors: list[FieldError]) -> datetime | None:
    """The value of a date and time control, in UTC; None without one."""
    text = values.get(name, "").strip()
    if not text:
        return None
    try:
        if _MINUTE.fullmatch(text):
            return datetime.fromisoformat(text).replace(tzinfo=UTC)
    except ValueError:
        pass
    errors.append(FieldError(name, "not_an_instant", "a date and a time in UTC"))
    return None
