"""Creates, uses and revokes API tokens. The secret is shown once; only its SHA-256 digest is stored."""

import hashlib
import secrets
from collections.abc import Collection
from datetime import datetime, timedelta
from uuid import UUID

from django.db import transaction
from django.db.models import Q, QuerySet

from foundation.clock import now
from foundation.problems import Conflict, Invalid, NotFound, PermissionDenied
from tenancy.engine.roles import Scope, reach_of
from tenancy.locks import lock_user
from tenancy.models import ApiToken, User
from tenancy.queries import Actor, tokens_of

from .audit import record_audit

USE_NOTED_EVERY = timedelta(minutes=1)
MOST_LIVE_TOKENS = 100
SECRET_BYTES = 32
SHOWN_PREFIX_LENGTH = 12
USUAL_DAYS = 30
"""How long a token lasts unless its maker chooses another time, on the page and at the console."""


def create_token(
    actor: Actor, *, name: str, scopes: Collection[Scope] = (), expires_at: datetime | None = None
) -> tuple[ApiToken, str]:
    """A new token that acts for the actor's own user, and its secret, which is not stored.

    A token creates only tokens with no wider scope and no longer life than its own. Raises PermissionDenied
    `scope_exceeds_own`, Conflict `too_many_tokens`, Invalid for an end in the past.
    """
    if expires_at is not None and expires_at <= now():
        raise Invalid.field("expires_at", "in_the_past", "expires_at is in the past")
    with transaction.atomic():
        user = lock_user(actor.user_id)
        if user is None or not user.is_active:
            raise PermissionDenied("Only users can have tokens.")
        _check_own_token(actor, scopes, expires_at)
        if _live(user).count() >= MOST_LIVE_TOKENS:
            raise Conflict(f"A user has at most {MOST_LIVE_TOKENS} live tokens; revoke one.", code="too_many_tokens")
        token, secret = issue_token(user, name=name, scopes=scopes, expires_at=expires_at)
        detail = {"name": name, "prefix": token.prefix, "scopes": list(token.scopes)}
        record_audit(actor, "token.create", object_kind="token", object_id=token.id, detail=detail)
    return token, secret


def issue_token(
    user: User, *, name: str, scopes: Collection[Scope] = (), expires_at: datetime | None = None
) -> tuple[ApiToken, str]:
    """The row and the secret of a new token, without checking the actor (for set-up at the console)."""
    secret = f"swy_{secrets.token_urlsafe(SECRET_BYTES)}"
    token = ApiToken.objects.create(
        user=user,
        name=name,
        prefix=secret[:SHOWN_PREFIX_LENGTH],
        digest=hashlib.sha256(secret.encode()).digest(),
        scopes=sorted(set(scopes)),
        expires_at=expires_at,
    )
    token.refresh_from_db(fields=["created_at"])
    return token, secret


def revoke_token(actor: Actor, token_id: UUID) -> None:
    """Revokes a token of the actor's own user immediately (an operator revokes any); one already revoked is no error.

    A token may always revoke itself; to revoke others it needs the scope `admin`.
    """
    with transaction.atomic():
        tokens = ApiToken.objects.all() if actor.is_operator else tokens_of(actor)
        token = tokens.filter(id=token_id).first()
        if token is None:
            raise NotFound
        if token.id != actor.token_id and not actor.may_administer_itself():
            raise PermissionDenied("This needs a token with the scope admin.")
        if ApiToken.objects.filter(id=token.id, revoked_at__isnull=True).update(revoked_at=now()):
            detail = {"name": token.name, "prefix": token.prefix}
            record_audit(actor, "token.revoke", object_kind="token", object_id=token.id, detail=detail)


def note_token_use(token: ApiToken) -> None:
    """Records the use of the token, at most once a minute."""
    at = now()
    due = at - USE_NOTED_EVERY
    if token.last_used_at is None or token.last_used_at < due:
        ApiToken.objects.filter(Q(last_used_at__isnull=True) | Q(last_used_at__lt=due), id=token.id).update(
            last_used_at=at
        )


def _live(user: User) -> QuerySet[ApiToken]:
    unexpired = Q(expires_at__isnull=True) | Q(expires_at__gt=now())
    return ApiToken.objects.filter(unexpired, user=user, revoked_at__isnull=True)


def _check_own_token(actor: Actor, scopes: Collection[Scope], expires_at: datetime | None) -> None:
    if not actor.may_administer_itself():
        raise PermissionDenied("This needs a token with the scope admin.")
    if not reach_of(scopes) <= actor.reach:
        raise PermissionDenied("A token cannot create a token with a wider scope.", code="scope_exceeds_own")
    own = ApiToken.objects.filter(id=actor.token_id).first() if actor.token_id else None
    if own is not None and own.expires_at is not None and (expires_at is None or expires_at > own.expires_at):
        raise PermissionDenied(
            "A token cannot create a token that lasts longer; give an earlier expires_at.", code="scope_exceeds_own"
        )
