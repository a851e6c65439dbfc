"""Conflicts of postings, and their resolution."""

from dataclasses import dataclass
from uuid import UUID

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect

from billing.models import PostingConflict
from billing.models.periods import REASON_LENGTH
from billing.operations.conflicts import resolve_conflict
from billing.queries.conflicts import MOST_CONFLICTS, ConflictDetail, conflict_detail, visible_conflicts
from foundation.pages import Form, show, typed
from foundation.problems import Invalid, Problem
from tenancy.queries import Actor
from tenancy.web import page

CONTROLS = {"reason": "reason", "decision": "decision"}


@dataclass(frozen=True, slots=True)
class ConflictsPage:
    conflicts: tuple[PostingConflict, ...]


@dataclass(frozen=True, slots=True)
class ConflictPage:
    conflict: ConflictDetail
    form: Form


@page(takes=())
def conflicts(request: HttpRequest, actor: Actor) -> HttpResponse:
    """The conflicts of the organisations that the user sees as a whole, open ones first."""
    rows = visible_conflicts(actor).order_by("resolved_at", "-seen_at")
    opened = rows.filter(resolved_at=None)[:MOST_CONFLICTS]
    resolved = rows.exclude(resolved_at=None).order_by("-resolved_at")[:MOST_CONFLICTS]
    return show(request, "billing/conflicts.html", ConflictsPage((*opened, *resolved)))


@page(takes=())
def conflict(request: HttpRequest, actor: Actor, conflict_id: UUID) -> HttpResponse:
    """One conflict with both contents; users who may close months resolve it here."""
    if request.method != "POST":
        return _one(request, actor, conflict_id, Form())
    values = typed(request)
    try:
        reason, decision = values.get("reason", "").strip(), values.get("decision", "")
        if decision not in PostingConflict.Decision.values:
            raise Invalid.field("decision", "required", "say which content stands")
        if not 0 < len(reason) <= REASON_LENGTH:
            raise Invalid.field("reason", "required", f"say why, in at most {REASON_LENGTH} characters")
        resolve_conflict(actor, conflict_id, decision, reason)
    except Problem as problem:
        form = Form.refused(values, problem, CONTROLS)
        return _one(request, actor, conflict_id, form, status=problem.status)
    messages.success(request, "The conflict is resolved.")
    return redirect("conflict", conflict_id)


def _one(request: HttpRequest, actor: Actor, conflict_id: UUID, form: Form, *, status: int = 200) -> HttpResponse:
    shown = ConflictPage(conflict_detail(actor, conflict_id), form)
    return show(request, "billing/conflict.html", shown, status=status)
