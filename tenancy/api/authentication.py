"""Authentication of the caller: a bearer token or the web session."""

import hashlib
import re

from django.conf import settings
from drf_spectacular.extensions import OpenApiAuthenticationExtension
from rest_framework.authentication import BaseAuthentication, SessionAuthentication
from rest_framework.exceptions import PermissionDenied as DrfPermissionDenied
from rest_framework.request import Request

from foundation.clock import now
from foundation.problems import NotAuthenticated, PermissionDenied
from foundation.requests import KNOWN_CALLER
from tenancy.models import ApiToken, User
from tenancy.operations import note_token_use
from tenancy.queries import token_of

SECRET = re.compile(r"swy_[A-Za-z0-9_-]{20,100}")


class TokenAuthentication(BaseAuthentication):
    """`Authorization: Bearer swy_…`. One query finds the token and its user."""

    def authenticate(self, request: Request) -> tuple[User, ApiToken] | None:
        scheme, _, secret = request.META.get("HTTP_AUTHORIZATION", "").partition(" ")
        if not scheme:
            return None
        if scheme.lower() != "bearer" or not SECRET.fullmatch(secret.strip()):
            raise NotAuthenticated
        digest = hashlib.sha256(secret.strip().encode()).digest()
        token = token_of(digest)
        if token is None or token.revoked_at is not None or not token.user.is_active:
            raise NotAuthenticated("This token is not valid.")
        if token.expires_at is not None and token.expires_at <= now():
            raise NotAuthenticated("This token is not valid.")
        note_token_use(token)
        request.META[KNOWN_CALLER] = True
        return token.user, token

    def authenticate_header(self, request: Request) -> str:
        return 'Bearer realm="switchyard"'


class WebSession(SessionAuthentication):
    """The browser's session, with CSRF enforced on every unsafe method."""

    def enforce_csrf(self, request: Request) -> None:
        try:
            super().enforce_csrf(request)
        except DrfPermissionDenied:
            raise PermissionDenied("The CSRF token is missing or wrong.", code="csrf_failed") from None


class TokenScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    """How the schema describes tokens."""

    target_class = TokenAuthentication
    name = "token"

    def get_security_definition(self, auto_schema: object) -> dict[str, str]:
        return {"type": "http", "scheme": "bearer", "bearerFormat": "swy_…"}


class SessionScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    """How the schema describes the web session."""

    target_class = WebSession
    name = "session"

    def get_security_definition(self, auto_schema: object) -> dict[str, str]:
        return {"type": "apiKey", "in": "cookie", "name": settings.SESSION_COOKIE_NAME}
