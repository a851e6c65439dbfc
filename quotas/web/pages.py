"""The quota tree, and setting or removing a limit."""

from collections.abc import Mapping
from dataclasses import dataclass
from uuid import UUID

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect

from clusters.queries import visible_clusters
from foundation.pages import Form, asked, show, typed
from foundation.problems import Invalid, Problem
from quotas.engine.amounts import BadAmount, format_amount, parse_amount
from quotas.engine.holds import Borrowing
from quotas.models import MOST_RECLAIM_SECONDS, QuotaLimit
from quotas.operations import WantedLimit, delete_limit, put_limit
from quotas.queries import limit_by_id
from tenancy.queries import Actor, TenantMatch, first_choice, match_tenants, path_suggestions, tenant_choices
from tenancy.web import action, page

from .lists import (
    ClassLimitRow,
    SubmissionLimitRow,
    TenantLimits,
    UserLimitRow,
    class_limit_rows,
    editable_tenants,
    quota_tree,
    submission_limit_rows,
    user_limit_rows,
)

RESOURCES = (("gpu", "any GPU"), ("cpu", "CPU cores"), ("memory", "memory"), ("jobs", "jobs that run"))
ALL = "all"
"""What users write for no bound on what is borrowed or lent."""
YES, NO = "yes", "no"
RECLAIMING = ((NO, "no"), (YES, "yes"))
FIELDS = ("tenant", "resource", "nominal", "clusters", "borrowing_limit", "lending_limit", "reclaims", "reclaim_after")
CONTROLS = {name: name for name in FIELDS}


@dataclass(frozen=True, slots=True)
class QuotasPage:
    tenants: tuple[TenantLimits, ...]
    users: tuple[UserLimitRow, ...]
    classes: tuple[ClassLimitRow, ...]
    submission: tuple[SubmissionLimitRow, ...]
    match: TenantMatch
    form: Form
    paths: tuple[tuple[str, str], ...]
    may_edit: bool


@dataclass(frozen=True, slots=True)
class QuotaEditPage:
    form: Form
    tenants: tuple[tuple[str, str], ...]
    resources: tuple[tuple[str, str], ...]
    clusters: tuple[tuple[str, str], ...]
    reclaiming: tuple[tuple[str, str], ...]
    limit_id: UUID | None


@page(takes=("tenant",))
def quotas(request: HttpRequest, actor: Actor) -> HttpResponse:
    """The tree of limits with what is held against each."""
    match = match_tenants(actor, asked(request).get("tenant", ""))
    shown = QuotasPage(
        tenants=quota_tree(actor, match.tenants),
        users=user_limit_rows(actor, match.tenants),
        classes=class_limit_rows(actor, match.tenants),
        submission=submission_limit_rows(actor, match.tenants),
        match=match,
        form=Form(values={"tenant": match.typed}),
        paths=path_suggestions(actor),
        may_edit=bool(editable_tenants(actor)),
    )
    return show(request, "quotas/quotas.html", shown, live="quotas/quotas_live.html")


@page(takes=("limit", "tenant"))
def edit(request: HttpRequest, actor: Actor) -> HttpResponse:
    """The form that sets a limit, filled from an existing one when `limit` names it."""
    limit_id = limit_id_of(request.GET.get("limit", ""))
    if request.method != "POST":
        return _form(
            request, actor, Form(values=_values_of(actor, limit_id, asked(request).get("tenant", ""))), limit_id
        )
    values = typed(request)
    if values.pop("back", ""):
        return _form(request, actor, Form(values=values), limit_id)
    try:
        limit, is_new = put_limit(actor, **wanted_limit(values)._asdict())
    except Problem as problem:
        return refused(request, actor, values, problem, limit_id)
    verb = "set" if is_new else "changed"
    messages.success(request, f"The limit on {limit.resource} of {limit.tenant.path} is {verb}.{_surplus_text(limit)}")
    return redirect("quotas")


@action
def remove(request: HttpRequest, actor: Actor, limit_id: UUID) -> HttpResponse:
    """Removes a limit, then redirects to the tree."""
    delete_limit(actor, limit_id)
    messages.success(request, "The limit is removed.")
    return redirect("quotas")


