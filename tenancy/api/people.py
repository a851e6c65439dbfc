"""/me and /tokens: the caller's account. /audit: the audit trail."""

from typing import Any
from uuid import UUID

from django.db.models import Q, QuerySet
from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from foundation.problems import Invalid, NotFound
from foundation.schema import page_shape
from tenancy.engine.roles import Permission, Scope
from tenancy.models import ApiToken, AuditEntry, User
from tenancy.operations import create_token, revoke_token
from tenancy.queries import audit_trail, bindings_of, tenant_named, tokens_of

from .shapes import AuditEntryShape, CreatedTokenShape, MeShape, NewTokenShape, TokenShape
from .views import ApiView

NEWEST_FIRST = {"-created": "-id", "created": "id"}


class Me(ApiView):
    @extend_schema(responses=MeShape)
    def get(self, request: Request) -> Response:
        """Returns your account, your roles by tenant, and what your token allows."""
        user, token = request.user, request.auth
        assert isinstance(user, User)
        roles = [
            {
                "tenant": binding.tenant.path,
                "tenant_id": binding.tenant_id,
                "role": binding.role,
                "group": binding.group.name if binding.group else None,
                "expires_at": binding.expires_at,
            }
            for binding in bindings_of(self.actor)
        ]
        me = {"user": _me(user), "roles": roles, "token": token if isinstance(token, ApiToken) else None}
        return Response(MeShape(me).data)


class Tokens(ApiView):
    paged = True

    @extend_schema(responses=page_shape(TokenShape))
    def get(self, request: Request) -> Response:
        """Lists your tokens, without their secrets."""
        return self.page(tokens_of(self.actor), orders=NEWEST_FIRST, render=lambda token: TokenShape(token).data)

    @extend_schema(request=NewTokenShape, responses={201: CreatedTokenShape})
    def post(self, request: Request) -> Response:
        """Creates a token that acts for you. Only this answer shows its secret; a repeated request gets null instead."""
        fields = self.read(NewTokenShape)
        fields["scopes"] = [Scope(word) for word in fields["scopes"]]

        def produce() -> tuple[int, dict[str, Any]]:
            token, secret = create_token(self.actor, **fields)
            return 201, {**TokenShape(token).data, "secret": secret}

        return self.created(request, None, "POST /tokens", produce, shown_once=("secret",))


class OneToken(ApiView):
    @extend_schema(responses=TokenShape)
    def get(self, request: Request, token_id: UUID) -> Response:
        """Returns one of your tokens, without its secret."""
        token = tokens_of(self.actor).filter(id=token_id).first()
        if token is None:
            raise NotFound
        return Response(TokenShape(token).data)

    @extend_schema(responses={204: None})
    def delete(self, request: Request, token_id: UUID) -> Response:
        """Revokes the token immediately."""
        revoke_token(self.actor, token_id)
        return Response(status=204)


class Audit(ApiView):
    filters = ("actor", "object", "action", "tenant", "outcome")
    paged = True

    @extend_schema(responses=page_shape(AuditEntryShape))
    def get(self, request: Request) -> Response:
        """Lists audit entries, newest first: those of tenants whose audit trail you may view, and your own.

        `actor` is an email or id, `object` an id or a kind, `action` such as `tenant.create`, `tenant` a path.
        """
        rows = self._filtered(audit_trail(self.actor))
        return self.page(rows, orders=NEWEST_FIRST, render=lambda entry: AuditEntryShape(entry).data)

    def _filtered(self, rows: QuerySet[AuditEntry]) -> QuerySet[AuditEntry]:
        query = self.query
        if "actor" in query:
            rows = rows.filter(
                Q(actor_id=_uuid(query["actor"])) if _uuid(query["actor"]) else Q(actor_name=query["actor"])
            )
        if "object" in query:
            rows = rows.filter(Q(object_id=query["object"]) | Q(object_kind=query["object"]))
        if "action" in query:
            rows = rows.filter(action=query["action"])
        if "outcome" in query:
            if query["outcome"] not in {"done", "refused"}:
                raise Invalid.field("outcome", "invalid_choice", "done or refused")
            rows = rows.filter(outcome=query["outcome"])
        if "tenant" in query:
            try:
                tenant = tenant_named(self.actor, query["tenant"], Permission.VIEW_AUDIT)
            except NotFound:
                return rows.none()
            rows = rows.filter(tenant_id=tenant.id)
        return rows


def _me(user: User) -> dict[str, Any]:
    is_operator = user.is_staff or user.is_superuser
    return {"id": user.id, "email": user.email, "display_name": user.display_name, "is_operator": is_operator}


def _uuid(text: str) -> UUID | None:
    try:
        return UUID(text)
    except ValueError:
        return None
