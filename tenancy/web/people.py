"""The people of an organisation: members, invitations, and the actions for one of them."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.views.decorators.cache import never_cache

from foundation.clock import now
from foundation.pages import Form, show, typed
from foundation.problems import FieldError, Invalid, Problem
from tenancy.engine.roles import GRANTS, Permission, Role
from tenancy.models import OneTimeLink, RoleBinding, Tenant, User
from tenancy.operations import end_sessions, invite, make_link, remove_member, withdraw_invitation
from tenancy.queries import (
    Actor,
    administers,
    may_help,
    organisations_of,
    pending_invitations,
    permissions_at,
    person_by_id,
    tenant_by_id,
)

from .doors import action, page
from .links import link_to
from .lists import live_tokens_of

MOST_SHOWN = 500
LASTS = (("", "never"), ("7", "7 days"), ("30", "30 days"), ("90", "90 days"), ("365", "a year"))


@dataclass(frozen=True, slots=True)
class MemberRow:
    id: UUID
    email: str
    display_name: str
    is_active: bool
    roles: tuple[tuple[str, str], ...]
    """(role, path) for each in this organisation."""


@dataclass(frozen=True, slots=True)
class PeoplePage:
    """`link` is set only in the response to the request that created it."""

    tenant: Tenant
    organisation: Tenant
    members: tuple[MemberRow, ...]
    is_cut: bool
    invitations: tuple[OneTimeLink, ...]
    roles: Sequence[tuple[str, str]]
    may_remove: bool
    form: Form
    link: str = ""
    link_for: str = ""
    lasts: Sequence[tuple[str, str]] = LASTS


@dataclass(frozen=True, slots=True)
class PersonPage:
    """`link` is set only in the response to the request that created it."""

    person: User
    organisations: tuple[Tenant, ...]
    may_help: bool
    is_self: bool
    tokens: int
    live_link: OneTimeLink | None
    link: str = ""


@never_cache
@page
def people(request: HttpRequest, actor: Actor, tenant_id: UUID) -> HttpResponse:
    """Members and pending invitations; posting invites a person and shows the link once."""
    tenant = tenant_by_id(actor, tenant_id, Permission.MANAGE_TENANTS)
    if request.method != "POST":
        return _show_people(request, actor, tenant, Form())
    values = typed(request)
    try:
        role, ends = _wishes(values)
        made, secret = invite(actor, tenant.id, email=values.get("email", ""), role=role, expires_at=ends)
    except Problem as problem:
        form = Form.refused(values, problem, {"email": "email", "role": "role", "expires_at": "days"})
        return _show_people(request, actor, tenant, form, status=problem.status)
    return _show_people(request, actor, tenant, Form(), link=_address(request, secret), link_for=made.email)


@action
def withdraw(request: HttpRequest, actor: Actor, tenant_id: UUID, invitation_id: UUID) -> HttpResponse:
    """Ends an invitation immediately."""
    withdraw_invitation(actor, tenant_id, invitation_id)
    messages.success(request, "The invitation is withdrawn; its link no longer works.")
    return redirect("people", tenant_id)


@action
def remove(request: HttpRequest, actor: Actor, tenant_id: UUID, person_id: UUID) -> HttpResponse:
    """Removes a person from the organisation."""
    remove_member(actor, tenant_id, person_id)
    messages.success(request, "They are no longer a member of the organisation and have no roles in it.")
    return redirect("tenants") if person_id == actor.user_id else redirect("people", tenant_id)


@page
def person(request: HttpRequest, actor: Actor, person_id: UUID) -> HttpResponse:
    """One person, and what the viewer may do for them."""
    return _show_person(request, actor, person_by_id(actor, person_id))


@never_cache
@action
def link_for_person(request: HttpRequest, actor: Actor, person_id: UUID) -> HttpResponse:
    """Creates a one-time link to set a password, and shows it once."""
    _, secret = make_link(actor, person_id)
    return _show_person(request, actor, person_by_id(actor, person_id), link=_address(request, secret))


@action
def end_sessions_of(request: HttpRequest, actor: Actor, person_id: UUID) -> HttpResponse:
    """Signs the person out everywhere."""
    revoked = end_sessions(actor, person_id, with_tokens=bool(request.POST.get("tokens")))
    messages.success(request, f"They are signed out everywhere. API tokens revoked: {revoked}.")
    return redirect("person", person_id)


def _address(request: HttpRequest, secret: str) -> str:
    return link_to(request.build_absolute_uri("/"), secret)


def _wishes(values: dict[str, str]) -> tuple[Role, datetime | None]:
    errors = []
    if values.get("role") not in set(Role):
        errors.append(FieldError("role", "unknown_value", "one of the listed roles"))
    if values.get("days", "") not in dict(LASTS):
        errors.append(FieldError("expires_at", "out_of_range", "one of the listed times"))
    if errors:
        raise Invalid(errors=errors)
    days = values.get("days")
    return Role(values["role"]), now() + timedelta(days=int(days)) if days else None


def _show_people(  # noqa: PLR0913 - what the page shows
    request: HttpRequest,
    actor: Actor,
    tenant: Tenant,
    form: Form,
    *,
    link: str = "",
    link_for: str = "",
    status: int = 200,
) -> HttpResponse:
    organisation = Tenant.objects.get(path=tenant.path_prefixes[0])
    own = permissions_at(actor, tenant)
    members = _members(organisation)
    shown = PeoplePage(
        tenant=tenant,
        organisation=organisation,
        members=members[:MOST_SHOWN],
        is_cut=len(members) > MOST_SHOWN,
        invitations=tuple(pending_invitations(tenant).order_by("-id")[:MOST_SHOWN]),
        roles=[(role.value, role.value) for role in Role if GRANTS[role] <= own],
        may_remove=tenant == organisation and administers(actor, organisation),
        form=form,
        link=link,
        link_for=link_for,
    )
    return show(request, "tenancy/people.html", shown, status=status)


def _members(organisation: Tenant) -> tuple[MemberRow, ...]:
    """One more than displayed, so that the page can say that there are more."""
    users = User.objects.filter(memberships__organisation=organisation).order_by("email")[: MOST_SHOWN + 1]
    roles: dict[UUID, list[tuple[str, str]]] = {}
    bindings = RoleBinding.objects.filter(organisation=organisation, user__in=[user.id for user in users])
    for user_id, role, path in bindings.values_list("user_id", "role", "tenant__path").order_by("tenant__path", "role"):
        assert user_id is not None
        roles.setdefault(user_id, []).append((role, path))
    return tuple(
        MemberRow(user.id, user.email, user.display_name, user.is_active, tuple(roles.get(user.id, ())))
        for user in users
    )


def _show_person(request: HttpRequest, actor: Actor, person: User, *, link: str = "") -> HttpResponse:
    live = OneTimeLink.objects.filter(user=person, used_at__isnull=True, ended_at__isnull=True, expires_at__gt=now())
    helps = may_help(actor, person)
    shown = PersonPage(
        person=person,
        organisations=tuple(organisations_of(actor, person)),
        may_help=helps,
        is_self=person.id == actor.user_id,
        tokens=live_tokens_of(person) if helps else 0,
        live_link=live.first() if helps else None,
        link=link,
    )
    return show(request, "tenancy/person.html", shown)
