"""Sets and removes a tenant's placement policy; the next round uses it."""

from decimal import Decimal
from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.models.functions import Now

from federation.engine.intake.policy_reading import policy_json, read_policy
from federation.engine.intake.reading import Refused
from federation.models import PlacementPolicy, PolicyWeight
from federation.queries.policies import PolicyView, policy_of
from federation.queries.priority_classes import classes_known_at
from federation.queries.submissions import field_errors
from foundation.outbox import announce
from foundation.problems import Invalid, NotFound
from placement.values.model import TenantPolicy
from placement.values.strategies import TERMS
from tenancy.engine.roles import Permission
from tenancy.models import Tenant
from tenancy.operations import record_audit
from tenancy.queries import Actor

from .priority_classes import while_classes_exist


def put_policy(actor: Actor, tenant_id: UUID, body: object) -> PolicyView:
    """The current policies after the change. Managers of the tenant set it; the policies above it still apply.

    Raises NotFound, NotAllowedHere, or Invalid with every field at fault.
    """
    with while_classes_exist(), transaction.atomic():
        before = policy_of(actor, tenant_id, Permission.MANAGE_TENANTS)
        policy = _read(body, before.tenant.path)
        _store(before.tenant, policy, _default_class(actor, before.tenant, policy))
        _record(actor, "policy.put", before, policy_json(policy))
    return policy_of(actor, tenant_id)


def remove_policy(actor: Actor, tenant_id: UUID) -> None:
    """Removes the tenant's own policy; those above it still apply. Raises NotFound, also if the tenant has no own
    policy.
    """
    with transaction.atomic():
        before = policy_of(actor, tenant_id, Permission.MANAGE_TENANTS)
        removed, _ = PlacementPolicy.objects.filter(tenant_id=tenant_id).delete()
        if not removed:
            raise NotFound("The tenant does not have its own policy.")
        _record(actor, "policy.remove", before, None)


def _read(body: object, tenant_path: str) -> TenantPolicy:
    try:
        return read_policy(body, tenant_path)
    except Refused as refused:
        raise Invalid(errors=field_errors(refused.faults)) from None


def _default_class(actor: Actor, tenant: Tenant, policy: TenantPolicy) -> UUID | None:
    """The id of the class that it makes the default, which some of the tenant's users must be allowed to use."""
    name = policy.default_priority_class
    if not name:
        return None
    known = classes_known_at(actor, tenant)
    if name not in known:
        told = f"the tenant has no such priority class; it has: {', '.join(known) or 'none'}"
        raise Invalid.field("default_priority_class", "unknown_value", told)
    return known[name]


def _store(tenant: Tenant, policy: TenantPolicy, default_class_id: UUID | None) -> None:
    """Stores the policy. A concurrent writer waits for the row, or for its key."""
    row, _ = PlacementPolicy.objects.update_or_create(
        tenant=tenant,
        defaults={
            "default_strategy": policy.default_strategy,
            "default_priority_class_id": default_class_id,
            "consolidation": policy.consolidation,
            "strategies": list(policy.strategies),
            "clusters": list(policy.clusters),
            "regions": list(policy.regions),
            "capacity_types": list(policy.capacity_types),
            "flavors": list(policy.flavors),
            "changed_at": Now(),
        },
    )
    row.weights.all().delete()
    PolicyWeight.objects.bulk_create(
        PolicyWeight(policy=row, strategy=weights.strategy, term=term, value=Decimal(str(value)))
        for weights in policy.weights
        for term in TERMS
        if (value := getattr(weights, term)) is not None
    )


def _record(actor: Actor, action: str, before: PolicyView, after: dict[str, Any] | None) -> None:
    was = None if before.own is None else policy_json(before.own)
    tenant = before.tenant
    detail = {"before": was, "after": after}
    record_audit(actor, action, object_kind="policy", object_id=tenant.id, tenant_id=tenant.id, detail=detail)
    announce("cycle")
