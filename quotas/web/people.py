"""Setting and removing limits on each user and on submission."""

from dataclasses import dataclass
from uuid import UUID

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect

from foundation.pages import Form, asked, show, typed
from foundation.problems import Invalid, Problem
from quotas.engine.amounts import BadAmount, format_amount, parse_amount
from quotas.operations import delete_submission_limit, delete_user_limit, put_submission_limit, put_user_limit
from quotas.queries import submission_limit_by_id, user_limit_by_id
from tenancy.queries import Actor, first_choice, tenant_choices
from tenancy.web import action, page

from .lists import editable_tenants
from .pages import RESOURCES, limit_id_of


@dataclass(frozen=True, slots=True)
class PeopleEditPage:
    form: Form
    tenants: tuple[tuple[str, str], ...]
    resources: tuple[tuple[str, str], ...]
    limit_id: UUID | None


@page(takes=("limit", "tenant"))
def edit_user_limit(request: HttpRequest, actor: Actor) -> HttpResponse:
    """The form that sets a limit on each user, filled from an existing one when `limit` names it."""
    limit_id = limit_id_of(request.GET.get("limit", ""))
    if request.method != "POST":
        return _form(request, actor, "user_limit", Form(values=_user_values(request, actor, limit_id)), limit_id)
    values = typed(request)
    try:
        path, resource = _tenant_of(values), values.get("resource", "").strip()
        most = _amount(resource, values.get("most", "").strip())
        limit, is_new = put_user_limit(actor, path, resource, most=most)
    except Problem as problem:
        form = Form.refused(values, problem, {name: name for name in ("tenant", "resource", "most")})
        return _form(request, actor, "user_limit", form, limit_id, status=problem.status)
    verb = "set" if is_new else "changed"
    messages.success(request, f"The limit on {limit.resource} of each user of {limit.tenant.path} is {verb}.")
    return redirect("quotas")


@page(takes=("limit", "tenant"))
def edit_submission_limit(request: HttpRequest, actor: Actor) -> HttpResponse:
    """The form that sets a limit on submission, filled from an existing one when `limit` names it."""
    limit_id = limit_id_of(request.GET.get("limit", ""))
    if request.method != "POST":
        values = _submission_values(request, actor, limit_id)
        return _form(request, actor, "submission_limit", Form(values=values), limit_id)
    values = typed(request)
    names = ("most_waiting", "jobs_per_minute")
    try:
        path = _tenant_of(values)
        most_waiting, jobs_per_minute = (_number(name, values.get(name, "").strip()) for name in names)
        limit, is_new = put_submission_limit(actor, path, most_waiting=most_waiting, jobs_per_minute=jobs_per_minute)
    except Problem as problem:
        form = Form.refused(values, problem, {name: name for name in ("tenant", *names)})
        return _form(request, actor, "submission_limit", form, limit_id, status=problem.status)
    verb = "set" if is_new else "changed"
    messages.success(request, f"The limit on submission of {limit.tenant.path} is {verb}.")
    return redirect("quotas")


@action
def remove_user_limit(request: HttpRequest, actor: Actor, limit_id: UUID) -> HttpResponse:
    """Removes a limit on each user, then redirects to the tree."""
    delete_user_limit(actor, limit_id)
    messages.success(request, "The limit is removed.")
    return redirect("quotas")


@action
def remove_submission_limit(request: HttpRequest, actor: Actor, limit_id: UUID) -> HttpResponse:
    """Removes a limit on submission, then redirects to the tree."""
    delete_submission_limit(actor, limit_id)
    messages.success(request, "The limit is removed.")
    return redirect("quotas")


def _form(
    request: HttpRequest, actor: Actor, what: str, form: Form, limit_id: UUID | None, *, status: int = 200
) -> HttpResponse:
    tenants = tenant_choices(editable_tenants(actor), form.values.get("tenant", ""))
    shown = PeopleEditPage(form=form, tenants=tenants, resources=RESOURCES, limit_id=limit_id)
    return show(request, f"quotas/{what}.html", shown, status=status)


def _tenant_of(values: dict[str, str]) -> str:
    if not values.get("tenant"):
        raise Invalid.field("tenant", "required", "choose a tenant")
    return values["tenant"].strip()


def _amount(resource: str, text: str) -> int:
    try:
        return parse_amount(resource, text)
    except BadAmount as bad:
        raise Invalid.field("most", bad.code, str(bad)) from None


def _number(name: str, text: str) -> int | None:
    if not text:
        return None
    if not (text.isascii() and text.isdecimal() and len(text) < 16):  # noqa: PLR2004 - far more than any limit
        raise Invalid.field(name, "wrong_type", "a whole number, or nothing for no limit")
    return int(text)


def _user_values(request: HttpRequest, actor: Actor, limit_id: UUID | None) -> dict[str, str]:
    if limit_id is None:
        return {
            "resource": "jobs",
            "tenant": first_choice(editable_tenants(actor), asked=asked(request).get("tenant", "")),
        }
    limit = user_limit_by_id(actor, limit_id)
    most = format_amount(limit.resource, limit.most)
    return {"tenant": limit.tenant.path, "resource": limit.resource, "most": most}


def _submission_values(request: HttpRequest, actor: Actor, limit_id: UUID | None) -> dict[str, str]:
    if limit_id is None:
        return {"tenant": first_choice(editable_tenants(actor), asked=asked(request).get("tenant", ""))}
    limit = submission_limit_by_id(actor, limit_id)
    values = {"tenant": limit.tenant.path}
    for name, number in (("most_waiting", limit.most_waiting), ("jobs_per_minute", limit.jobs_per_minute)):
        values[name] = "" if number is None else str(number)
    return values
