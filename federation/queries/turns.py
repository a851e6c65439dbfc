"""Each tenant's share, and when its turn comes."""

from collections.abc import Collection
from dataclasses import dataclass
from decimal import Decimal
from uuid import UUID

from django.conf import settings
from django.db.models import Count, Q, QuerySet

from federation.engine.lifecycle import JobState
from federation.models import Job
from federation.queries.shares import shares_now
from federation.queries.snapshot import load_fleet
from foundation.clock import database_now
from placement.answers.shares import ShareLine, share_lines
from tenancy.models import Tenant
from tenancy.queries import Actor, tenant_by_path, visible_tenants, weighable_paths


@dataclass(frozen=True, slots=True)
class TenantTurn:
    """A tenant with its share. `credit` is None unless the actor sees all its siblings: it says what they used on average.
    `may_edit`: the actor may set its weight.
    """

    id: UUID
    name: str
    depth: int
    weight: Decimal
    line: ShareLine
    credit: float | None
    may_edit: bool


def shared_tenants(actor: Actor, tenant_path: str = "") -> QuerySet[Tenant]:
    """The tenants that the actor may see; with `tenant_path`, that tenant and those below it. Raises NotFound."""
    if not tenant_path:
        return visible_tenants(actor)
    tenant = tenant_by_path(actor, tenant_path)
    return Tenant.objects.filter(Q(path=tenant.path) | Q(path__startswith=f"{tenant.path}/"))


def turns_of(actor: Actor, tenants: Collection[Tenant]) -> tuple[TenantTurn, ...]:
    """The shares of these tenants, in their order. `turn` is None for all of them if fair share is off."""
    counted = Job.objects.filter(state=JobState.QUEUED).values_list("tenant__path").annotate(Count("id"))
    fleet = load_fleet(database_now())
    lines = share_lines(shares_now(), fleet, dict(counted.order_by()), [tenant.path for tenant in tenants])
    editable, parents = weighable_paths(actor), _seen_parents(actor, tenants)
    return tuple(
        TenantTurn(
            tenant.id,
            tenant.name,
            tenant.depth,
            tenant.weight,
            lines[tenant.path] if settings.FAIR_SHARE else lines[tenant.path]._replace(turn=None),
            lines[tenant.path].credit if _above(tenant) in parents else None,
            tenant.path in editable,
        )
        for tenant in tenants
    )


def _above(tenant: Tenant) -> str:
    return tenant.path.rpartition("/")[0]


def _seen_parents(actor: Actor, tenants: Collection[Tenant]) -> set[str]:
    """The tenants above these that the actor sees, with all below them. Operators see what is above organisations: "" ."""
    paths = {_above(tenant) for tenant in tenants}
    seen = set(visible_tenants(actor).filter(path__in=paths).values_list("path", flat=True))
    return seen | {""} if actor.is_operator else seen
