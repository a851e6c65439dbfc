"""Read-only queries on quota: limits, amounts held, and requests that can never fit."""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple, TypeVar
from uuid import UUID

from django.db import connection
from django.db.models import F, Q, QuerySet

from foundation.clock import database_now
from foundation.problems import NotFound
from foundation.proofs import findings
from quotas.engine.borrowing import Book, Standing, path_prefixes, standing
from quotas.engine.holds import HoldRefusal, Limit, class_limit, never_fits
from quotas.engine.holds import UserLimit as UserLimitValue
from quotas.engine.reserved import Reserves, in_force_together
from quotas.engine.reserving import Reserved
from quotas.models import ClassLimit, HoldMovement, QuotaLimit, SubmissionLimit, UserHolding, UserLimit
from tenancy.queries import Actor, tenant_by_path, visible_tenants

from .kept_idle import IdleCost as IdleCost
from .kept_idle import idle_costs as idle_costs
from .proofs import FULL_PROOFS, PROOFS

M = TypeVar("M", QuotaLimit, UserLimit, SubmissionLimit, ClassLimit)


class Use(NamedTuple):
    """By resource (`gpu`, `cpu`, `memory`) in base units: what a tenant itself holds, and the weighted mean of what it
    held in the past, pending holds included.
    """

    held: dict[str, int]
    used: dict[str, float]


USES = """
WITH life AS MATERIALIZED (SELECT quotas_half_life() AS seconds), open AS (
    SELECT h.tenant_id, h.amounts, h.created_at, now() AS until, true AS is_held FROM quotas_hold AS h WHERE h.state = 'pending'
    UNION ALL
    SELECT k.tenant_id, k.amounts, k.created_at, least(now(), k.until_at), false FROM quotas_keptidle AS k WHERE k.ended_at IS NULL
), pending AS (
    SELECT o.tenant_id, asked.resource, sum(CASE WHEN o.is_held THEN asked.amount ELSE 0 END) AS held,
        sum(asked.amount * greatest(0, quotas_left_after(extract(epoch FROM now() - o.until)::double precision, life.seconds)
            - quotas_left_after(extract(epoch FROM now() - o.created_at)::double precision, life.seconds))) AS used
    FROM open AS o CROSS JOIN LATERAL quotas_counted(o.amounts) AS asked CROSS JOIN life
    GROUP BY o.tenant_id, asked.resource
), past AS (
    SELECT p.tenant_id, p.resource::text, p.level * quotas_left_after(
        extract(epoch FROM now() - p.at)::double precision, life.seconds) AS used
    FROM quotas_pastuse AS p CROSS JOIN life
)
SELECT t.path, resource, coalesce(pending.held, 0), coalesce(pending.used, 0) + coalesce(past.used, 0)
FROM pending FULL JOIN past USING (tenant_id, resource) JOIN tenancy_tenant AS t ON t.id = tenant_id
WHERE pending.held > 0 OR coalesce(pending.used, 0) + coalesce(past.used, 0) > 1e-3
"""


RESERVED = """
SELECT r.id, t.path, r.cluster_name, r.starts_at, r.until_at, r.amounts::text, coalesce((
           SELECT json_object_agg(used.key, used.amount)::text FROM (
               SELECT one.key, sum(one.value::bigint) AS amount FROM quotas_hold AS h, jsonb_each_text(h.amounts) AS one
                WHERE h.within_id = r.id AND h.state = 'pending' GROUP BY one.key) AS used), '{}')
  FROM quotas_reservedquota AS r JOIN tenancy_tenant AS t ON t.id = r.tenant_id
"""
RESERVED_BY_ID = f"{RESERVED} WHERE r.id = ANY(%s) ORDER BY r.id"
RESERVED_IN = f"""{RESERVED}
 WHERE r.until_at > r.starts_at AND r.starts_at < %s AND r.until_at > %s AND (t.path = %s OR starts_with(t.path, %s)) ORDER BY r.id
"""


def reserved_states(reserved_ids: Collection[UUID]) -> dict[UUID, Reserved]:
    """Reserved quota by id, with what pending holds within it use. No query without ids."""
    if not reserved_ids:
        return {}
    with connection.cursor() as cursor:
        cursor.execute(RESERVED_BY_ID, [list(reserved_ids)])
        return {row[0]: _reserved(*row) for row in cursor.fetchall()}


def reserved_in(tenant_path: str, start: datetime, until: datetime | None = None) -> list[Reserved]:
    """What a tenant's organisation reserved for times in [start, until), or from `start` on."""
    root = path_prefixes(tenant_path)[0]
    with connection.cursor() as cursor:
        cursor.execute(RESERVED_IN, [until or "infinity", start, root, f"{root}/"])
        return [_reserved(*row) for row in cursor.fetchall()]


def _reserved(  # noqa: PLR0913, PLR0917 - the columns of a row
    row_id: UUID, path: str, cluster: str, starts_at: datetime, until_at: datetime, amounts: str, used: str
) -> Reserved:
    reserved, now = (tuple(sorted(json.loads(text).items())) for text in (amounts, used))
    return Reserved(row_id, path, cluster, starts_at, until_at, reserved, now)


