"""Gives, changes and takes away roles at a tenant."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect

from foundation.clock import now
from foundation.pages import Form, show, typed
from foundation.problems import FieldError, Invalid, NotFound, Problem
from tenancy.engine.roles import Permission, Role
from tenancy.models import RoleBinding, Tenant
from tenancy.operations import Until, bind_role, change_binding, unbind_role
from tenancy.queries import Actor, bindings_at, permissions_at, tenant_by_id, visible_tenants

from .doors import action, page
from .lists import holder_of, roles_within
from .tenants import LASTS, show_tenant

KEEP = "keep"
CONTROLS = {"user": "user", "role": "role", "expires_at": "days"}


@dataclass(frozen=True, slots=True)
class BindingPage:
    tenant: Tenant
    binding: RoleBinding
    who: str
    form: Form
    roles: Sequence[tuple[str, str]]
    lasts: Sequence[tuple[str, str]]


@action
def bind(request: HttpRequest, actor: Actor, tenant_id: UUID) -> HttpResponse:
    """Gives a member a role."""
    tenant = tenant_by_id(actor, tenant_id, Permission.MANAGE_TENANTS)
    values = typed(request)
    try:
        role, ends = role_and_end(values)
        user = values.get("user", "").strip()
        if not user:
            raise Invalid.field("user", "required", "the email of a member")
        made = bind_role(actor, tenant_id, role=role, user=user, expires_at=ends)
    except Problem as problem:
        form = Form.refused(values, problem, CONTROLS)
        return show_tenant(request, actor, tenant, form, status=problem.status)
    messages.success(request, f"{holder_of(made)} has the role {made.role} at {tenant.path} and below.")
    return redirect("tenant", tenant_id)


@page
def binding(request: HttpRequest, actor: Actor, tenant_id: UUID, binding_id: UUID) -> HttpResponse:
    """The form that changes a role or its end."""
    tenant = tenant_by_id(actor, tenant_id, Permission.MANAGE_TENANTS)
    bound = bindings_at(tenant).filter(id=binding_id).first()
    if bound is None:
        raise NotFound
    if request.method != "POST":
        return _show(request, actor, bound, Form(values={"role": bound.role, "days": KEEP}))
    values = typed(request)
    try:
        is_kept = values.get("days") == KEEP
        role, ends = role_and_end({**values, "days": ""} if is_kept else values)
        changed = change_binding(actor, tenant_id, binding_id, role=role, until=None if is_kept else Until(ends))
    except Problem as problem:
        return _show(request, actor, bound, Form.refused(values, problem, CONTROLS), status=problem.status)
    messages.success(request, f"{holder_of(changed)} now has the role {changed.role} at {tenant.path}.")
    return _back(actor, tenant)


@action
def unbind(request: HttpRequest, actor: Actor, tenant_id: UUID, binding_id: UUID) -> HttpResponse:
    """Takes a role away."""
    tenant = tenant_by_id(actor, tenant_id, Permission.MANAGE_TENANTS)
    try:
        unbind_role(actor, tenant_id, binding_id)
    except Problem as problem:
        if isinstance(problem, NotFound):
            raise
        return show_tenant(request, actor, tenant, Form(problem=problem.detail), status=problem.status)
    messages.success(request, "The role is taken away, from the next request on.")
    return _back(actor, tenant)


def role_and_end(values: dict[str, str]) -> tuple[Role, datetime | None]:
    """The chosen role and when it ends. Raises Invalid."""
    errors = []
    if values.get("role") not in set(Role):
        errors.append(FieldError("role", "unknown_value", "one of the listed roles"))
    if values.get("days", "") not in dict(LASTS):
        errors.append(FieldError("expires_at", "out_of_range", "one of the listed times"))
    if errors:
        raise Invalid(errors=errors)
    days = values.get("days")
    return Role(values["role"]), now() + timedelta(days=int(days)) if days else None


def _show(request: HttpRequest, actor: Actor, bound: RoleBinding, form: Form, *, status: int = 200) -> HttpResponse:
    lasts = [(KEEP, "unchanged"), *LASTS]
    own = permissions_at(actor, bound.tenant)
    shown = BindingPage(bound.tenant, bound, holder_of(bound), form, roles_within(own), lasts)
    return show(request, "tenancy/binding.html", shown, status=status)


def _back(actor: Actor, tenant: Tenant) -> HttpResponse:
    """To the tenant, if the actor still sees it."""
    return (
        redirect("tenant", tenant.id) if visible_tenants(actor).filter(id=tenant.id).exists() else redirect("tenants")
    )
