"""The locking functions of this room. They use one order: tenants by id, holds by id, limits from the root down by
(depth, id).

The journal's trigger (`migrations/0001_rules.sql`) locks holds and limits in the same order; the end of holds then locks
the half-life and past use by tenant and resource (`migrations/0003_past_use.sql`). Take or end holds only once per transaction: a second pass could meet another transaction's locks in the opposite order.
"""

from collections.abc import Collection, Sequence
from uuid import UUID

from django.db import connection

from tenancy.models import Tenant

from .models import Hold, QuotaLimit


def stop_takers_at(tenant_id: UUID) -> None:
    """Waits for every transaction that takes holds at this tenant, and blocks new ones until commit."""
    Tenant.objects.select_for_update(no_key=True).get(id=tenant_id)


def lock_limits(tenant_paths: Collection[str], resources: Collection[str]) -> Sequence[QuotaLimit]:
    """The current limits of these tenants on these resources, root first, with their tenants, locked until commit."""
    return list(
        QuotaLimit.objects.select_related("tenant")
        .filter(tenant__path__any_of=sorted(tenant_paths), resource__any_of=sorted(resources), removed_at__isnull=True)
        .order_by("tenant__depth", "id")
        .select_for_update(of=("self",), no_key=True)
    )


def lock_limit(limit_id: UUID) -> QuotaLimit | None:
    """A current limit, locked until commit."""
    return QuotaLimit.objects.select_for_update(no_key=True).filter(id=limit_id, removed_at__isnull=True).first()


def lock_pending(holder_ids: Collection[UUID]) -> list[UUID]:
    """The holders whose hold is pending, locked until commit."""
    return list(
        Hold.objects.filter(holder_id__any_of=list(holder_ids), state=Hold.State.PENDING)
        .order_by("holder_id")
        .select_for_update(no_key=True)
        .values_list("holder_id", flat=True)
    )


def lock_pending_below(tenant_path: str) -> list[Hold]:
    """Every pending hold of the tenant and its descendants, locked until commit."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT h.holder_id FROM quotas_hold AS h JOIN tenancy_tenant AS t ON t.id = h.tenant_id"
            " WHERE h.state = 'pending' AND (t.path = %s OR starts_with(t.path, %s))"
            " ORDER BY h.holder_id FOR NO KEY UPDATE OF h",
            [tenant_path, f"{tenant_path}/"],
        )
        found = [row[0] for row in cursor.fetchall()]
    return list(Hold.objects.filter(holder_id__any_of=found, state=Hold.State.PENDING))
