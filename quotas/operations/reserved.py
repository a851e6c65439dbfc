"""Reserves quota for a period, and ends that sooner."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import transaction

from foundation.problems import Conflict, FieldError
from quotas import locks
from quotas.engine.reserving import Reserved, excess
from quotas.models import ReservedQuota
from quotas.queries import limits_of_organisation, reserved_in
from tenancy.models import Tenant


class ReservedBeyondQuota(Conflict):
    """At some time more would be reserved than a limit on the tenant's path allows."""

    code, title = "reserved_beyond_quota", "Too much of the quota is reserved"


def reserve_quota(
    tenant: Tenant, cluster_name: str, amounts: Mapping[str, int], starts_at: datetime, until_at: datetime, *, new: UUID
) -> ReservedQuota:
    """The new reservation of quota, with the id `new`. Amounts are in base units by resource.

    Raises ReservedBeyondQuota with the numbers. A trigger adds up again.
    """
    with transaction.atomic():
        locks.stop_takers_at(tenant.id)
        wanted = Reserved(new, tenant.path, cluster_name, starts_at, until_at, tuple(sorted(amounts.items())))
        refusal = excess(limits_of_organisation(tenant.path), reserved_in(tenant.path, starts_at, until_at), wanted)
        if refusal is not None:
            field = f"quota.{refusal.limit.tenant_path}.{refusal.limit.resource}"
            raise ReservedBeyondQuota(
                f"{refusal.message}. Reserve less or at another time, or shorten another reservation.",
                errors=[FieldError(field, "quota_reserved", refusal.message)],
            )
        return ReservedQuota.objects.create(
            id=new,
            tenant=tenant,
            cluster_name=cluster_name,
            amounts=dict(amounts),
            starts_at=starts_at,
            until_at=until_at,
        )


def end_reserved_quota(reserved_id: UUID, until_at: Any) -> None:
    """Ends it at an earlier time, or at one that an expression of the database yields. What refers to its times follows."""
    ReservedQuota.objects.filter(id=reserved_id).update(until_at=until_at)
