"""One-time links, to set a password or to join an organisation. The secret is shown once."""

import hashlib
import secrets
from datetime import datetime, timedelta
from uuid import UUID

from django.db import IntegrityError, transaction
from django.db.models import Q, QuerySet

from foundation.clock import now
from foundation.problems import Conflict, Invalid, NotFound, PermissionDenied
from tenancy.engine.roles import Permission, Role
from tenancy.locks import hold_tree, lock_user
from tenancy.models import OneTimeLink, RoleBinding, Tenant, User
from tenancy.queries import Actor, actor_for, link_holds, live_link, may_help, person_by_id, tenant_by_id

from .access import BEYOND, check_email, check_password_rules, set_password
from .audit import record_audit
from .bindings import check_own_roles
from .memberships import join

PASSWORD_LINK_LASTS = timedelta(hours=24)
INVITATION_LASTS = timedelta(days=7)
MOST_INVITATIONS = 200
SECRET_BYTES = 32
SHOWN_PREFIX_LENGTH = 12
DEAD = "This link is not valid: it was used, replaced or withdrawn, or it has expired. Ask for a new one."


def make_link(actor: Actor, person_id: UUID) -> tuple[OneTimeLink, str]:
    """A link with which the person sets their own password, and its secret, which is not stored.

    It replaces an earlier one. Raises NotFound, PermissionDenied `person_beyond_own`, Conflict `person_inactive`.
    """
    with transaction.atomic():
        person_by_id(actor, person_id)
        person = lock_user(person_id)
        if person is None:
            raise NotFound
        if not may_help(actor, person):
            raise PermissionDenied(BEYOND, code="person_beyond_own")
        if not person.is_active:
            raise Conflict("This person is deactivated.", code="person_inactive")
        _end(OneTimeLink.objects.filter(user=person))
        kinds = OneTimeLink.Purpose
        purpose = kinds.RESET_PASSWORD if person.has_usable_password() else kinds.FIRST_SIGN_IN
        link = OneTimeLink(
            user=person, purpose=purpose, made_by_id=actor.user_id, expires_at=now() + PASSWORD_LINK_LASTS
        )
        secret = _store(link)
        detail = {"user": person.email, "prefix": link.prefix, "purpose": purpose.value}
        record_audit(actor, "link.create", object_kind="link", object_id=link.id, detail=detail)
    return link, secret


def invite(
    actor: Actor, tenant_id: UUID, *, email: str, role: Role, expires_at: datetime | None = None
) -> tuple[OneTimeLink, str]:
    """An invitation to a role at the tenant, and its secret. It does not check whether the email has an account.

    `expires_at` is the end of the role. It replaces an earlier one for the same email and role. Raises Invalid,
    PermissionDenied `role_exceeds_own`, Conflict `too_many_invitations`.
    """
    email = _email(email)
    if expires_at is not None and expires_at <= now():
        raise Invalid.field("expires_at", "in_the_past", "expires_at is in the past")
    with transaction.atomic():
        hold_tree()  # so that two concurrent ones neither pass the limit nor both remain live
        tenant = tenant_by_id(actor, tenant_id, Permission.MANAGE_TENANTS)
        check_own_roles(actor, tenant, role, expires_at)
        _end(OneTimeLink.objects.filter(tenant=tenant, email=email, role=role))
        live = OneTimeLink.objects.filter(used_at__isnull=True, ended_at__isnull=True, expires_at__gt=now())
        root = tenant.path_prefixes[0]
        everywhere = Q(tenant__path=root) | Q(tenant__path__startswith=f"{root}/")
        if live.filter(everywhere).count() >= MOST_INVITATIONS:
            raise Conflict(
                f"An organisation has at most {MOST_INVITATIONS} pending invitations.", code="too_many_invitations"
            )
        link = OneTimeLink(
            purpose=OneTimeLink.Purpose.INVITATION,
            tenant=tenant,
            email=email,
            role=role.value,
            role_expires_at=expires_at,
            made_by_id=actor.user_id,
            expires_at=now() + INVITATION_LASTS,
        )
        secret = _store(link)
        _record(actor, "invitation.create", link)
    return link, secret


def withdraw_invitation(actor: Actor, tenant_id: UUID, invitation_id: UUID) -> None:
    """Ends an invitation immediately; NotFound if there is none that could still be accepted."""
    with transaction.atomic():
        tenant = tenant_by_id(actor, tenant_id, Permission.MANAGE_TENANTS)
        link = OneTimeLink.objects.filter(tenant=tenant, id=invitation_id).select_related("tenant").first()
        if link is None or not _end(OneTimeLink.objects.filter(id=link.id)):
            raise NotFound
        _record(actor, "invitation.withdraw", link)


