"""API tokens and the audit trail."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from uuid import UUID

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.views.decorators.cache import never_cache

from foundation.clock import now
from foundation.pages import Form, asked, show, typed
from foundation.problems import FieldError, Invalid, Problem
from tenancy.engine.roles import Scope
from tenancy.operations import create_token, revoke_token
from tenancy.operations.tokens import USUAL_DAYS
from tenancy.queries import Actor

from .doors import action, page
from .lists import AuditPage, TokenRow, audit_page, tokens_of

SCOPES = (
    ("write", "read, and run jobs"),
    ("read", "read only"),
    ("admin", "all my permissions"),
)
DEFAULTS = {"scope": "write", "days": str(USUAL_DAYS)}
LIFETIMES = (("30", "30 days"), ("7", "7 days"), ("90", "90 days"), ("365", "a year"), ("", "never"))
MAX_NAME = 100


@dataclass(frozen=True, slots=True)
class TokensPage:
    """`secret` is set only in the response to the request that created it."""

    tokens: tuple[TokenRow, ...]
    form: Form
    secret: str = ""
    secret_name: str = ""
    scopes: Sequence[tuple[str, str]] = SCOPES
    lifetimes: Sequence[tuple[str, str]] = LIFETIMES


@dataclass(frozen=True, slots=True)
class TrailPage:
    entries: AuditPage
    form: Form
    is_later: bool


@never_cache
@page
def tokens(request: HttpRequest, actor: Actor) -> HttpResponse:
    """The viewer's own tokens; creating one shows its secret once."""
    if request.method != "POST":
        return show(request, "tenancy/tokens.html", TokensPage(tokens_of(actor), Form(values=DEFAULTS)))
    values = typed(request)
    try:
        name, scope, days = _token_wishes(values)
        ends = None if days is None else now() + timedelta(days=days)
        token, secret = create_token(actor, name=name, scopes=[scope], expires_at=ends)
    except Problem as problem:
        form = Form.refused(values, problem, {"name": "name", "scope": "scope", "expires_at": "days"})
        return show(request, "tenancy/tokens.html", TokensPage(tokens_of(actor), form), status=problem.status)
    made = TokensPage(tokens_of(actor), Form(values=DEFAULTS), secret=secret, secret_name=token.name)
    return show(request, "tenancy/tokens.html", made)


@action
def revoke(request: HttpRequest, actor: Actor, token_id: UUID) -> HttpResponse:
    """Revokes a token of the viewer immediately."""
    revoke_token(actor, token_id)
    messages.success(request, "The token is revoked and no longer works.")
    return redirect("tokens")


@page(takes=("actor", "action", "object", "cursor"))
def audit(request: HttpRequest, actor: Actor) -> HttpResponse:
    """The trail of the tenants where the viewer may read it, newest first."""
    entries = audit_page(actor, asked(request))
    return show(
        request,
        "tenancy/audit.html",
        TrailPage(entries, Form(values=entries.filters), bool(request.GET.get("cursor"))),
    )


def _token_wishes(values: dict[str, str]) -> tuple[str, Scope, int | None]:
    name = values.get("name", "").strip()
    errors = []
    if not name or len(name) > MAX_NAME:
        errors.append(FieldError("name", "out_of_range", f"a name of 1 to {MAX_NAME} characters"))
    if values.get("scope") not in set(Scope):
        errors.append(FieldError("scope", "unknown_scope", "one of the listed permissions"))
    if values.get("days") not in dict(LIFETIMES):
        errors.append(FieldError("expires_at", "out_of_range", "one of the listed times"))
    if errors:
        raise Invalid(errors=errors)
    return name, Scope(values["scope"]), int(values["days"]) if values["days"] else None
