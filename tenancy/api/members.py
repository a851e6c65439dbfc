"""/people, and the invitations and members of tenants."""

from typing import Any
from uuid import UUID

from django.db.models import Prefetch
from django.urls import reverse
from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from foundation.problems import NotFound
from foundation.schema import page_shape
from tenancy.engine.roles import Permission, Role
from tenancy.models import OneTimeLink, User
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
    memberships_known,
    pending_invitations,
    person_by_id,
    tenant_by_id,
    tenant_named,
    visible_people,
)

from .shapes import (
    CreatedInvitationShape,
    CreatedLinkShape,
    EndedShape,
    EndSessionsShape,
    InvitationShape,
    LinkShape,
    NewInvitationShape,
    NoFieldsShape,
    PersonShape,
)
from .views import ApiView

KNOWN = "memberships_known"
"""The attribute with a person's memberships that the caller may see."""
NEWEST_FIRST = {"-created": "-id", "created": "id"}


class People(ApiView):
    filters = ("organisation", "email")
    paged = True

    @extend_schema(responses=page_shape(PersonShape))
    def get(self, request: Request) -> Response:
        """Lists the people of the organisations in which you may bind roles, and you. `organisation` is a path or id."""
        known = Prefetch("memberships", memberships_known(self.actor), to_attr=KNOWN)
        rows = visible_people(self.actor).prefetch_related(known)
        if "email" in self.query:
            rows = rows.filter(email=self.query["email"].lower())
        if "organisation" in self.query:
            try:
                organisation = tenant_named(self.actor, self.query["organisation"])
            except NotFound:
                return self.page(rows.none(), orders=NEWEST_FIRST, render=_person)
            rows = rows.filter(memberships__organisation=organisation)
        return self.page(rows, orders=NEWEST_FIRST, render=_person)


class OnePerson(ApiView):
    @extend_schema(responses=PersonShape)
    def get(self, request: Request, person_id: UUID) -> Response:
        """Returns a person from that list; 404 for anyone else."""
        return Response(_one(self.actor, person_by_id(self.actor, person_id)))


class Links(ApiView):
    @extend_schema(request=NoFieldsShape, responses={201: CreatedLinkShape})
    def post(self, request: Request, person_id: UUID) -> Response:
        """Creates a one-time link with which the person sets a password. Only this answer shows it; earlier links end."""
        self.read(NoFieldsShape)
        person_by_id(self.actor, person_id)

        def produce() -> tuple[int, dict[str, Any]]:
            link, secret = make_link(self.actor, person_id)
            return 201, {**LinkShape(link).data, "link": _address(request, secret)}

        route = f"POST /people/{person_id}/links"
        return self.created(request, None, route, produce, shown_once=("link",))


class EndSessions(ApiView):
    @extend_schema(request=EndSessionsShape, responses=EndedShape)
    def post(self, request: Request, person_id: UUID) -> Response:
        """Ends all web sessions of the person immediately. With `tokens`, also revokes their tokens, except the one you use."""
        fields = self.read(EndSessionsShape)
        return Response({"tokens_revoked": end_sessions(self.actor, person_id, with_tokens=fields["tokens"])})


class Deactivation(ApiView):
    @extend_schema(request=NoFieldsShape, responses=PersonShape)
    def post(self, request: Request, person_id: UUID) -> Response:
        """Ends the person's access: no sign-in, and all sessions, tokens and links end permanently. Harmless if repeated."""
        self.read(NoFieldsShape)
        return Response(_one(self.actor, deactivate_person(self.actor, person_id)))


class Activation(ApiView):
    @extend_schema(request=NoFieldsShape, responses=PersonShape)
    def post(self, request: Request, person_id: UUID) -> Response:
        """Lets a deactivated person sign in again. What ended, remains ended. Harmless if repeated."""
        self.read(NoFieldsShape)
        return Response(_one(self.actor, activate_person(self.actor, person_id)))


class Invitations(ApiView):
    paged = True

    @extend_schema(responses=page_shape(InvitationShape))
    def get(self, request: Request, tenant_id: UUID) -> Response:
        """Lists the invitations to this tenant, not to others below it, that can still be accepted."""
        tenant = tenant_by_id(self.actor, tenant_id, Permission.MANAGE_TENANTS)
        return self.page(pending_invitations(tenant), orders=NEWEST_FIRST, render=_invitation)

    @extend_schema(request=NewInvitationShape, responses={201: CreatedInvitationShape})
    def post(self, request: Request, tenant_id: UUID) -> Response:
        """Invites an email address to a role. The answer does not reveal whether it has an account. Only it shows the `link`."""
        fields = self.read(NewInvitationShape)
        tenant = tenant_by_id(self.actor, tenant_id, Permission.MANAGE_TENANTS)
        fields["role"] = Role(fields["role"])

        def produce() -> tuple[int, dict[str, Any]]:
            link, secret = invite(self.actor, tenant.id, **fields)
            return 201, {**_invitation(link), "link": _address(request, secret)}

        return self.created(request, tenant.id, "POST /tenants/{id}/invitations", produce, shown_once=("link",))


class OneInvitation(ApiView):
    @extend_schema(responses=InvitationShape)
    def get(self, request: Request, tenant_id: UUID, invitation_id: UUID) -> Response:
        """Returns an invitation that can still be accepted."""
        tenant = tenant_by_id(self.actor, tenant_id, Permission.MANAGE_TENANTS)
        link = pending_invitations(tenant).filter(id=invitation_id).first()
        if link is None:
            raise NotFound
        return Response(_invitation(link))

    @extend_schema(responses={204: None})
    def delete(self, request: Request, tenant_id: UUID, invitation_id: UUID) -> Response:
        """Withdraws an invitation: its link no longer works."""
        withdraw_invitation(self.actor, tenant_id, invitation_id)
        return Response(status=204)


class OneMember(ApiView):
    @extend_schema(responses={204: None})
    def delete(self, request: Request, tenant_id: UUID, person_id: UUID) -> Response:
        """Removes the person and all their roles from the organisation, immediately."""
        remove_member(self.actor, tenant_id, person_id)
        return Response(status=204)


def _one(actor: Actor, person: User) -> dict[str, Any]:
    setattr(person, KNOWN, list(memberships_known(actor).filter(user=person)))
    return _person(person)


def _person(person: User) -> dict[str, Any]:
    organisations = [membership.organisation.path for membership in getattr(person, KNOWN)]
    return dict(PersonShape({"person": person, "organisations": organisations}).data)


def _invitation(link: OneTimeLink) -> dict[str, Any]:
    return dict(InvitationShape(link).data)


def _address(request: Request, secret: str) -> str:
    """The secret follows the `#`, which browsers never send to a server."""
    return f"{request.build_absolute_uri(reverse('link'))}#{secret}"
