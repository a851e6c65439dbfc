"""Setting and removing what a priority class may hold at a tenant."""

from dataclasses import dataclass
from uuid import UUID

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect

from federation.operations.class_limits import put_tenant_class_limit
from federation.queries.priority_classes import visible_classes
from foundation.pages import Form, asked, show, typed
from foundation.problems import Invalid, Problem
from quotas.engine.amounts import BadAmount, format_amount, parse_amount
from quotas.operations import delete_class_limit
from quotas.queries import class_limit_by_id
from quotas.web.lists import editable_tenants
from quotas.web.pages import RESOURCES, limit_id_of
from tenancy.queries import Actor, first_choice, tenant_choices
from tenancy.web import action, page

from .jobs import Options

NAMES = ("tenant", "priority_class", "resource", "most")


@dataclass(frozen=True, slots=True)
class ClassLimitPage:
    """`limit_id` is the limit that the form changes; None for a new one."""

    form: Form
    tenants: Options
    classes: Options
    resources: Options
    limit_id: UUID | None


@page(takes=("limit", "tenant"))
def edit(request: HttpRequest, actor: Actor) -> HttpResponse:
    """The form that sets a limit of a class at a tenant, filled from an existing one when `limit` names it."""
    limit_id = limit_id_of(request.GET.get("limit", ""))
    if request.method != "POST":
        return _form(request, actor, Form(values=_values(request, actor, limit_id)), limit_id)
    values = typed(request)
    path, name, resource, most = (values.get(field, "").strip() for field in NAMES)
    try:
        if not path:
            raise Invalid.field("tenant", "required", "choose a tenant")
        limit, is_new = put_tenant_class_limit(actor, path, name, resource, most=_amount(resource, most))
    except Problem as problem:
        form = Form.refused(values, problem, {field: field for field in NAMES})
        return _form(request, actor, form, limit_id, status=problem.status)
    verb = "set" if is_new else "changed"
    messages.success(request, f"The limit on {limit.resource} of the class {limit.class_name} in {path} is {verb}.")
    return redirect("quotas")


@action
def remove(request: HttpRequest, actor: Actor, limit_id: UUID) -> HttpResponse:
    """Removes a limit of a class at a tenant, then redirects to the quotas."""
    delete_class_limit(actor, limit_id)
    messages.success(request, "The limit is removed.")
    return redirect("quotas")


def _form(request: HttpRequest, actor: Actor, form: Form, limit_id: UUID | None, *, status: int = 200) -> HttpResponse:
    names = visible_classes(actor).order_by("-value", "name").values_list("name", flat=True)
    shown = ClassLimitPage(
        form=form,
        tenants=tenant_choices(editable_tenants(actor), form.values.get("tenant", "")),
        classes=tuple((name, name) for name in names),
        resources=RESOURCES,
        limit_id=limit_id,
    )
    return show(request, "federation/class_limit.html", shown, status=status)


def _amount(resource: str, text: str) -> int:
    try:
        return parse_amount(resource, text)
    except BadAmount as bad:
        raise Invalid.field("most", bad.code, str(bad)) from None


def _values(request: HttpRequest, actor: Actor, limit_id: UUID | None) -> dict[str, str]:
    if limit_id is None:
        tenant = first_choice(editable_tenants(actor), asked=asked(request).get("tenant", ""))
        return {"resource": "jobs", "tenant": tenant}
    limit = class_limit_by_id(actor, limit_id)
    assert limit.tenant is not None
    most = format_amount(limit.resource, limit.most)
    return {
        "tenant": limit.tenant.path,
        "priority_class": limit.class_name,
        "resource": limit.resource,
        "most": most,
    }
