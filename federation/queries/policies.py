"""Tenants' policies as placement needs them, and as users read them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from uuid import UUID

from django.db import connection
from django.db.models import QuerySet

from federation.models import PlacementPolicy
from placement.fleet.policies import Policy, prefixes_of
from placement.values.model import StrategyWeights, TenantPolicy
from tenancy.engine.roles import Permission
from tenancy.models import Tenant
from tenancy.queries import Actor, permissions_at, tenant_by_id

_HAS_POLICY = """
SELECT EXISTS (SELECT FROM federation_placementpolicy AS policy
                 JOIN tenancy_tenant AS tenant ON tenant.id = policy.tenant_id WHERE tenant.path = ANY(%s))
"""


@dataclass(frozen=True, slots=True)
class PolicyView:
    """The policies that apply to a tenant: its own (None if not set) and those above it, root first."""

    tenant: Tenant
    own: TenantPolicy | None
    above: tuple[TenantPolicy, ...]
    effective: Policy
    may_edit: bool


def load_policies() -> tuple[TenantPolicy, ...]:
    """Every tenant's policy, in the order of their paths. Two queries at most."""
    return tuple(_values(PlacementPolicy.objects.all()))


def policy_at(tenant_path: str) -> Policy:
    """The policy that applies to a tenant now. It takes one query if no policy exists."""
    paths = list(prefixes_of(tenant_path))
    with connection.cursor() as cursor:
        cursor.execute(_HAS_POLICY, [paths])
        (is_there,) = cursor.fetchone()
    return policies_on(paths) if is_there else Policy()


def policies_on(paths: Sequence[str]) -> Policy:
    """The policies of these tenants, a path from the root."""
    return Policy(tuple(_values(PlacementPolicy.objects.filter(tenant__path__in=paths))))


def policy_of(actor: Actor, tenant_id: UUID, permission: Permission = Permission.VIEW) -> PolicyView:
    """The policies at and above a tenant. Raises NotFound and NotAllowedHere."""
    tenant = tenant_by_id(actor, tenant_id, permission)
    effective = policy_at(tenant.path)
    own = next((policy for policy in effective.path if policy.tenant_path == tenant.path), None)
    return PolicyView(
        tenant=tenant,
        own=own,
        above=tuple(policy for policy in effective.path if policy is not own),
        effective=effective,
        may_edit=Permission.MANAGE_TENANTS in permissions_at(actor, tenant),
    )


def _values(rows: QuerySet[PlacementPolicy]) -> Iterable[TenantPolicy]:
    for row in (
        rows.select_related("tenant", "default_priority_class").prefetch_related("weights").order_by("tenant__path")
    ):
        yield value_of(row)


def value_of(row: PlacementPolicy) -> TenantPolicy:
    """The row as placement's value."""
    terms: dict[str, dict[str, float]] = {}
    for weight in sorted(row.weights.all(), key=lambda one: (one.strategy, one.term)):
        terms.setdefault(weight.strategy, {})[weight.term] = float(weight.value)
    return TenantPolicy(
        tenant_path=row.tenant.path,
        default_strategy=row.default_strategy,
        default_priority_class=row.default_priority_class.name if row.default_priority_class else "",
        consolidation=row.consolidation,
        strategies=tuple(row.strategies),
        clusters=tuple(row.clusters),
        regions=tuple(row.regions),
        capacity_types=tuple(row.capacity_types),
        flavors=tuple(row.flavors),
        weights=tuple(StrategyWeights(strategy, **said) for strategy, said in terms.items()),
    )
