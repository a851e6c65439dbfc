"""The people of an organisation: members, invitations, and the actions for one of them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.views.decorators.cache import never_cache

from foundation.clock import now
from foundation.pages import Form, asked, show, typed
from foundation.paging import page_of
from foundation.problems import NotFound, Problem
from tenancy.engine.roles import Permission
from tenancy.models import OneTimeLink, RoleBinding, Tenant, User
from tenancy.operations import (
    activate_person,
    deactivate_person,
    end_sessions,
    invite,
    make_link,
    remove_member,
    withdraw_invitation,
)
from tenancy.queries import (
    Actor,
    administers,
    may_help,
    organisations_of,
    pending_invitations,
    permissions_at,
    person_by_id,
    tenant_by_id,
    visible_tenants,
)

from .doors import action, page
from .links import link_to
from .lists import PAGE_SIZE, live_tokens_of, roles_within
from .roles import role_and_end
from .tenants import LASTS

MOST_INVITATIONS = 200
NO_PROBLEM = Form()


@dataclass(frozen=True, slots=True)
class MemberRow:
    id: UUID
    email: str
    display_name: str
    is_active: bool
    roles: tuple[tuple[str, str], ...]
    """(role, path) for each in this organisation."""


@dataclass(frozen=True, slots=True)
class RoleRow:
    """A role of a person; `tenant_id` only if the viewer may open that tenant."""

    role: str
    path: str
    tenant_id: UUID | None
    expires_at: datetime | None


@dataclass(frozen=True, slots=True)
class PeoplePage:
    """`link` is set only in the response to the request that created it."""

    tenant: Tenant
    organisation: Tenant
    members: tuple[MemberRow, ...]
    next: str | None
    is_later: bool
    search: Form
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
    roles: tuple[RoleRow, ...]
    may_help: bool
    is_self: bool
    tokens: int
    live_link: OneTimeLink | None
    link: str = ""
    problem: Form = NO_PROBLEM


@never_cache
@page(takes=("q", "cursor"))
def people(request: HttpRequest, actor: Actor, tenant_id: UUID) -> HttpResponse:
    """Members and pending invitations; posting invites a person and shows the link once."""
    tenant = tenant_by_id(actor, tenant_id, Permission.MANAGE_TENANTS)
    if request.method != "POST":
        return _show_people(request, actor, tenant, Form())
    values = typed(request)
    try:
        role, ends = role_and_end(values)
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


@action
def deactivate(request: HttpRequest, actor: Actor, person_id: UUID) -> HttpResponse:
    """Ends the person's access."""
    return _set_active(
        request, actor, person_id, deactivate_person, "They cannot sign in, and their tokens are revoked."
    )


@action
def activate(request: HttpRequest, actor: Actor, person_id: UUID) -> HttpResponse:
    """Restores the person's access."""
    return _set_active(request, actor, person_id, activate_person, "They can sign in again.")


def _set_active(
    request: HttpRequest, actor: Actor, person_id: UUID, act: Callable[[Actor, UUID], User], done: str
) -> HttpResponse:
    try:
        act(actor, person_id)
    except Problem as problem:
        if isinstance(problem, NotFound):
            raise
        person, form = person_by_id(actor, person_id), Form(problem=problem.detail)
        return _show_person(request, actor, person, problem=form, status=problem.status)
    messages.success(request, done)
    return redirect("person", person_id)


def _address(request: HttpRequest, secret: str) -> str:
    return link_to(request.build_absolute_uri("/"), secret)


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
    q = request.GET.get("q", "").replace("\x00", "").strip().lower()
    members, following = _members(actor, organisation, q, asked(request))
    shown = PeoplePage(
        tenant=tenant,
        organisation=organisation,
        members=members,
        next=following,
        is_later=bool(request.GET.get("cursor")),
        search=Form(values={"q": q}),
        invitations=tuple(pending_invitations(tenant).order_by("-id")[:MOST_INVITATIONS]),
        roles=roles_within(own),
        may_remove=tenant == organisation and administers(actor, organisation),
        form=form,
        link=link,
        link_for=link_for,
    )
    return show(request, "tenancy/people.html", shown, status=status)


def _members(
    actor: Actor, organisation: Tenant, q: str, query: Mapping[str, str]
) -> tuple[tuple[MemberRow, ...], str | None]:
    """A page of members by email, with all their roles in the organisation. `q` is part of an email."""
    users = User.objects.filter(memberships__organisation=organisation)
    found = page_of(
        users.filter(email__contains=q) if q else users,
        {"limit": PAGE_SIZE, **({"cursor": query["cursor"]} if query.get("cursor") else {})},
        orders={"email": "email"},
        scope=f"people-page|{actor.user_id}|{organisation.id}|{q}",
        render=lambda user: user,
    )
    shown: list[User] = found["items"]
    roles: dict[UUID, list[tuple[str, str]]] = {}
    bindings = RoleBinding.objects.filter(organisation=organisation, user__in=[user.id for user in shown])
    for user_id, role, path in bindings.values_list("user_id", "role", "tenant__path").order_by("tenant__path", "role"):
        assert user_id is not None
        roles.setdefault(user_id, []).append((role, path))
    rows = (
        MemberRow(user.id, user.email, user.display_name, user.is_active, tuple(roles.get(user.id, ())))
        for user in shown
    )
    return tuple(rows), found["next"]


def _roles(actor: Actor, person: User, organisations: Sequence[Tenant]) -> tuple[RoleRow, ...]:
    """The person's own roles in those organisations."""
    bindings = RoleBinding.objects.filter(user=person, organisation__in=organisations)
    rows = list(bindings.select_related("tenant").order_by("tenant__path", "role"))
    opens = set(visible_tenants(actor).filter(id__in=[row.tenant_id for row in rows]).values_list("id", flat=True))
    return tuple(
        RoleRow(row.role, row.tenant.path, row.tenant_id if row.tenant_id in opens else None, row.expires_at)
        for row in rows
    )


def _show_person(
    request: HttpRequest, actor: Actor, person: User, *, link: str = "", problem: Form = NO_PROBLEM, status: int = 200
) -> HttpResponse:
    live = OneTimeLink.objects.filter(user=person, used_at__isnull=True, ended_at__isnull=True, expires_at__gt=now())
    helps = may_help(actor, person)
    organisations = tuple(organisations_of(actor, person))
    shown = PersonPage(
        person=person,
        organisations=organisations,
        roles=_roles(actor, person, organisations),
        may_help=helps,
        is_self=person.id == actor.user_id,
        tokens=live_tokens_of(person) if helps else 0,
        live_link=live.first() if helps else None,
        link=link,
        problem=problem,
    )
    return show(request, "tenancy/person.html", shown, status=status)
