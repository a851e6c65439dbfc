"""Creates, changes and removes limits on what each user may hold, and counts for holds what their users hold."""

from collections import defaultdict
from collections.abc import Collection, Sequence
from uuid import UUID

from django.db import connection, transaction
from django.db.models.functions import Now

from foundation.outbox import announce
from foundation.problems import Invalid
from quotas import locks
from quotas.engine.amounts import KINDS, MAX_AMOUNT, format_amount, is_resource
from quotas.engine.borrowing import path_prefixes
from quotas.engine.holds import HoldRequest
from quotas.engine.holds import UserLimit as UserLimitValue
from quotas.models import UserLimit
from quotas.queries import user_limit_by_id
from tenancy.operations import record_audit
from tenancy.queries import Actor, tenant_by_path

from .limits import require_from_above


def lock_users_of(requests: Sequence[HoldRequest], tenant_paths: Collection[str]) -> list[UserLimitValue]:
    """The limits on users of these tenants, with what the users of the requests hold. Those counts that the requests may
    change are locked until commit. Without such limits it locks nothing.
    """
    with connection.cursor() as cursor:  # in SQL, because each batch of holds runs it
        cursor.execute("SELECT EXISTS (SELECT FROM quotas_userlimit)")
        (are_any,) = cursor.fetchone()
    if not are_any:
        return []
    limits = list(UserLimit.objects.filter(tenant__path__any_of=sorted(tenant_paths)).select_related("tenant"))
    by_path: dict[str, list[UserLimit]] = defaultdict(list)
    for limit in limits:
        by_path[limit.tenant.path].append(limit)
    due = {
        (limit.id, request.user_id)
        for request in requests
        if request.user_id is not None
        for path in path_prefixes(request.tenant_path)
        for limit in by_path.get(path, ())
        if request.amounts.get(limit.resource, 0) > 0
    }
    counts: dict[UUID, dict[UUID, int]] = defaultdict(dict)
    if due:
        pairs = sorted(due)
        columns = [limit_id for limit_id, _ in pairs], [user_id for _, user_id in pairs]
        with connection.cursor() as cursor:
            cursor.execute(BEGIN_COUNTS, columns)
        for limit_id, user_id, held in locks.lock_counts_of_users(*columns):
            counts[limit_id][user_id] = held
    return [UserLimitValue(one.id, one.tenant.path, one.resource, one.most, counts[one.id]) for one in limits]


BEGIN_COUNTS = """
INSERT INTO quotas_userholding (limit_id, user_id, held)
SELECT due.limit_id, due.user_id, 0 FROM unnest(%s::uuid[], %s::uuid[]) AS due(limit_id, user_id)
ORDER BY due.limit_id, due.user_id ON CONFLICT DO NOTHING
"""
"""So that takers have a row to wait for before the first hold of a user."""


def put_user_limit(actor: Actor, tenant_path: str, resource: str, *, most: int) -> tuple[UserLimit, bool]:
    """The limit on each user after the change, and whether it is new. `most` is in base units.

    What users hold counts immediately. A user who holds more keeps it, and starts nothing new until enough has ended. The
    actor must manage quotas one level above the tenant. Raises NotFound, NotAllowedHere and Invalid.
    """
    tenant = tenant_by_path(actor, tenant_path)
    require_from_above(actor, tenant)
    if not is_resource(resource):
        raise Invalid.field("resource", "unknown_resource", KINDS)
    if not 0 <= most <= MAX_AMOUNT:
        raise Invalid.field("most", "out_of_range", "not a valid amount")
    with transaction.atomic():
        locks.stop_takers_at(tenant.id)
        limit = UserLimit.objects.filter(tenant=tenant, resource=resource).first()
        was = None if limit is None else limit.most
        if limit is None:
            limit = UserLimit.objects.create(tenant=tenant, resource=resource, most=most)
        else:
            UserLimit.objects.filter(id=limit.id).update(most=most, updated_at=Now())
        _record(actor, "user_limit.put", limit, {"most": format_amount(resource, most), "was": _shown(limit, was)})
    return UserLimit.objects.select_related("tenant").get(id=limit.id), was is None


def delete_user_limit(actor: Actor, limit_id: UUID) -> None:
    """Removes a limit on each user. Raises NotFound and NotAllowedHere."""
    found = user_limit_by_id(actor, limit_id)
    require_from_above(actor, found.tenant)
    with transaction.atomic():
        locks.stop_takers_at(found.tenant_id)
        UserLimit.objects.filter(id=limit_id).delete()
        _record(actor, "user_limit.delete", found, {"was": _shown(found, found.most)})


def _record(actor: Actor, action: str, limit: UserLimit, detail: dict[str, str | None]) -> None:
    detail = {"resource": limit.resource, **detail}
    record_audit(actor, action, object_kind="user_limit", object_id=limit.id, tenant_id=limit.tenant_id, detail=detail)
    announce("cycle")


def _shown(limit: UserLimit, amount: int | None) -> str | None:
    return None if amount is None else format_amount(limit.resource, amount)
