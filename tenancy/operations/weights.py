"""Sets the weight of a tenant."""

from decimal import Decimal

from django.db import transaction

from foundation.outbox import announce
from foundation.problems import Invalid
from tenancy.engine.roles import Permission
from tenancy.models import LEAST_WEIGHT, MOST_WEIGHT, Tenant
from tenancy.queries import Actor, NotAllowedHere, permissions_at, require_operator, tenant_by_path

from .audit import record_audit

STEP = Decimal("0.01")


def set_weight(actor: Actor, tenant_path: str, weight: Decimal) -> Tenant:
    """The tenant with this weight against its siblings.

    The actor must manage quotas at its parent; only operators of the installation weigh organisations. Raises NotFound,
    NotAllowedHere, PermissionDenied, Invalid.
    """
    tenant = tenant_by_path(actor, tenant_path)
    if tenant.parent is None:
        require_operator(actor, "set the weight of an organisation")
    elif Permission.MANAGE_QUOTAS not in permissions_at(actor, tenant.parent):
        raise NotAllowedHere(tenant.parent, Permission.MANAGE_QUOTAS)
    if not weight.is_finite() or not LEAST_WEIGHT <= weight <= MOST_WEIGHT or weight != weight.quantize(STEP):
        raise Invalid.field(
            "weight", "out_of_range", f"{LEAST_WEIGHT} to {MOST_WEIGHT} with at most two digits after the point"
        )
    with transaction.atomic():
        was = Tenant.objects.values_list("weight", flat=True).get(id=tenant.id)
        Tenant.objects.filter(id=tenant.id).update(weight=weight)
        record_audit(
            actor,
            "tenant.weight",
            object_kind="tenant",
            object_id=tenant.id,
            tenant_id=tenant.id,
            detail={"weight": f"{weight:f}", "was": f"{was:f}"},
        )
        announce("cycle")
    tenant.weight = weight
    return tenant