def refused(
    request: HttpRequest, actor: Actor, values: Mapping[str, str], problem: Problem, limit_id: UUID | None
) -> HttpResponse:
    """The form again, with why these values are refused."""
    return _form(request, actor, Form.refused(values, problem, CONTROLS), limit_id, status=problem.status)


def _form(request: HttpRequest, actor: Actor, form: Form, limit_id: UUID | None, *, status: int = 200) -> HttpResponse:
    shown = QuotaEditPage(
        form=form,
        tenants=tenant_choices(editable_tenants(actor), form.values.get("tenant", "")),
        resources=RESOURCES,
        clusters=tuple((cluster.name, cluster.region) for cluster in visible_clusters(actor).order_by("name")),
        reclaiming=RECLAIMING,
        limit_id=limit_id,
    )
    return show(request, "quotas/edit.html", shown, status=status)


def wanted_limit(typed_values: Mapping[str, str]) -> WantedLimit:
    """The limit that the form's values describe. Raises Invalid."""
    values = {name: text.strip() for name, text in typed_values.items()}
    if not values.get("tenant"):
        raise Invalid.field("tenant", "required", "choose a tenant")
    resource, bounds = values.get("resource", ""), {}
    for name, otherwise in (("borrowing_limit", "0"), ("lending_limit", ALL)):
        text = values.get(name) or otherwise
        bounds[name] = None if text == ALL else _amount(resource, name, text)
    return WantedLimit(
        values["tenant"],
        resource,
        nominal=_amount(resource, "nominal", values.get("nominal", "")),
        clusters=[name.strip() for name in values.get("clusters", "").split(",") if name.strip()],
        borrowing=Borrowing(**bounds, reclaims=values.get("reclaims", "") == YES),
        reclaim_after=_seconds(values.get("reclaim_after", "")),
    )


def _seconds(text: str) -> int | None:
    if not text:
        return None
    if not (text.isascii() and text.isdecimal() and len(text) <= len(str(MOST_RECLAIM_SECONDS))):
        raise Invalid.field("reclaim_after", "out_of_range", f"seconds from 0 to {MOST_RECLAIM_SECONDS}, or none")
    return int(text)


def _surplus_text(limit: QuotaLimit) -> str:
    """What follows if more is held than the limit allows; empty otherwise."""
    if not limit.surplus:
        return ""
    over = f" {format_amount(limit.resource, limit.surplus)} more is held"
    if limit.reclaim_at is None:
        return f"{over}; it falls as jobs end."
    return f"{over}; from {limit.reclaim_at:%Y-%m-%d %H:%M} UTC on, jobs are stopped until it is not."


def _amount(resource: str, name: str, text: str) -> int:
    try:
        return parse_amount(resource, text)
    except BadAmount as bad:
        raise Invalid.field(name, bad.code, str(bad)) from None


def _bound_text(resource: str, amount: int | None) -> str:
    return ALL if amount is None else format_amount(resource, amount)


def limit_id_of(text: str) -> UUID | None:
    """The id in a query's parameter; None if it has none."""
    try:
        return UUID(text)
    except ValueError:
        return None


def _values_of(actor: Actor, limit_id: UUID | None, tenant: str) -> dict[str, str]:
    if limit_id is None:
        tenant = first_choice(editable_tenants(actor), asked=tenant)
        return {
            "resource": "gpu",
            "tenant": tenant,
            "borrowing_limit": "0",
            "lending_limit": ALL,
            "reclaims": NO,
            "reclaim_after": "",
        }
    limit = limit_by_id(actor, limit_id)
    return {
        "tenant": limit.tenant.path,
        "resource": limit.resource,
        "nominal": format_amount(limit.resource, limit.nominal),
        "clusters": ", ".join(limit.clusters),
        "borrowing_limit": _bound_text(limit.resource, limit.borrowing_limit),
        "lending_limit": _bound_text(limit.resource, limit.lending_limit),
        "reclaims": YES if limit.reclaims else NO,
        "reclaim_after": "" if limit.reclaim_after is None else str(limit.reclaim_after),
    }
