"""The tenant tree: creates, renames, moves and removes tenants."""

import re
from collections.abc import Mapping
from typing import Any
from uuid import UUID

from django.db import IntegrityError, transaction
from django.dispatch import Signal

from foundation.problems import Conflict, Invalid, NotFound
from foundation.transactions import retried
from tenancy.engine.roles import Permission, Role
from tenancy.locks import hold_tree, lock_to_remove
from tenancy.models import MAX_DEPTH, NAME_PATTERN, Membership, RoleBinding, Tenant
from tenancy.queries import Actor, require_operator, tenant_by_id, what_hangs_on

from .audit import record_audit

tenant_moves = Signal()
"""Sent before a tenant changes its parent, in the transaction of the move and under the tree's lock; arguments `tenant`
and `new_parent`. A room that records something by path prepares the move, or refuses it by raising a Problem.
"""


def create_tenant(
    actor: Actor, *, name: str, kind: str, parent_id: UUID | None = None, labels: Mapping[str, str] | None = None
) -> Tenant:
    """A new tenant below the parent, or a new organisation (operators' staff only) whose founder becomes its admin.

    Raises Conflict `tenant_exists` if the name is in use there, Invalid for a kind or depth that is not allowed.
    """
    _check_name(name)
    with transaction.atomic():
        if parent_id is None:
            parent = None
            require_operator(actor, "create and remove organisations")
        else:
            parent = _parent(actor, parent_id)
        _check_place(kind, parent)
        tenant = _insert(Tenant(name=name, kind=kind, parent=parent, labels=dict(labels or {})))
        if parent is None and actor.user_id is not None:
            Membership.objects.create(user_id=actor.user_id, organisation=tenant)
            RoleBinding.objects.create(tenant=tenant, user_id=actor.user_id, role=Role.ADMIN)
        record_audit(
            actor, "tenant.create", object_kind="tenant", object_id=tenant.id, tenant_id=tenant.id, detail=_seen(tenant)
        )
    return tenant


@retried
def change_tenant(
    actor: Actor,
    tenant_id: UUID,
    *,
    name: str | None = None,
    labels: Mapping[str, str] | None = None,
    parent_id: UUID | None = None,
) -> Tenant:
    """The tenant with the given changes; None leaves a value as it is. A new parent or name applies to everything below
    too.

    Moving needs MANAGE_TENANTS at the parent it leaves as well as the one it joins, in the same organisation. Raises
    Conflict `tenant_exists`, Invalid `tenant_below_itself`, `other_organisation`, and the refusals of rooms that record
    usage by path.
    """
    if name is not None:
        _check_name(name)
    with transaction.atomic():
        if name is not None or parent_id is not None:
            hold_tree()
        tenant = tenant_by_id(actor, tenant_id, Permission.MANAGE_TENANTS)
        before = _seen(tenant)
        if parent_id is not None and parent_id != tenant.parent_id:
            _move(actor, tenant, parent_id)
        if name is not None:
            tenant.name = name
        if labels is not None:
            tenant.labels = dict(labels)
        _store(tenant)
        detail = {"before": before, "after": _seen(tenant)}
        record_audit(
            actor, "tenant.change", object_kind="tenant", object_id=tenant.id, tenant_id=tenant.id, detail=detail
        )
    return tenant


def remove_tenant(actor: Actor, tenant_id: UUID) -> None:
    """Removes a tenant that no object refers to (its role bindings are deleted); Conflict
    `tenant_not_empty` otherwise.
    """
    with transaction.atomic():
        hold_tree()
        tenant = tenant_by_id(actor, tenant_id, Permission.MANAGE_TENANTS)
        if tenant.parent_id is None:
            require_operator(actor, "create and remove organisations")
        lock_to_remove(tenant_id)
        hanging = what_hangs_on(tenant)
        if hanging:
            raise Conflict(f"{tenant.path} still has: {', '.join(hanging)}.", code="tenant_not_empty")
        record_audit(
            actor,
            "tenant.remove",
            object_kind="tenant",
            object_id=tenant.id,
            tenant_id=tenant.parent_id,
            detail=_seen(tenant),
        )
        tenant.delete()


def _parent(actor: Actor, parent_id: UUID) -> Tenant:
    try:
        return tenant_by_id(actor, parent_id, Permission.MANAGE_TENANTS)
    except NotFound:
        raise Invalid.field("parent", "unknown_tenant", "there is no such tenant") from None


def _check_name(name: str) -> None:
    if not re.match(NAME_PATTERN, name):
        raise Invalid.field("name", "invalid", "lower-case letters, digits and inner hyphens, at most 63")


def _check_place(kind: str, parent: Tenant | None) -> None:
    if (kind == Tenant.Kind.ORGANISATION) != (parent is None):
        raise Invalid.field("kind", "wrong_kind", "an organisation has no parent; every other tenant has one")
    if parent is not None and parent.depth + 1 >= MAX_DEPTH:
        raise Invalid.field("parent", "too_deep", f"the tree is at most {MAX_DEPTH} levels deep")


def _move(actor: Actor, tenant: Tenant, parent_id: UUID) -> None:
    if tenant.parent_id is None:
        raise Invalid.field("parent", "wrong_kind", "an organisation has no parent")
    tenant_by_id(actor, tenant.parent_id, Permission.MANAGE_TENANTS)
    parent = _parent(actor, parent_id)
    if parent.path_prefixes[0] != tenant.path_prefixes[0]:
        raise Invalid.field("parent", "other_organisation", "a tenant cannot move to another organisation")
    if parent.path == tenant.path or parent.path.startswith(f"{tenant.path}/"):
        raise Invalid.field("parent", "tenant_below_itself", "a tenant cannot be below itself")
    deepest = (
        Tenant.objects.filter(path__startswith=f"{tenant.path}/")
        .order_by("-depth")
        .values_list("depth", flat=True)
        .first()
    )
    height = (deepest or tenant.depth) - tenant.depth
    if parent.depth + 1 + height >= MAX_DEPTH:
        raise Invalid.field("parent", "too_deep", f"the tree is at most {MAX_DEPTH} levels deep")
    tenant_moves.send(sender=Tenant, tenant=tenant, new_parent=parent)
    tenant.parent = parent


def _insert(tenant: Tenant) -> Tenant:
    _guarded(lambda: tenant.save(force_insert=True), tenant)
    tenant.refresh_from_db()
    return tenant


def _store(tenant: Tenant) -> None:
    _guarded(lambda: tenant.save(update_fields=["name", "labels", "parent"]), tenant)
    tenant.refresh_from_db()


def _guarded(write: Any, tenant: Tenant) -> None:
    """Runs the write; a name that is in use becomes a Conflict."""
    try:
        with transaction.atomic():
            write()
    except IntegrityError as error:
        if "tenancy_tenant_path" in str(error) or "tenant_name_is_unique" in str(error):
            raise Conflict(f"A tenant named {tenant.name} already exists here.", code="tenant_exists") from error
        raise


def _seen(tenant: Tenant) -> dict[str, Any]:
    return {"path": tenant.path, "kind": tenant.kind, "labels": tenant.labels}
