"""The locking functions of this room. They use one order: tenants by id, holds by id, limits from the leaves up by
(depth, deepest first, id), what users hold by (limit, user), limits of classes from the leaves up by (depth, deepest first, id),
those of all tenants last.

The triggers (`sql/limits.sql`, `sql/holds.sql`, `sql/moves.sql`) lock holds and limits in the same order. They lock a limit only if what
counts there changes, so work inside a guarantee locks no limit above it. The end of holds then locks the half-life and past
use by tenant and resource (`sql/past_use.sql`), what users hold (`sql/people.sql`), and limits of classes (`sql/classes.sql`). Take or end holds only once per transaction: a second pass could
meet another transaction's locks in the opposite order.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from uuid import UUID

from django.db import connection
from django.db.models import Q

from tenancy.models import Tenant

from .engine.borrowing import path_prefixes
from .engine.holds import HoldRequest, Limit, class_limit
from .models import ClassLimit, Hold, QuotaLimit


def stop_takers_at(*tenant_ids: UUID) -> None:
    """Waits for every transaction that takes holds at these tenants or changes limits on their paths, and blocks new
    ones until commit.
    """
    own = Tenant.objects.filter(id__any_of=list(tenant_ids))
    paths = {prefix for path in own.values_list("path", flat=True) for prefix in path_prefixes(path)}
    found = Tenant.objects.filter(Q(id__any_of=list(tenant_ids)) | Q(path__any_of=sorted(paths)))
    list(found.order_by("id").select_for_update(no_key=True).values_list("id"))


def lock_rising(limits: Sequence[QuotaLimit], asked: Mapping[UUID, int]) -> list[QuotaLimit]:
    """The limits as they are now. Those that change if all that is `asked` is taken are locked until commit.

    `asked` is the amount by limit; `limits` has these and all above them, with their tenants.
    """
    rows = {limit.id: limit for limit in limits}
    waiting = defaultdict(int, asked)
    while waiting:
        deepest = max(rows[limit_id].tenant.depth for limit_id in waiting)
        level = [limit_id for limit_id in waiting if rows[limit_id].tenant.depth == deepest]
        for limit in _locked(level):
            rows[limit.id] = limit
            rise = max(limit.held + waiting.pop(limit.id), limit.guaranteed) - limit.claim
            if rise > 0 and limit.parent_id is not None:
                waiting[limit.parent_id] += rise
        for limit_id in level:
            waiting.pop(limit_id, None)
    return list(rows.values())


def lock_above(limit: QuotaLimit) -> list[QuotaLimit]:
    """The limit and those that it borrows from, from it up, as they are now, locked until commit."""
    found = _locked([limit.id])
    while found[-1].parent_id is not None:
        found += _locked([found[-1].parent_id])
    return found


def lock_branch(limit_id: UUID) -> QuotaLimit | None:
    """A current limit, locked until commit after the limits that lend to it or borrow from it."""
    children = QuotaLimit.objects.filter(parent=limit_id).order_by("-tenant__depth", "id")
    list(children.select_for_update(of=("self",), no_key=True).values_list("id"))
    limits = QuotaLimit.objects.select_for_update(of=("self",), no_key=True).select_related("tenant")
    return limits.filter(id=limit_id, removed_at__isnull=True).first()


def _locked(ids: Collection[UUID]) -> list[QuotaLimit]:
    limits = QuotaLimit.objects.select_related("tenant").filter(id__any_of=list(ids))
    return list(limits.order_by("id").select_for_update(of=("self",), no_key=True))


def lock_counts_of_users(limit_ids: Sequence[UUID], user_ids: Sequence[UUID]) -> list[tuple[UUID, UUID, int]]:
    """What these users hold under these limits, each pair (limit, user) locked until commit."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT own.limit_id, own.user_id, own.held FROM quotas_userholding AS own"
            " JOIN unnest(%s::uuid[], %s::uuid[]) AS due(limit_id, user_id) USING (limit_id, user_id)"
            " ORDER BY own.limit_id, own.user_id FOR NO KEY UPDATE OF own",
            [list(limit_ids), list(user_ids)],
        )
        found: list[tuple[UUID, UUID, int]] = cursor.fetchall()
        return found


