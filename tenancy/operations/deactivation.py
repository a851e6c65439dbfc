"""Ends and restores a person's access to the installation."""

from dataclasses import replace
from uuid import UUID

from django.db import transaction

from foundation.problems import NotFound, PermissionDenied
from tenancy.locks import hold_tree, lock_user
from tenancy.models import ApiToken, Tenant, User
from tenancy.queries import Actor, may_help, permanent_admins, person_by_id

from .access import BEYOND
from .audit import record_audit
from .bindings import check_others_administer


def deactivate_person(actor: Actor, person_id: UUID) -> User:
    """The person, who cannot sign in any more. Their sessions, tokens and links end permanently; their roles remain, without
    effect, and their jobs continue. Harmless if they are deactivated already.

    For anyone who may help the person, so never for oneself. Raises NotFound, PermissionDenied `person_beyond_own`,
    Conflict `last_admin` if an organisation would have no admin left.
    """
    with transaction.atomic():
        person = _person(actor, person_id)
        if person.is_active:
            for organisation in Tenant.objects.filter(memberships__user=person).order_by("id"):
                if permanent_admins(organisation).filter(id=person.id).exists():
                    check_others_administer(organisation, besides=person)
            tokens = ApiToken.objects.filter(user=person, revoked_at__isnull=True).count()
            _store(person, is_active=False)  # a trigger ends sessions, tokens and links
            _record(actor, "user.deactivate", person, tokens_revoked=tokens)
    return person


def activate_person(actor: Actor, person_id: UUID) -> User:
    """The person, who can sign in again, with the roles that they still have. What ended, remains ended. Harmless if they are active already.

    For anyone who may help the person. Raises NotFound, PermissionDenied `person_beyond_own`.
    """
    with transaction.atomic():
        person = _person(actor, person_id)
        if not person.is_active:
            _store(person, is_active=True)
            _record(actor, "user.activate", person)
    return person


def _person(actor: Actor, person_id: UUID) -> User:
    """The person, locked. Under the tree's lock, so that of two who deactivate each other one remains, and that no
    other change of roles decides by what is no longer so.
    """
    hold_tree()
    actor = _as_now(actor)
    person_by_id(actor, person_id)
    person = lock_user(person_id)
    if person is None:
        raise NotFound
    if not may_help(actor, person):
        raise PermissionDenied(BEYOND, code="person_beyond_own")
    return person


def _as_now(actor: Actor) -> Actor:
    """The actor with the powers that they have now: another may have taken them while this transaction waited."""
    if actor.user_id is None:
        return actor
    user = User.objects.filter(id=actor.user_id, is_active=True).first()
    if user is None:
        raise NotFound
    return replace(actor, is_operator=user.is_superuser, is_staff=user.is_staff)


def _store(person: User, *, is_active: bool) -> None:
    person.is_active = is_active
    person.save(update_fields=["is_active"])


def _record(actor: Actor, action: str, person: User, **more: int) -> None:
    """One entry in the trail of each organisation of the person, or one without a tenant."""
    organisations: list[UUID | None] = list(person.memberships.order_by("id").values_list("organisation_id", flat=True))
    for organisation_id in organisations or [None]:
        record_audit(
            actor,
            action,
            object_kind="user",
            object_id=person.id,
            tenant_id=organisation_id,
            detail={"user": person.email, **more},
        )
