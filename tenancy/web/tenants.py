"""The tenant tree: its pages, and the forms that create, change and remove a tenant."""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from rest_framework.exceptions import ValidationError

from foundation.pages import Form, asked, show, typed
from foundation.problems import Invalid, NotFound, Problem
from foundation.shapes import Labels
from tenancy.engine.roles import Permission
from tenancy.models import Tenant, User
from tenancy.operations import change_tenant, create_tenant, remove_tenant
from tenancy.queries import Actor, permissions_at, require_operator, tenant_by_id, tenant_named

from .doors import action, page
from .lists import TenantsShown, TenantView, roles_within, tenant_view, tenants_shown

LASTS = (("", "never"), ("7", "7 days"), ("30", "30 days"), ("90", "90 days"), ("365", "a year"))
KINDS = (("department", "department"), ("team", "team"), ("project", "project"))
CONTROLS = {"name": "name", "kind": "kind", "parent": "parent", "labels": "labels"}
MOST_SUGGESTED = 200


@dataclass(frozen=True, slots=True)
class TenantsPage:
    tenants: TenantsShown
    form: Form
    may_found: bool
    is_later: bool


@dataclass(frozen=True, slots=True)
class TenantPage:
    """`members` are suggestions for the form, which only those see who may bind roles."""

    tenant: TenantView
    form: Form
    roles: Sequence[tuple[str, str]]
    members: Sequence[tuple[str, str]]
    is_later: bool
    lasts: Sequence[tuple[str, str]] = LASTS


@dataclass(frozen=True, slots=True)
class NewTenantPage:
    """`parent` is None for a new organisation."""

    parent: Tenant | None
    form: Form
    kinds: Sequence[tuple[str, str]] = KINDS


@dataclass(frozen=True, slots=True)
class EditTenantPage:
    tenant: Tenant
    form: Form
    may_remove: bool


@page(takes=("q", "cursor"))
def tenants(request: HttpRequest, actor: Actor) -> HttpResponse:
    """The tree of everything that the viewer may see."""
    shown = tenants_shown(actor, asked(request))
    form = Form(values={"q": shown.q})
    is_later = bool(request.GET.get("cursor"))
    return show(request, "tenancy/tenants.html", TenantsPage(shown, form, actor.runs_the_installation, is_later))


@page(takes=("cursor",))
def tenant(request: HttpRequest, actor: Actor, tenant_id: UUID) -> HttpResponse:
    """One tenant and who has which role in it."""
    return show_tenant(request, actor, tenant_by_id(actor, tenant_id), Form())


def show_tenant(request: HttpRequest, actor: Actor, shown: Tenant, form: Form, *, status: int = 200) -> HttpResponse:
    """The tenant's page, with the form that gives a role for those who may."""
    own = permissions_at(actor, shown)
    manages = Permission.MANAGE_TENANTS in own
    members = User.objects.filter(is_active=True, memberships__organisation__path=shown.path_prefixes[0])
    emails = members.order_by("email").values_list("email", flat=True)[:MOST_SUGGESTED] if manages else ()
    page_shown = TenantPage(
        tenant=tenant_view(actor, shown, asked(request)),
        form=form,
        roles=roles_within(own) if manages else (),
        members=tuple((email, "") for email in emails),
        is_later=bool(request.GET.get("cursor")),
    )
    return show(request, "tenancy/tenant.html", page_shown, status=status)


@page
def new_organisation(request: HttpRequest, actor: Actor) -> HttpResponse:
    """The form for a new organisation, for operators."""
    require_operator(actor, "create and remove organisations")
    return _create(request, actor, None)


@page
def new_tenant(request: HttpRequest, actor: Actor, tenant_id: UUID) -> HttpResponse:
    """The form for a tenant below this one."""
    return _create(request, actor, tenant_by_id(actor, tenant_id, Permission.MANAGE_TENANTS))