def limit_states() -> tuple[Limit, ...]:
    """Every current limit, root first."""
    return _values(QuotaLimit.objects.all())


def user_limit_states(tenant_paths: Collection[str] | None = None) -> tuple[UserLimitValue, ...]:
    """The limits on users, of these tenants or of all, with what users hold there. One query if there are none."""
    limits = UserLimit.objects.select_related("tenant").order_by("tenant__depth", "id")
    if tenant_paths is not None:
        limits = limits.filter(tenant__path__any_of=sorted(tenant_paths))
    rows = list(limits)
    held: dict[UUID, dict[UUID, int]] = {row.id: {} for row in rows}
    if rows:
        counts = UserHolding.objects.filter(limit_id__any_of=list(held), held__gt=0)
        for limit_id, user_id, amount in counts.values_list("limit_id", "user_id", "held"):
            held[limit_id][user_id] = amount
    return tuple(UserLimitValue(row.id, row.tenant.path, row.resource, row.most, held[row.id]) for row in rows)


def class_limit_states(class_names: Collection[str] | None = None) -> tuple[Limit, ...]:
    """The limits of these classes, or of all, in all tenants together and of tenants, with what their work holds."""
    rows = ClassLimit.objects.order_by("class_name", "resource", F("tenant__path").asc(nulls_first=True))
    if class_names is not None:
        rows = rows.filter(class_name__any_of=sorted(class_names))
    columns = rows.values_list("id", "class_name", "resource", "most", "held", "tenant__path")
    return tuple(
        class_limit(limit_id, name, resource, most, held, path or "")
        for limit_id, name, resource, most, held, path in columns
    )


def visible_class_limits(
    actor: Actor, *, tenant_path: str = "", class_name: str = "", resource: str = ""
) -> QuerySet[ClassLimit]:
    """The limits of classes at tenants that the actor may see; with `tenant_path`, those of that tenant and its descendants.
    Raises NotFound.
    """
    limits = _visible(actor, ClassLimit.objects.select_related("tenant"), tenant_path)
    limits = limits.filter(class_name=class_name) if class_name else limits
    return limits.filter(resource=resource) if resource else limits


def class_limit_by_id(actor: Actor, limit_id: UUID) -> ClassLimit:
    """A limit of a class at a tenant that the actor may see; otherwise raises NotFound."""
    limit = visible_class_limits(actor).filter(id=limit_id).first()
    if limit is None:
        raise NotFound
    return limit


def visible_user_limits(actor: Actor, *, tenant_path: str = "", resource: str = "") -> QuerySet[UserLimit]:
    """The limits on users that the actor may see; with `tenant_path`, those of that tenant and its descendants. Raises
    NotFound.
    """
    limits = _visible(actor, UserLimit.objects.select_related("tenant"), tenant_path)
    return limits.filter(resource=resource) if resource else limits


def user_limit_by_id(actor: Actor, limit_id: UUID) -> UserLimit:
    """A limit on users that the actor may see; otherwise raises NotFound."""
    limit = visible_user_limits(actor).filter(id=limit_id).first()
    if limit is None:
        raise NotFound
    return limit


def visible_submission_limits(actor: Actor, *, tenant_path: str = "") -> QuerySet[SubmissionLimit]:
    """The limits on submission that the actor may see; with `tenant_path`, those of that tenant and its descendants.
    Raises NotFound.
    """
    return _visible(actor, SubmissionLimit.objects.select_related("tenant"), tenant_path)


def submission_limit_by_id(actor: Actor, limit_id: UUID) -> SubmissionLimit:
    """A limit on submission that the actor may see; otherwise raises NotFound."""
    limit = visible_submission_limits(actor).filter(id=limit_id).first()
    if limit is None:
        raise NotFound
    return limit


def _visible(actor: Actor, limits: QuerySet[M], tenant_path: str) -> QuerySet[M]:
    if not tenant_path:
        return limits.filter(tenant__in=visible_tenants(actor))
    tenant = tenant_by_path(actor, tenant_path)
    return limits.filter(Q(tenant__path=tenant.path) | Q(tenant__path__startswith=f"{tenant.path}/"))


def current_limits(tenant_paths: Collection[str], resources: Collection[str]) -> list[QuotaLimit]:
    """The rows of the current limits of these tenants on these resources, with their tenants."""
    return list(
        QuotaLimit.objects.select_related("tenant").filter(
            tenant__path__any_of=sorted(tenant_paths), resource__any_of=sorted(resources), removed_at__isnull=True
        )
    )


def limits_on_path(tenant_path: str) -> tuple[Limit, ...]:
    """The current limits that apply to a tenant: its own and its ancestors', root first."""
    return _values(QuotaLimit.objects.filter(tenant__path__in=path_prefixes(tenant_path)))


