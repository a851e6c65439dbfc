"""Sets and removes the limits of classes of work, in all tenants together and at tenants."""

from collections.abc import Mapping
from uuid import UUID

from django.db import transaction
from django.db.models.functions import Now

from foundation.outbox import announce
from foundation.problems import Invalid
from quotas import locks
from quotas.engine.amounts import KINDS, MAX_AMOUNT, format_amount, is_resource
from quotas.models import ClassLimit
from quotas.queries import class_limit_by_id
from tenancy.models import Tenant
from tenancy.operations import record_audit
from tenancy.queries import Actor, tenant_by_path

from .limits import require_from_above


def put_class_limits(class_name: str, most: Mapping[str, int | None]) -> None:
    """Makes the limits of a class in all tenants together those in `most`, by resource in base units; None is no limit. Others of
    the class remain, and so do those of tenants.

    A new limit counts what the class holds already. If a limit is below that, its work continues, and starts nothing new until
    enough has ended. The caller permits and audits the change, and locks no row before, except those that `keep_holds` locks.
    """
    own = ClassLimit.objects.filter(class_name=class_name, tenant=None)
    with transaction.atomic():
        known = dict(own.values_list("resource", "most"))
        new = {resource: amount for resource, amount in most.items() if amount is not None and resource not in known}
        if new:
            keep_holds()
        for resource, amount in new.items():
            ClassLimit.objects.create(class_name=class_name, resource=resource, most=amount)
        # Only now, because what ends holds has locked the holds' table before these rows.
        changed = {resource for resource, amount in known.items() if most.get(resource, amount) != amount}
        for limit in locks.lock_class_limits(class_name, changed):
            wanted = most[limit.resource]
            if wanted is None:
                limit.delete()
            else:
                ClassLimit.objects.filter(id=limit.id).update(most=wanted, updated_at=Now())
        if new or changed:
            announce("cycle")


def keep_holds() -> None:
    """Until commit, no hold begins or ends anywhere. A transaction that changes limits of several classes takes these locks before
    the first: holds that end lock limits of classes while they have locked the table of holds.
    """
    # Also, the database would refuse what a cycle judged without the new limit.
    locks.stop_all_takers()
    locks.stop_endings()


def put_class_limit(
    actor: Actor, tenant_path: str, class_name: str, resource: str, *, most: int
) -> tuple[ClassLimit, bool]:
    """The limit on what all work of a class holds at a tenant and below it after the change, and whether it is new. `most` is in
    base units.

    What is held there counts immediately. If that is more, the work continues, and the class starts nothing new there until enough
    has ended. The actor must manage quotas one level above the tenant. The caller makes sure that there is such a class. Raises
    NotFound, NotAllowedHere and Invalid.
    """
    tenant = tenant_by_path(actor, tenant_path)
    require_from_above(actor, tenant)
    if not is_resource(resource):
        raise Invalid.field("resource", "unknown_resource", KINDS)
    if not 0 <= most <= MAX_AMOUNT:
        raise Invalid.field("most", "out_of_range", "not a valid amount")
    with transaction.atomic():
        locks.stop_takers_at(tenant.id)
        was = _changed(tenant, class_name, resource, most)
        if was is None:
            locks.lock_pending_below(Tenant.objects.values_list("path", flat=True).get(id=tenant.id))
            ClassLimit.objects.create(tenant=tenant, class_name=class_name, resource=resource, most=most)
        limit = ClassLimit.objects.select_related("tenant").get(tenant=tenant, class_name=class_name, resource=resource)
        _record(actor, "class_limit.put", limit, {"most": format_amount(resource, most), "was": _shown(limit, was)})
    return limit, was is None


def _changed(tenant: Tenant, class_name: str, resource: str, most: int) -> int | None:
    """What the limit was before the change; None if there is none to change."""
    for limit in locks.lock_class_limits(class_name, [resource], tenant.id):
        if limit.most != most:
            ClassLimit.objects.filter(id=limit.id).update(most=most, updated_at=Now())
        return limit.most
    return None


def delete_class_limit(actor: Actor, limit_id: UUID) -> None:
    """Removes a limit of a class at a tenant. Raises NotFound and NotAllowedHere."""
    found = class_limit_by_id(actor, limit_id)
    assert found.tenant is not None  # those of all tenants have no place where an actor sees them
    require_from_above(actor, found.tenant)
    with transaction.atomic():
        locks.stop_takers_at(found.tenant.id)
        ClassLimit.objects.filter(id=limit_id).delete()
        _record(actor, "class_limit.delete", found, {"was": _shown(found, found.most)})


def _record(actor: Actor, action: str, limit: ClassLimit, detail: dict[str, str | None]) -> None:
    detail = {"priority_class": limit.class_name, "resource": limit.resource, **detail}
    record_audit(actor, action, object_kind="class_limit", object_id=limit.id, tenant_id=limit.tenant_id, detail=detail)
    announce("cycle")


def _shown(limit: ClassLimit, amount: int | None) -> str | None:
    return None if amount is None else format_amount(limit.resource, amount)