def lock_limits_of_classes(requests: Iterable[HoldRequest]) -> list[Limit]:
    """The limits of the requests' classes that the requests may change, on their paths and in all tenants, as they are now, locked
    until commit. Without a class it runs no query.
    """
    due = {
        (one.class_name, name, path)
        for one in requests
        if one.class_name
        for name, amount in one.amounts.items()
        if amount > 0
        for path in ("", *path_prefixes(one.tenant_path))
    }
    if not due:
        return []
    with connection.cursor() as cursor:  # in SQL, because each batch of holds runs it
        cursor.execute(
            "SELECT own.id, own.class_name, own.resource, own.most, own.held, coalesce(t.path, '')"
            " FROM quotas_classlimit AS own LEFT JOIN tenancy_tenant AS t ON t.id = own.tenant_id"
            " WHERE (own.class_name, own.resource, coalesce(t.path, '')) IN"
            " (SELECT * FROM unnest(%s::text[], %s::text[], %s::text[]))"
            " ORDER BY t.depth DESC NULLS LAST, own.id FOR NO KEY UPDATE OF own",
            [list(column) for column in zip(*sorted(due), strict=True)],
        )
        return [class_limit(*row) for row in cursor.fetchall()]


def lock_class_limits(class_name: str, resources: Collection[str], tenant_id: UUID | None = None) -> list[ClassLimit]:
    """The limits of a class on these resources at a tenant, or in all tenants together, locked until commit."""
    own = ClassLimit.objects.filter(class_name=class_name, resource__in=resources, tenant=tenant_id)
    return list(own.order_by("id").select_for_update(no_key=True))


def stop_all_takers() -> None:
    """Waits for every transaction that takes holds, and blocks new ones until commit: each locks the organisation above it."""
    list(Tenant.objects.filter(parent=None).order_by("id").select_for_update(no_key=True).values_list("id"))


def stop_endings() -> None:
    """Waits for every transaction that begins or ends a hold, and blocks new ones until commit. Only after `stop_all_takers`.

    Who ends a hold first locks its row, then limits, then the table: so all pending rows are locked before the table.
    """
    pending = Hold.objects.filter(state=Hold.State.PENDING).order_by("holder_id")
    list(pending.select_for_update(no_key=True).values_list("holder_id"))
    with connection.cursor() as cursor:
        cursor.execute("LOCK TABLE quotas_hold IN SHARE ROW EXCLUSIVE MODE")


def lock_pending(holder_ids: Collection[UUID]) -> list[UUID]:
    """The holders whose hold is pending, locked until commit."""
    return list(
        Hold.objects.filter(holder_id__any_of=list(holder_ids), state=Hold.State.PENDING)
        .order_by("holder_id")
        .select_for_update(no_key=True)
        .values_list("holder_id", flat=True)
    )


def lock_pending_below(*tenant_paths: str) -> list[Hold]:
    """Every pending hold of the tenants and their descendants, locked until commit."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT h.holder_id FROM quotas_hold AS h JOIN tenancy_tenant AS t ON t.id = h.tenant_id"
            " WHERE h.state = 'pending' AND EXISTS (SELECT FROM unnest(%s::text[]) AS root(path)"
            " WHERE t.path = root.path OR starts_with(t.path, root.path || '/'))"
            " ORDER BY h.holder_id FOR NO KEY UPDATE OF h",
            [list(tenant_paths)],
        )
        found = [row[0] for row in cursor.fetchall()]
    return list(Hold.objects.filter(holder_id__any_of=found, state=Hold.State.PENDING))
