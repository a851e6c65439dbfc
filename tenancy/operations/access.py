"""A person's password, and the end of earlier sessions and tokens."""

from uuid import UUID

from django.contrib.auth.password_validation import validate_password
from django.core.exceptions import ValidationError
from django.core.validators import validate_email
from django.db import transaction
from django.db.models import F

from foundation.clock import now
from foundation.problems import Invalid, NotFound, PermissionDenied
from tenancy.locks import hold_tree, lock_user
from tenancy.models import ApiToken, User
from tenancy.queries import Actor, may_help, person_by_id

from .audit import record_audit

MAX_EMAIL_LENGTH = 254
MAX_PASSWORD_LENGTH = 1000


def change_password(actor: Actor, *, old: str, new: str) -> int:
    """Sets the actor's own new password; returns the number of tokens revoked. Ends every session that does not get the
    new hash.

    Raises Invalid for a wrong old password or a new one that is not allowed.
    """
    with transaction.atomic():
        user = lock_user(actor.user_id)
        if user is None or not user.is_active or actor.token_id is not None:
            raise PermissionDenied("Only signed-in users can change their own password.")
        if len(old) > MAX_PASSWORD_LENGTH or not user.check_password(old):
            raise Invalid.field("old_password", "wrong_password", "this is not your current password")
        check_password_rules(new, field="new_password", user=user)
        revoked = ApiToken.objects.filter(user=user, revoked_at__isnull=True).count()
        set_password(user, new)
        detail = {"tokens_revoked": revoked}
        record_audit(actor, "user.change_password", object_kind="user", object_id=user.id, detail=detail)
    return revoked


def set_password(user: User, password: str) -> None:
    """Stores the password; the model then ends earlier sessions, tokens and links."""
    user.set_password(password)
    user.save(update_fields=["password"])


def end_sessions(actor: Actor, person_id: UUID, *, with_tokens: bool) -> int:
    """Ends every web session of the person immediately, and revokes their tokens if requested; the number of these
    tokens.

    For oneself, and for anyone who may help the person. The token of the request itself remains. Raises NotFound,
    PermissionDenied.
    """
    with transaction.atomic():
        person_by_id(actor, person_id)
        person = lock_user(person_id)
        if person is None:
            raise NotFound
        is_self = person.id == actor.user_id and actor.may_administer_itself()
        if not (is_self or may_help(actor, person)):
            raise PermissionDenied(BEYOND, code="person_beyond_own")
        revoked = revoke_access(person, with_tokens=with_tokens, spare=actor.token_id)
        detail = {"user": person.email, "tokens_revoked": revoked}
        record_audit(actor, "user.end_sessions", object_kind="user", object_id=person.id, detail=detail)
    return revoked


BEYOND = "Only an operator can do this: the person is staff, has more rights than you, or also belongs to another organisation."


def revoke_access(person: User, *, with_tokens: bool = True, spare: UUID | None = None) -> int:
    """Ends sessions and (by default) tokens, within the caller's transaction; returns the number of tokens."""
    User.objects.filter(id=person.id).update(session_epoch=F("session_epoch") + 1)
    if not with_tokens:
        return 0
    tokens = ApiToken.objects.filter(user=person, revoked_at__isnull=True)
    tokens = tokens.exclude(id=spare) if spare else tokens
    return tokens.update(revoked_at=now())


def is_superuser_still(actor: Actor) -> bool:
    """Whether the actor is a superuser now and until the transaction ends. Of two superusers who take each other's powers
    at the same time, the second is one no more.
    """
    hold_tree()
    user = lock_user(actor.user_id)
    return user is not None and user.is_active and user.is_superuser


def check_email(email: str) -> None:
    """Raises Invalid if it cannot be an account's email."""
    try:
        validate_email(email)
    except ValidationError:
        raise Invalid.field("email", "invalid", "this is not an email address") from None
    if len(email) > MAX_EMAIL_LENGTH:
        raise Invalid.field("email", "too_long", f"an email has at most {MAX_EMAIL_LENGTH} characters")


def check_password_rules(password: str, *, field: str = "password", user: User | None = None) -> None:
    """Raises Invalid if the password violates the installation's rules."""
    if len(password) > MAX_PASSWORD_LENGTH:
        raise Invalid.field(field, "too_long", f"a password has at most {MAX_PASSWORD_LENGTH} characters")
    try:
        validate_password(password, user)
    except ValidationError as error:
        raise Invalid.field(field, "invalid", " ".join(error.messages)) from None
