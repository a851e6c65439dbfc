"""Membership of people in organisations."""

from uuid import UUID

from django.db import transaction

from foundation.problems import NotFound, PermissionDenied
from tenancy.locks import hold_tree, lock_user
from tenancy.models import Membership, RoleBinding, Tenant, User
from tenancy.queries import Actor, administers, permanent_admins, person_by_id, tenant_by_id

from .access import revoke_access
from .audit import record_audit
from .bindings import check_others_administer


def join(actor: Actor, user: User, organisation: Tenant) -> None:
    """Makes the user a member, within the caller's transaction, unless they are one."""
    _, is_new = Membership.objects.get_or_create(user=user, organisation=organisation)
    if is_new:
        detail = {"user": user.email}
        record_audit(
            actor, "member.join", object_kind="user", object_id=user.id, tenant_id=organisation.id, detail=detail
        )


def remove_member(actor: Actor, organisation_id: UUID, person_id: UUID) -> None:
    """Removes the person from the organisation, with every role that they have in it, immediately.

    A person who then belongs to no organisation also has their tokens revoked and sessions ended. People can leave, or an
    admin of the organisation removes them. Raises Conflict `last_admin`.
    """
    with transaction.atomic():
        hold_tree()
        organisation = tenant_by_id(actor, organisation_id)
        is_self = actor.user_id == person_id and actor.may_administer_itself()
        if not is_self:
            person_by_id(actor, person_id)
        person = lock_user(person_id)
        membership = Membership.objects.filter(user_id=person_id, organisation_id=organisation_id).first()
        if person is None or membership is None or organisation.parent_id is not None:
            raise NotFound
        if not (is_self or administers(actor, organisation)):
            raise PermissionDenied(f"Only admins of {organisation.path} can remove its members.")
        theirs = RoleBinding.objects.filter(organisation=organisation, user=person)
        if permanent_admins(organisation).filter(id=person.id).exists():
            check_others_administer(organisation, besides=person)
        roles = [
            f"{role} at {path}" for role, path in theirs.values_list("role", "tenant__path").order_by("tenant__path")
        ]
        membership.delete()
        if not person.memberships.exists():
            revoke_access(person)
        record_audit(
            actor,
            "member.remove",
            object_kind="user",
            object_id=person.id,
            tenant_id=organisation.id,
            detail={"user": person.email, "roles": roles},
        )
