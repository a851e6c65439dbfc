"""Unusual spending: the days that stand out, and one with its clusters and jobs, where users say what it was."""

from collections.abc import Mapping
from dataclasses import dataclass
from uuid import UUID

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect

from billing.models import SpendAnomaly
from billing.models.periods import REASON_LENGTH
from billing.operations.anomalies import ACTIONS, decide_anomaly
from billing.queries.anomalies import (
    AnomalyGroup,
    ClusterBehind,
    JobBehind,
    anomaly_by_id,
    clusters_behind,
    grouped,
    jobs_behind,
    visible_anomalies,
)
from foundation.pages import Form, show, typed
from foundation.problems import Invalid, Problem
from tenancy.engine.roles import Permission
from tenancy.queries import Actor, permissions_at
from tenancy.web import page

MOST_SHOWN = 200
CONTROLS = {name: name for name in ("outcome", "reason")}
OUTCOMES = (("explained", "explained: there is a cause"), ("dismissed", "dismissed: it is of no interest"))


@dataclass(frozen=True, slots=True)
class AnomaliesPage:
    open: tuple[AnomalyGroup, ...]
    decided: tuple[SpendAnomaly, ...]


@dataclass(frozen=True, slots=True)
class AnomalyPage:
    anomaly: SpendAnomaly
    clusters: tuple[ClusterBehind, ...]
    jobs: tuple[JobBehind, ...]
    outcomes: tuple[tuple[str, str], ...]
    may_decide: bool
    form: Form


@page(takes=())
def anomalies(request: HttpRequest, actor: Actor) -> HttpResponse:
    """The days that stand out among those of the tenants that the user sees: open ones first, in groups."""
    rows = visible_anomalies(actor)
    still_open = rows.filter(state=SpendAnomaly.State.OPEN).order_by("-day", "id")[:MOST_SHOWN]
    decided = rows.exclude(state=SpendAnomaly.State.OPEN).order_by("-decided_at", "id")[:MOST_SHOWN]
    return show(request, "billing/anomalies.html", AnomaliesPage(grouped(still_open), tuple(decided)))


@page(takes=())
def anomaly(request: HttpRequest, actor: Actor, anomaly_id: UUID) -> HttpResponse:
    """One anomaly with the clusters and jobs behind it; users who may dispute charges there explain or dismiss it here."""
    if request.method != "POST":
        return _one(request, actor, anomaly_id, Form())
    values = typed(request)
    try:
        if values.get("outcome") not in ACTIONS:
            raise Invalid.field("outcome", "required", "choose one")
        decide_anomaly(actor, anomaly_id, values["outcome"], _reason(values))
    except Problem as problem:
        return _one(request, actor, anomaly_id, Form.refused(values, problem, CONTROLS), status=problem.status)
    messages.success(request, "Done.")
    return redirect("anomaly", anomaly_id)


def _one(request: HttpRequest, actor: Actor, anomaly_id: UUID, form: Form, *, status: int = 200) -> HttpResponse:
    row = anomaly_by_id(actor, anomaly_id)
    may_decide = Permission.DISPUTE_CHARGE in permissions_at(actor, row.tenant)
    clusters = clusters_behind(row)
    is_to_decide = may_decide and row.state == SpendAnomaly.State.OPEN
    shown = AnomalyPage(row, clusters, jobs_behind(row, clusters), OUTCOMES, is_to_decide, form)
    return show(request, "billing/anomaly.html", shown, status=status)


def _reason(values: Mapping[str, str]) -> str:
    text = values.get("reason", "").strip()
    if not 0 < len(text) <= REASON_LENGTH or not text.isprintable():
        raise Invalid.field("reason", "required", f"1 to {REASON_LENGTH} characters in one line")
    return text