@page
def edit_tenant(request: HttpRequest, actor: Actor, tenant_id: UUID) -> HttpResponse:
    """The form that renames, relabels and moves a tenant."""
    before = tenant_by_id(actor, tenant_id, Permission.MANAGE_TENANTS)
    if request.method != "POST":
        values = {"name": before.name, "parent": before.path.rpartition("/")[0], "labels": _labels_text(before)}
        return _show_edit(request, actor, before, Form(values=values))
    values = typed(request)
    try:
        changed = change_tenant(
            actor,
            tenant_id,
            name=values.get("name", "").strip(),
            labels=_labels(values.get("labels", "")),
            parent_id=_new_parent(actor, before, values.get("parent", "").strip()),
        )
    except Problem as problem:
        form = Form.refused(values, problem, CONTROLS)
        return _show_edit(request, actor, before, form, status=problem.status)
    messages.success(request, f"{changed.path} is saved.")
    return redirect("tenant", tenant_id)


@action
def remove(request: HttpRequest, actor: Actor, tenant_id: UUID) -> HttpResponse:
    """Removes an empty tenant."""
    before = tenant_by_id(actor, tenant_id, Permission.MANAGE_TENANTS)
    try:
        remove_tenant(actor, tenant_id)
    except Problem as problem:
        values = {"name": before.name, "parent": before.path.rpartition("/")[0], "labels": _labels_text(before)}
        return _show_edit(request, actor, before, Form.refused(values, problem, {}), status=problem.status)
    messages.success(request, f"{before.path} is removed.")
    return redirect("tenants")


def _create(request: HttpRequest, actor: Actor, parent: Tenant | None) -> HttpResponse:
    if request.method != "POST":
        return show(request, "tenancy/tenant_new.html", NewTenantPage(parent, Form(values={"kind": "team"})))
    values = typed(request)
    try:
        made = create_tenant(
            actor,
            name=values.get("name", "").strip(),
            kind=_kind(values) if parent else Tenant.Kind.ORGANISATION.value,
            parent_id=parent.id if parent else None,
            labels=_labels(values.get("labels", "")),
        )
    except Problem as problem:
        form = Form.refused(values, problem, CONTROLS)
        return show(request, "tenancy/tenant_new.html", NewTenantPage(parent, form), status=problem.status)
    messages.success(request, f"{made.path} is created.")
    return redirect("tenant", made.id)


def _show_edit(request: HttpRequest, actor: Actor, shown: Tenant, form: Form, *, status: int = 200) -> HttpResponse:
    may_remove = shown.parent_id is not None or actor.runs_the_installation
    return show(request, "tenancy/tenant_edit.html", EditTenantPage(shown, form, may_remove), status=status)


def _kind(values: dict[str, str]) -> str:
    if values.get("kind") not in dict(KINDS):
        raise Invalid.field("kind", "unknown_value", "one of the listed kinds")
    return values["kind"]


def _new_parent(actor: Actor, moved: Tenant, path: str) -> UUID | None:
    """The id of the tenant at the path, None if it is where it was."""
    if moved.parent_id is None or path == moved.path.rpartition("/")[0]:
        return None
    try:
        return tenant_named(actor, path).id
    except NotFound:
        raise Invalid.field("parent", "unknown_tenant", "there is no such tenant") from None


def _labels(text: str) -> dict[str, str]:
    """`name=value` by line."""
    pairs = [line.partition("=") for line in map(str.strip, text.splitlines()) if line]
    if any(not (name and sign) for name, sign, _ in pairs):
        raise Invalid.field("labels", "bad_format", "one name=value per line")
    try:
        return Labels().to_internal_value({name.strip(): value.strip() for name, _, value in pairs})
    except ValidationError as error:
        details = error.detail if isinstance(error.detail, list) else [error.detail]
        raise Invalid.field("labels", "invalid_label", " ".join(map(str, details))) from None


def _labels_text(shown: Tenant) -> str:
    return "\n".join(f"{name}={value}" for name, value in shown.labels.items())