def refusal_for_good(
    tenant_path: str, amounts_per_option: Sequence[tuple[str, Mapping[str, int]]], class_name: str = ""
) -> tuple[HoldRefusal, ...] | None:
    """None if an option (cluster name, amounts in base units) fits under the limits with nothing else held.

    Otherwise the reason why each option can never fit: only a larger limit helps, not the end of other work.
    """
    limits = limits_on_path(tenant_path)
    lending = QuotaLimit.objects.filter(parent_id__any_of=[limit.id for limit in limits], lending_limit__isnull=False)
    if limits and lending.filter(removed_at__isnull=True).exists():
        limits = limits_of_organisation(tenant_path)  # what is guaranteed to others is never free
    per_user = user_limit_states(path_prefixes(tenant_path))
    of_class = class_limit_states([class_name])
    return never_fits(tenant_path, amounts_per_option, (*limits, *of_class), per_user, class_name)


def limits_of_organisation(tenant_path: str) -> tuple[Limit, ...]:
    """The current limits of a tenant's organisation and of all tenants below it."""
    root = path_prefixes(tenant_path)[0]
    return _values(QuotaLimit.objects.filter(Q(tenant__path=root) | Q(tenant__path__startswith=f"{root}/")))


def standings(limits: Sequence[QuotaLimit]) -> dict[UUID, Standing]:
    """How current limits stand, by id: what each borrows, lends and can still take."""
    paths = {prefix for limit in limits for prefix in path_prefixes(limit.tenant.path)}
    around = QuotaLimit.objects.filter(
        tenant__path__any_of=sorted(paths), resource__any_of=sorted({limit.resource for limit in limits})
    )
    own = {limit.id: limit for limit in limits}
    book = Book((*(one for one in _values(around) if one.id not in own), *map(as_value, limits)))
    stand = {
        limit.id: standing(book.chain(as_value(limit)), limit.nominal, borrowed_at_most(limit)) for limit in limits
    }
    for root in {path_prefixes(path)[0] for path in paths}:
        for limit_id, (now, most) in _reserved_of(root).items():
            if limit_id in stand:
                stand[limit_id] = stand[limit_id]._replace(reserved=now, reserved_most=most)
    return stand


def _reserved_of(root: str) -> dict[UUID, tuple[int, int]]:
    """By limit of an organisation, what reservations keep of it now, and the most that they keep at any time from now on."""
    at = database_now()
    kept = reserved_in(root, at)
    if not kept:
        return {}
    reserves = Reserves(Book(limits_of_organisation(root)), kept)
    now = reserves.kept([one for one in kept if one.is_in_force(at)], at)
    most = dict(now)
    for begin, together in in_force_together(kept):
        for limit_id, amount in reserves.kept(together, begin).items():
            most[limit_id] = max(amount, most.get(limit_id, 0))
    return {limit_id: (now.get(limit_id, 0), amount) for limit_id, amount in most.items()}


def borrowed_at_most(limit: QuotaLimit) -> int:
    """The most that a limit may hold above its nominal amount."""
    return limit.most - limit.nominal


def visible_limits(actor: Actor, *, tenant_path: str = "", resource: str = "") -> QuerySet[QuotaLimit]:
    """Current limits that the actor may see; with `tenant_path`, those of that tenant and its descendants. Raises
    NotFound.
    """
    limits = _visible(actor, QuotaLimit.objects.select_related("tenant").filter(removed_at__isnull=True), tenant_path)
    return limits.filter(resource=resource) if resource else limits


def limit_by_id(actor: Actor, limit_id: UUID) -> QuotaLimit:
    """A current limit that the actor may see; otherwise raises NotFound."""
    limit = visible_limits(actor).filter(id=limit_id).first()
    if limit is None:
        raise NotFound
    return limit


def uses() -> dict[str, Use]:
    """By path, what tenants themselves hold now, and what they held in the past or had kept idle for them, where either is not
    zero.
    """
    with connection.cursor() as cursor:
        cursor.execute(USES)
        rows = cursor.fetchall()
    found: dict[str, Use] = {}
    for path, resource, held, used in rows:
        use = found.setdefault(path, Use({}, {}))
        use.held[resource], use.used[resource] = int(held), used
    return found


def discrepancies(since_movement: int = 0) -> tuple[str, ...]:
    """Errors in the quota records, as sentences; empty if counters equal the journal and the journal is complete.

    With `since_movement`, checks only pending holds and holds that the journal names after that line.
    """
    return tuple(findings(FULL_PROOFS if since_movement == 0 else PROOFS, {"since": since_movement}))


def newest_movement() -> int:
    """The id of the journal's last line."""
    return HoldMovement.objects.order_by("-id").values_list("id", flat=True).first() or 0


def _values(limits: QuerySet[QuotaLimit]) -> tuple[Limit, ...]:
    rows: Iterable[QuotaLimit] = (
        limits.filter(removed_at__isnull=True).select_related("tenant").order_by("tenant__depth", "id")
    )
    return tuple(as_value(row) for row in rows)


def as_value(row: QuotaLimit) -> Limit:
    """A limit's row as the engine's value."""
    return Limit(
        id=row.id,
        tenant_path=row.tenant.path,
        resource=row.resource,
        clusters=tuple(row.clusters),
        nominal=row.nominal,
        cap=row.cap,
        held=row.held,
        borrowing_limit=row.borrowing_limit,
        guaranteed=row.guaranteed,
        reclaims=row.reclaims,
    )
