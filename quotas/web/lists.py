"""What the quota pages show, as frozen values."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from django.db.models import BooleanField, Count, ExpressionWrapper, Max, Q, QuerySet
from django.db.models.functions import Now

from quotas.engine.borrowing import Standing
from quotas.models import QuotaLimit
from quotas.queries import (
    standings,
    visible_class_limits,
    visible_limits,
    visible_submission_limits,
    visible_user_limits,
)
from tenancy.engine.roles import Permission
from tenancy.models import Tenant
from tenancy.queries import Actor, visible_tenants


@dataclass(frozen=True, slots=True)
class LimitRow:
    """One limit, with amounts in base units. `may_edit`: the actor manages quotas one level above it."""

    id: UUID
    resource: str
    clusters: tuple[str, ...]
    nominal: int
    held: int
    standing: Standing
    surplus: int
    """What is held beyond the limit, because it was lowered and too few holds have ended since."""
    reclaim_at: datetime | None
    """When that is taken back; None if it only falls as jobs end."""
    is_reclaiming: bool
    """Whether that time has come."""
    updated_at: datetime
    may_edit: bool

    @property
    def own(self) -> int:
        """What is held without what is borrowed."""
        return self.held - self.standing.borrowed

    @property
    def elsewhere(self) -> int:
        """What is borrowed from others, or lent to them: a limit that borrows lends nothing."""
        return self.standing.borrowed + self.standing.lent

    @property
    def reach(self) -> int:
        """The whole of the bar: the nominal amount, with what is borrowed."""
        return max(self.nominal, self.held)


@dataclass(frozen=True, slots=True)
class TenantLimits:
    """A tenant with its limits, at its depth in the tree."""

    tenant_id: UUID
    name: str
    path: str
    kind: str
    indent: int
    limits: tuple[LimitRow, ...]


@dataclass(frozen=True, slots=True)
class UserLimitRow:
    """A limit on each user; `users` hold something under it, `largest` is what one of them holds most."""

    id: UUID
    tenant_id: UUID
    name: str
    path: str
    resource: str
    most: int
    users: int
    largest: int
    may_edit: bool


@dataclass(frozen=True, slots=True)
class ClassLimitRow:
    """A limit of a priority class at a tenant, with what its jobs hold there and below, in base units."""

    id: UUID
    tenant_id: UUID
    name: str
    path: str
    class_name: str
    resource: str
    most: int
    held: int
    may_edit: bool


@dataclass(frozen=True, slots=True)
class SubmissionLimitRow:
    """A limit on submission."""

    id: UUID
    tenant_id: UUID
    name: str
    path: str
    most_waiting: int | None
    jobs_per_minute: int | None
    may_edit: bool


def user_limit_rows(actor: Actor, among: QuerySet[Tenant]) -> tuple[UserLimitRow, ...]:
    """The limits on each user of the tenants in `among`, parents first."""
    editable = _editable_paths(actor)
    holding = Q(holdings__held__gt=0)
    rows = visible_user_limits(actor).filter(tenant__in=among)
    rows = rows.annotate(users=Count("holdings", filter=holding), largest=Max("holdings__held", default=0))
    return tuple(
        UserLimitRow(
            id=row.id,
            tenant_id=row.tenant_id,
            name=row.tenant.name,
            path=row.tenant.path,
            resource=row.resource,
            most=row.most,
            users=row.users,
            largest=row.largest,
            may_edit=row.tenant.path in editable,
        )
        for row in rows.order_by("tenant__path", "resource")
    )


def class_limit_rows(actor: Actor, among: QuerySet[Tenant]) -> tuple[ClassLimitRow, ...]:
    """The limits of priority classes at the tenants in `among`, parents first."""
    editable = _editable_paths(actor)
    rows = visible_class_limits(actor).filter(tenant__in=among).order_by("tenant__path", "class_name", "resource")
    return tuple(
        ClassLimitRow(
            id=row.id,
            tenant_id=row.tenant.id,
            name=row.tenant.name,
            path=row.tenant.path,
            class_name=row.class_name,
            resource=row.resource,
            most=row.most,
            held=row.held,
            may_edit=row.tenant.path in editable,
        )
        for row in rows
        if row.tenant is not None
    )


def submission_limit_rows(actor: Actor, among: QuerySet[Tenant]) -> tuple[SubmissionLimitRow, ...]:
    """The limits on submission of the tenants in `among`, parents first."""
    editable = _editable_paths(actor)
    return tuple(
        SubmissionLimitRow(
            id=row.id,
            tenant_id=row.tenant_id,
            name=row.tenant.name,
            path=row.tenant.path,
            most_waiting=row.most_waiting,
            jobs_per_minute=row.jobs_per_minute,
            may_edit=row.tenant.path in editable,
        )
        for row in visible_submission_limits(actor).filter(tenant__in=among).order_by("tenant__path")
    )


def quota_tree(actor: Actor, among: QuerySet[Tenant]) -> tuple[TenantLimits, ...]:
    """The tenants in `among` that have limits, parents first."""
    editable = _editable_paths(actor)
    limits: dict[UUID, list[QuotaLimit]] = {}
    tenants: dict[str, QuotaLimit] = {}
    is_due = ExpressionWrapper(Q(reclaim_at__lte=Now()), output_field=BooleanField(null=True))
    found = visible_limits(actor).filter(tenant__in=among).annotate(is_reclaiming=is_due)
    rows = list(found.order_by("resource", "clusters"))
    stand = standings(rows)
    for limit in rows:
        limits.setdefault(limit.tenant_id, []).append(limit)
        tenants[limit.tenant.path] = limit
    top = min((limit.tenant.depth for limit in tenants.values()), default=0)
    ordered = sorted(tenants.items(), key=lambda item: item[0].split("/"))
    return tuple(
        TenantLimits(
            tenant_id=limit.tenant_id,
            name=limit.tenant.name,
            path=path,
            kind=limit.tenant.kind,
            indent=limit.tenant.depth - top,
            limits=tuple(_row(row, stand[row.id], editable) for row in limits[limit.tenant_id]),
        )
        for path, limit in ordered
    )


def editable_tenants(actor: Actor) -> tuple[str, ...]:
    """Paths of tenants whose limits the actor may set."""
    return tuple(sorted(_editable_paths(actor)))


def _editable_paths(actor: Actor) -> Mapping[str, bool]:
    managed = set(visible_tenants(actor, Permission.MANAGE_QUOTAS).values_list("path", flat=True))
    return {path: True for path in managed if "/" not in path or path.rpartition("/")[0] in managed}


def _row(limit: QuotaLimit, standing: Standing, editable: Mapping[str, bool]) -> LimitRow:
    return LimitRow(
        id=limit.id,
        resource=limit.resource,
        clusters=tuple(limit.clusters),
        nominal=limit.nominal,
        held=limit.held,
        standing=standing,
        surplus=limit.surplus,
        reclaim_at=limit.reclaim_at,
        is_reclaiming=bool(limit.is_reclaiming),  # type: ignore[attr-defined]
        updated_at=limit.updated_at,
        may_edit=limit.tenant.path in editable,
    )
