"""Binds, changes and removes roles. An actor cannot grant more, or for longer, than they have themselves."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.contrib.auth.models import Group
from django.db import IntegrityError, transaction
from django.db.models import Q

from foundation.clock import now
from foundation.problems import Conflict, Invalid, NotFound, PermissionDenied
from tenancy.engine.roles import GRANTS, Permission, Role
from tenancy.locks import hold_tree
from tenancy.models import RoleBinding, Tenant, User
from tenancy.queries import Actor, permanent_admins, permissions_at, tenant_by_id

from .audit import record_audit


@dataclass(frozen=True, slots=True)
class Until:
    """The end of a role; None for no end."""

    at: datetime | None


def bind_role(
    actor: Actor, tenant_id: UUID, *, role: Role, user: str = "", group: str = "", expires_at: datetime | None = None
) -> RoleBinding:
    """A role for a member (email or id) or a group (name) at the tenant and below, until `expires_at` if given.

    Users who are not members of the organisation count as not found, and are invited instead. Groups belong to the
    installation: only operators bind them. Raises Conflict `role_already_bound`, PermissionDenied `role_exceeds_own` if
    the actor has less than the role grants (or has it for a shorter time), Invalid for an unknown user or group or an
    end in the past.
    """
    _check_end(expires_at)
    with transaction.atomic():
        tenant = tenant_by_id(actor, tenant_id, Permission.MANAGE_TENANTS)
        check_own_roles(actor, tenant, role, expires_at)
        holder = (
            {"user": _member(user, tenant), "group": None} if user else {"user": None, "group": _group(actor, group)}
        )
        same = RoleBinding.objects.filter(tenant=tenant, role=role, **holder)
        same.filter(expires_at__lte=now()).delete()
        values = {"tenant": tenant, "role": role, **holder}
        try:
            binding, is_new = RoleBinding.objects.get_or_create(**values, defaults={"expires_at": expires_at})
        except IntegrityError as error:  # the member was removed meanwhile
            if "role_binding_is_a_members" in str(error):
                raise _nobody() from None
            raise
        if not is_new:
            raise _bound_already()
        _record(actor, "role.bind", binding, _seen(binding))
    return binding


def change_binding(
    actor: Actor, tenant_id: UUID, binding_id: UUID, *, role: Role | None = None, until: Until | None = None
) -> RoleBinding:
    """The binding with another role or another end; None leaves a value as it is. Equal values change nothing.

    The actor needs as much as both the role before and the one after, for as long as it lasts; for a group, they must be
    an operator. Raises NotFound, PermissionDenied `role_exceeds_own`, Conflict `role_already_bound` and `last_admin`,
    Invalid for an end in the past.
    """
    with transaction.atomic():
        hold_tree()
        binding = _binding(actor, tenant_id, binding_id)
        if binding.group_id is not None:
            _require_for_groups(actor)
        tenant, before = binding.tenant, _seen(binding)
        was_lasting_admin = _is_lasting_admin(binding)
        check_own_roles(actor, tenant, Role(binding.role), now())
        binding.role = binding.role if role is None else role.value
        binding.expires_at = binding.expires_at if until is None else until.at
        if _seen(binding) == before:
            return binding
        _check_end(binding.expires_at)
        check_own_roles(actor, tenant, Role(binding.role), binding.expires_at)
        if was_lasting_admin and not _is_lasting_admin(binding):
            check_others_administer(tenant, without=binding)
        _store(binding)
        _record(actor, "role.change", binding, {"before": before, "after": _seen(binding)})
    return binding


def unbind_role(actor: Actor, tenant_id: UUID, binding_id: UUID) -> None:
    """Removes a role. Raises PermissionDenied `role_exceeds_own` for a role above the actor's own, Conflict
    `last_admin` if an organisation would have no admin left.
    """
    with transaction.atomic():
        hold_tree()
        binding = _binding(actor, tenant_id, binding_id)
        check_own_roles(actor, binding.tenant, Role(binding.role), now())
        if binding.tenant.parent_id is None and binding.role == Role.ADMIN:
            check_others_administer(binding.tenant, without=binding)
        _record(actor, "role.unbind", binding, _seen(binding))
        binding.delete()


def check_own_roles(actor: Actor, tenant: Tenant, role: Role, until: datetime | None) -> None:
    if not GRANTS[role] <= permissions_at(actor, tenant, until=until):
        raise PermissionDenied(
            f"The role {role.value} gives more rights, or lasts longer, than your own roles at {tenant.path}.",
            code="role_exceeds_own",
        )


def check_others_administer(
    organisation: Tenant, *, without: RoleBinding | None = None, besides: User | None = None
) -> None:
    """Raises Conflict `last_admin` if the organisation would have no permanent admin without this binding or person."""
    others = permanent_admins(organisation, without=without)
    if not (others.exclude(id=besides.id) if besides else others).exists():
        raise Conflict("An organisation must keep at least one admin.", code="last_admin")


def _binding(actor: Actor, tenant_id: UUID, binding_id: UUID) -> RoleBinding:
    tenant = tenant_by_id(actor, tenant_id, Permission.MANAGE_TENANTS)
    binding = RoleBinding.objects.select_related("tenant", "user", "group").filter(tenant=tenant, id=binding_id).first()
    if binding is None:
        raise NotFound
    return binding


def _is_lasting_admin(binding: RoleBinding) -> bool:
    return binding.tenant.parent_id is None and binding.role == Role.ADMIN and binding.expires_at is None


def _store(binding: RoleBinding) -> None:
    """Stores the changed binding; an expired one in its place makes room."""
    holder = {"user": binding.user, "group": binding.group}
    same = RoleBinding.objects.filter(tenant=binding.tenant, role=binding.role, **holder).exclude(id=binding.id)
    same.filter(expires_at__lte=now()).delete()
    try:
        with transaction.atomic():
            binding.save(update_fields=["role", "expires_at"])
    except IntegrityError:  # only of the two constraints that allow a role once per holder
        raise _bound_already() from None


def _check_end(expires_at: datetime | None) -> None:
    if expires_at is not None and expires_at <= now():
        raise Invalid.field("expires_at", "in_the_past", "expires_at is in the past")


def _bound_already() -> Conflict:
    return Conflict("This role is bound already; change that binding.", code="role_already_bound")


def _member(name: str, tenant: Tenant) -> User:
    try:
        by_id = Q(id=UUID(name))
    except ValueError:
        by_id = Q(email=name.lower())
    members = User.objects.filter(is_active=True, memberships__organisation__path=tenant.path_prefixes[0])
    user = members.filter(by_id).first()
    if user is None:
        raise _nobody()
    return user


def _nobody() -> Invalid:
    return Invalid.field("user", "unknown_user", "not a member of this organisation; invite them")


def _group(actor: Actor, name: str) -> Group:
    _require_for_groups(actor)
    group = Group.objects.filter(name=name).first()
    if group is None:
        raise Invalid.field("group", "unknown_group", "there is no such group")
    return group


def _require_for_groups(actor: Actor) -> None:
    if not (actor.is_operator or actor.is_staff):
        raise PermissionDenied("Only operators of this installation can bind groups.")


def _seen(binding: RoleBinding) -> dict[str, str | None]:
    return {
        "role": binding.role,
        "user": binding.user.email if binding.user else None,
        "group": binding.group.name if binding.group else None,
        "expires_at": binding.expires_at.isoformat() if binding.expires_at else None,
    }


def _record(actor: Actor, action: str, binding: RoleBinding, detail: dict[str, Any]) -> None:
    record_audit(
        actor,
        action,
        object_kind="role_binding",
        object_id=binding.id,
        tenant_id=binding.tenant_id,
        detail=detail,
    )