def open_link(secret: str) -> OneTimeLink:
    """The purpose of a live link; reading it changes nothing. NotFound for any that does not work, whatever
    the cause.
    """
    link = live_link(hashlib.sha256(secret.encode(errors="replace")).digest())
    if link is None or not link_holds(link):
        raise NotFound(DEAD)
    return link


def set_password_by_link(secret: str, password: str) -> User:
    """The person of the link with their new password. Their sessions and other links have ended, and their tokens unless
    it is their first password.

    Raises NotFound, and Invalid for a password that is not allowed: then the link does not change.
    """
    with transaction.atomic():
        link = open_link(secret)
        user = lock_user(link.user_id)
        if user is None:
            raise NotFound(DEAD)
        check_password_rules(password, user=user)
        _use(link)
        set_password(user, password)
        detail = {"prefix": link.prefix}
        record_audit(actor_for(user), "link.use", object_kind="link", object_id=link.id, detail=detail)
    return user


def accept_invitation(user: User, secret: str) -> Tenant:
    """The tenant where the user, signed in with the invited email, now has the role. Raises NotFound."""
    with transaction.atomic():
        link = open_link(secret)
        person = lock_user(user.id)
        if person is None or not person.is_active or person.email != link.email:
            raise NotFound(DEAD)
        return _accept(link, person)


def accept_as_new(secret: str, password: str) -> Tenant:
    """The tenant where a new user now has the role: creates a user with the invited email and this password.

    Raises NotFound, Invalid for a password that is not allowed, Conflict `sign_in_instead` for an email with an
    account.
    """
    with transaction.atomic():
        link = open_link(secret)
        if not link.email:
            raise NotFound(DEAD)
        user = User(email=link.email)
        check_password_rules(password, user=user)
        user.set_password(password)
        try:
            with transaction.atomic():
                user.save(force_insert=True)
        except IntegrityError:
            raise Conflict(
                "This invitation cannot be used to create an account. If you have an account here, sign in with it.",
                code="sign_in_instead",
            ) from None
        record_audit(
            actor_for(user), "user.create", object_kind="user", object_id=user.id, detail={"email": user.email}
        )
        return _accept(link, user)


def _accept(link: OneTimeLink, person: User) -> Tenant:
    _use(link)
    tenant, actor = link.tenant, actor_for(person)
    assert tenant is not None
    join(actor, person, Tenant.objects.get(path=tenant.path_prefixes[0]))
    bound = RoleBinding.objects.filter(tenant=tenant, user=person, role=link.role)
    bound.filter(expires_at__lte=now()).delete()
    RoleBinding.objects.get_or_create(
        tenant=tenant, user=person, role=link.role, defaults={"expires_at": link.role_expires_at}
    )
    _record(actor, "invitation.accept", link)
    return tenant


def _use(link: OneTimeLink) -> None:
    """Uses the link up: of two concurrent uses, one wins. It is checked again, since it may have become invalid while
    waiting.
    """
    live = OneTimeLink.objects.filter(id=link.id, used_at__isnull=True, ended_at__isnull=True)
    if not live.update(used_at=now()):
        raise NotFound(DEAD)
    if not link_holds(OneTimeLink.objects.select_related("tenant", "user", "made_by").get(id=link.id)):
        raise NotFound(DEAD)


def _end(links: QuerySet[OneTimeLink]) -> int:
    return links.filter(used_at__isnull=True, ended_at__isnull=True).update(ended_at=now())


def _store(link: OneTimeLink) -> str:
    """Stores the link under a new secret, which it returns."""
    secret = f"swyl_{secrets.token_urlsafe(SECRET_BYTES)}"
    link.prefix, link.digest = secret[:SHOWN_PREFIX_LENGTH], hashlib.sha256(secret.encode()).digest()
    link.save(force_insert=True)
    link.refresh_from_db(fields=["created_at"])
    return secret


def _record(actor: Actor, action: str, link: OneTimeLink) -> None:
    detail = {"email": link.email, "role": link.role, "prefix": link.prefix}
    record_audit(actor, action, object_kind="invitation", object_id=link.id, tenant_id=link.tenant_id, detail=detail)


def _email(text: str) -> str:
    email = text.strip().lower()
    check_email(email)
    return email
