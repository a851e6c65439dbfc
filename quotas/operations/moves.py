"""What a tenant holds moves with it in the tree."""

from collections import Counter
from collections.abc import Iterable, Sequence
from uuid import UUID

from django.db.models import F, Q
from django.db.models.functions import Greatest, Now

from foundation.outbox import announce
from foundation.problems import Conflict
from quotas import locks
from quotas.engine.amounts import format_amount
from quotas.engine.borrowing import path_prefixes
from quotas.engine.moves import Held, Overrun, overruns
from quotas.models import ClassLimit, Hold, ReservedQuota, UserHolding, UserLimit
from quotas.queries import limits_of_organisation
from tenancy.models import Tenant

from .limits import guarantee_not_free


def take_holds_along(sender: object, *, tenant: Tenant, new_parent: Tenant, **_: object) -> None:  # noqa: ARG001 - a signal's receiver
    """Prepares the move of a tenant with all that work of it, or of a descendant, holds. Triggers move that with the tenant, in
    the same statement (`sql/moves.sql`).

    Refuses it if a limit above the new place does not have what would be held there, or what its limits guarantee; and while there
    are reservations, which count against limits on the old path.
    """
    locks.stop_takers_at(tenant.id, new_parent.id)
    _refuse_reservations(tenant)
    holds = locks.lock_pending_below(tenant.path)
    paths = dict(Tenant.objects.filter(id__any_of=list({hold.tenant_id for hold in holds})).values_list("id", "path"))
    work = [Held(paths[hold.tenant_id], hold.cluster_name, hold.amounts) for hold in holds]
    limits = limits_of_organisation(tenant.path)
    for one in overruns(limits, _summed(work), tenant.path, f"{new_parent.path}/{tenant.name}"):
        if any(held.amounts.get(one.limit.resource) for held in work):
            raise _does_not_fit(tenant, one)
        raise guarantee_not_free(one.limit, one.limit.held - one.held, max(0, one.limit.nominal - one.held))
    _check_users(tenant, new_parent, holds)
    _check_classes(tenant, new_parent, holds)
    announce("cycle")


def _summed(work: Iterable[Held]) -> list[Held]:
    """By tenant and cluster."""
    found: dict[tuple[str, str], Counter[str]] = {}
    for held in work:
        found.setdefault((held.tenant_path, held.cluster), Counter()).update(held.amounts)
    return [Held(*place, amounts) for place, amounts in found.items()]


def _does_not_fit(tenant: Tenant, one: Overrun) -> Conflict:
    limit = one.limit
    held, more, most = (format_amount(limit.resource, amount) for amount in (one.held, limit.held - one.held, one.most))
    where = f" on {', '.join(limit.clusters)}" if limit.clusters else ""
    return Conflict(
        f"The work of {tenant.path} does not fit at its new place: {limit.tenant_path} may hold {most} {limit.resource}{where}, holds"
        f" {held}, and would hold {more} more. Raise that limit, or move the tenant when enough work has ended.",
        code="moved_work_does_not_fit",
    )


def _refuse_reservations(tenant: Tenant) -> None:
    below = Q(tenant__path=tenant.path) | Q(tenant__path__startswith=f"{tenant.path}/")
    open_ones = ReservedQuota.objects.filter(below, until_at__gt=Greatest(Now(), F("starts_at")))
    if (number := open_ones.count()) > 0:
        has = "1 reservation" if number == 1 else f"{number} reservations"
        raise Conflict(
            f"{tenant.path} has {has} that count against the limits on its path. Move the tenant when they have ended,"
            " or cancel them.",
            code="tenant_has_reservations",
        )


def _check_users(tenant: Tenant, new_parent: Tenant, holds: Sequence[Hold]) -> None:
    """Refuses a move by which a user would hold more at the new place than each user may there."""
    above = _newly_above(tenant, new_parent)
    for limit in UserLimit.objects.filter(tenant__path__any_of=above).select_related("tenant").order_by("id"):
        moving: Counter[UUID] = Counter()
        for hold in holds:
            if hold.user_id is not None:
                moving[hold.user_id] += hold.amounts.get(limit.resource, 0)
        held = dict(UserHolding.objects.filter(limit=limit).values_list("user_id", "held"))
        over = [more + held.get(user, 0) for user, more in moving.items() if more]
        if over and max(over) > limit.most:
            would, most = (format_amount(limit.resource, amount) for amount in (max(over), limit.most))
            raise Conflict(
                f"The work of {tenant.path} does not fit at its new place: each user in {limit.tenant.path} may hold {most}"
                f" {limit.resource}, and a user would hold {would}. Move the tenant when enough work has ended.",
                code="moved_work_does_not_fit",
            )


def _check_classes(tenant: Tenant, new_parent: Tenant, holds: Sequence[Hold]) -> None:
    """Refuses a move by which a class would hold more at the new place than it may there."""
    moving: Counter[tuple[str, str]] = Counter()
    for hold in holds:
        for resource, amount in hold.amounts.items():
            moving[hold.class_name, resource] += amount
    above = _newly_above(tenant, new_parent)
    names = sorted({name for name, _ in moving if name})
    limits = ClassLimit.objects.filter(tenant__path__any_of=above, class_name__any_of=names)
    limits = limits.annotate(tenant_path=F("tenant__path"))
    for limit in limits.order_by("tenant__depth", "id"):
        more = moving[limit.class_name, limit.resource]
        if more and limit.held + more > limit.most:
            held, rise, most = (format_amount(limit.resource, amount) for amount in (limit.held, more, limit.most))
            raise Conflict(
                f"The work of {tenant.path} does not fit at its new place: the class {limit.class_name} may hold {most}"
                f" {limit.resource} in {limit.tenant_path}, holds {held}, and would hold {rise} more. Raise that limit, or move"
                " the tenant when enough work has ended.",
                code="moved_work_does_not_fit",
            )


def _newly_above(tenant: Tenant, new_parent: Tenant) -> list[str]:
    """The paths above the new place that are not above the old one."""
    return sorted(set(path_prefixes(new_parent.path)) - set(path_prefixes(tenant.path)))
