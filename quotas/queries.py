"""Read-only queries on quota: limits, amounts held, and requests that can never fit."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple, TypeVar
from uuid import UUID

from django.db import connection
from django.db.models import Q, QuerySet

from foundation.problems import NotFound
from foundation.proofs import findings
from tenancy.queries import Actor, tenant_by_path, visible_tenants

from .engine.borrowing import Book, Standing, path_prefixes, standing
from .engine.holds import HoldRefusal, Limit, never_fits
from .engine.holds import UserLimit as UserLimitValue
from .models import HoldMovement, QuotaLimit, SubmissionLimit, UserHolding, UserLimit

M = TypeVar("M", QuotaLimit, UserLimit, SubmissionLimit)


class Use(NamedTuple):
    """By resource (`gpu`, `cpu`, `memory`) in base units: what a tenant itself holds, and the weighted mean of what it
    held in the past, pending holds included.
    """

    held: dict[str, int]
    used: dict[str, float]


USES = """
WITH life AS MATERIALIZED (SELECT quotas_half_life() AS seconds), pending AS (
    SELECT h.tenant_id, asked.resource, sum(asked.amount) AS held, sum(asked.amount * (1 - quotas_left_after(
            extract(epoch FROM now() - h.created_at)::double precision, life.seconds))) AS used
    FROM quotas_hold AS h CROSS JOIN LATERAL quotas_counted(h.amounts) AS asked CROSS JOIN life
    WHERE h.state = 'pending' GROUP BY h.tenant_id, asked.resource
), past AS (
    SELECT p.tenant_id, p.resource::text, p.level * quotas_left_after(
        extract(epoch FROM now() - p.at)::double precision, life.seconds) AS used
    FROM quotas_pastuse AS p CROSS JOIN life
)
SELECT t.path, resource, coalesce(pending.held, 0), coalesce(pending.used, 0) + coalesce(past.used, 0)
FROM pending FULL JOIN past USING (tenant_id, resource) JOIN tenancy_tenant AS t ON t.id = tenant_id
WHERE pending.held > 0 OR coalesce(past.used, 0) > 1e-3
"""


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
    tenant_path: str, amounts_per_option: Sequence[tuple[str, Mapping[str, int]]]
) -> tuple[HoldRefusal, ...] | None:
    """None if an option (cluster name, amounts in base units) fits under the limits with nothing else held.

    Otherwise the reason why each option can never fit: only a larger limit helps, not the end of other work.
    """
    limits = limits_on_path(tenant_path)
    lending = QuotaLimit.objects.filter(parent_id__any_of=[limit.id for limit in limits], lending_limit__isnull=False)
    if limits and lending.filter(removed_at__isnull=True).exists():
        limits = limits_of_organisation(tenant_path)  # what is guaranteed to others is never free
    per_user = user_limit_states(path_prefixes(tenant_path))
    return never_fits(tenant_path, amounts_per_option, limits, per_user)


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
    return {limit.id: standing(book.chain(as_value(limit)), limit.nominal, borrowed_at_most(limit)) for limit in limits}


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
    """By path, what tenants themselves hold now, and what they held in the past, where either is not zero."""
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


AMOUNT = "CASE jsonb_typeof(h.amounts -> l.resource) WHEN 'number' THEN (h.amounts ->> l.resource)::numeric ELSE 0 END"
"""The amount that a hold requests of a limit's resource; zero if it is not a number."""
CHANGED = """
SELECT hold_id FROM quotas_holdmovement WHERE id > %(since)s
UNION SELECT holder_id FROM quotas_hold WHERE state = 'pending' OR %(since)s = 0
"""
DUE = """
SELECT t.id AS tenant, l.id, l.resource, l.clusters, above.path
FROM tenancy_tenant AS t CROSS JOIN LATERAL (SELECT string_to_array(t.path, '/') AS names) AS split
CROSS JOIN LATERAL generate_series(1, cardinality(split.names)) AS length
JOIN tenancy_tenant AS above ON above.path = array_to_string(split.names[1:length], '/')
JOIN quotas_quotalimit AS l ON l.tenant_id = above.id AND l.removed_at IS NULL
WHERE EXISTS (SELECT 1 FROM quotas_hold WHERE tenant_id = t.id AND state = 'pending')
"""
"""The limits that count for each tenant with holds. It matches equal paths instead of comparing every pair."""
CLAIMED = """
LEFT JOIN (SELECT parent_id, sum(claim::numeric) AS amount FROM quotas_quotalimit GROUP BY parent_id)
    AS claimed ON claimed.parent_id = l.id
"""
"""What the limits below a limit claim of it."""
PROOFS = (
    (
        "limit {0} counts {1} held, but its pending holds and the claims of limits below it are {2}",
        f"""
        SELECT l.id, l.held, coalesce(taken.amount, 0) + coalesce(claimed.amount, 0) FROM quotas_quotalimit AS l {CLAIMED}
        LEFT JOIN (SELECT m.limit_id, sum(m.amount::numeric) AS amount FROM quotas_hold AS h
            JOIN quotas_holdmovement AS m ON m.hold_id = h.holder_id
            WHERE h.state = 'pending' GROUP BY m.limit_id) AS taken ON taken.limit_id = l.id
        WHERE l.held <> coalesce(taken.amount, 0) + coalesce(claimed.amount, 0) ORDER BY l.id
        """,
    ),
    (
        "limit {0} claims {1} of the limit above it, but should claim {2}",
        """
        SELECT id, claim, due FROM quotas_quotalimit CROSS JOIN LATERAL (SELECT CASE
            WHEN removed_at IS NULL THEN greatest(held, nominal - coalesce(lending_limit, nominal)) ELSE held END AS due) AS law
        WHERE claim <> due ORDER BY id
        """,
    ),
    (
        "limit {0} borrows from limit {1}, but the nearest one above it is {2}",
        """
        SELECT l.id, l.parent_id, due.id FROM quotas_quotalimit AS l JOIN tenancy_tenant AS t ON t.id = l.tenant_id
        CROSS JOIN LATERAL (SELECT quotas_nearest_limit(
            CASE WHEN l.removed_at IS NULL THEN t.parent_id ELSE t.id END, l.resource, l.clusters) AS id) AS due
        WHERE l.parent_id IS DISTINCT FROM due.id ORDER BY l.id
        """,
    ),
    (
        "user {1} holds {2} under limit {0}, but the user's pending holds there are {3}",
        f"""
        SELECT due.limit_id, due.user_id, coalesce(own.held, 0), due.amount FROM (
            SELECT l.id AS limit_id, h.user_id, sum({AMOUNT}) AS amount FROM quotas_userlimit AS l
            JOIN tenancy_tenant AS lt ON lt.id = l.tenant_id
            JOIN tenancy_tenant AS t ON t.path = lt.path OR starts_with(t.path, lt.path || '/')
            JOIN quotas_hold AS h ON h.tenant_id = t.id AND h.state = 'pending'
            WHERE h.user_id IS NOT NULL GROUP BY l.id, h.user_id
        ) AS due LEFT JOIN quotas_userholding AS own USING (limit_id, user_id)
        WHERE coalesce(own.held, 0) <> due.amount
        UNION ALL SELECT own.limit_id, own.user_id, own.held, 0 FROM quotas_userholding AS own
            JOIN quotas_userlimit AS l ON l.id = own.limit_id JOIN tenancy_tenant AS lt ON lt.id = l.tenant_id
            WHERE own.held <> 0 AND NOT EXISTS (
                SELECT 1 FROM quotas_hold AS h JOIN tenancy_tenant AS t ON t.id = h.tenant_id
                WHERE h.user_id = own.user_id AND h.state = 'pending'
                    AND (t.path = lt.path OR starts_with(t.path, lt.path || '/')))
        ORDER BY 1, 2
        """,
    ),
    (
        "limit {0} holds {1}, more than its cap {2}",
        "SELECT id, held, cap FROM quotas_quotalimit WHERE held > cap OR held < 0 ORDER BY id",
    ),
    (
        "{1} hold {0} holds {2}, but its journal lines sum to {3}",
        f"""
        SELECT h.holder_id, h.state, due.amount, due.counted FROM ({CHANGED}) AS changed
        JOIN quotas_hold AS h ON h.holder_id = changed.hold_id
        CROSS JOIN LATERAL (
            SELECT CASE h.state WHEN 'pending' THEN max({AMOUNT}) ELSE 0 END AS amount, sum(m.amount::numeric) AS counted
            FROM quotas_holdmovement AS m JOIN quotas_quotalimit AS l ON l.id = m.limit_id
            WHERE m.hold_id = h.holder_id GROUP BY l.resource, l.clusters) AS due
        WHERE due.amount <> due.counted ORDER BY h.holder_id
        """,
    ),
    (
        "pending hold {0} is not counted at limit {1}",
        f"""
        WITH due AS MATERIALIZED ({DUE}) SELECT h.holder_id, l.id FROM due AS l
        JOIN quotas_hold AS h ON h.tenant_id = l.tenant AND (cardinality(l.clusters) = 0 OR h.cluster_name = ANY (l.clusters))
        WHERE h.state = 'pending' AND {AMOUNT} > 0 AND {AMOUNT} IS DISTINCT FROM (
            SELECT sum(m.amount::numeric) FROM quotas_holdmovement AS m JOIN quotas_quotalimit AS at ON at.id = m.limit_id
            JOIN tenancy_tenant AS t ON t.id = at.tenant_id
            WHERE m.hold_id = h.holder_id AND at.resource = l.resource AND at.clusters = l.clusters
                AND (t.path = l.path OR starts_with(t.path, l.path || '/')) AND t.id IN (
                    SELECT id FROM quotas_tenants_above(h.tenant_id)))
        ORDER BY h.holder_id, l.id
        """,
    ),
    (
        "hold {0} asks for amounts that are not whole numbers: {1}",
        f"""
        SELECT h.holder_id, left(h.amounts::text, 200) FROM ({CHANGED}) AS changed
        JOIN quotas_hold AS h ON h.holder_id = changed.hold_id
        WHERE jsonb_typeof(h.amounts) <> 'object' OR EXISTS (
            SELECT 1 FROM jsonb_each(CASE jsonb_typeof(h.amounts) WHEN 'object' THEN h.amounts ELSE '{{}}' END) AS asked
            WHERE jsonb_typeof(asked.value) <> 'number' OR asked.value::text !~ '^[0-9]+$')
        ORDER BY h.holder_id
        """,
    ),
    (
        "hold {0} began at {1} and ended at {2}",
        f"""
        SELECT h.holder_id, h.created_at, h.ended_at FROM ({CHANGED}) AS changed
        JOIN quotas_hold AS h ON h.holder_id = changed.hold_id
        WHERE h.ended_at < h.created_at OR h.ended_at > now() + interval '1 day' OR NOT isfinite(h.created_at)
            OR (h.state = 'pending') <> (h.ended_at IS NULL)
        ORDER BY h.holder_id
        """,
    ),
)
"""Each entry: a sentence and the query whose rows fill it. No rows means no error. The number of pending holds stays
small however long the history is.
"""
FULL_PROOFS = (
    (
        "limit {0} counts {1} held, but its journal and the claims of limits below it have {2}",
        f"""
        SELECT l.id, l.held, coalesce(lines.amount, 0) + coalesce(claimed.amount, 0) FROM quotas_quotalimit AS l {CLAIMED}
        LEFT JOIN (SELECT limit_id, sum(amount::numeric) AS amount FROM quotas_holdmovement GROUP BY limit_id)
            AS lines ON lines.limit_id = l.id
        WHERE l.held <> coalesce(lines.amount, 0) + coalesce(claimed.amount, 0) ORDER BY l.id
        """,
    ),
    *PROOFS[1:],
    (
        "past use of {1} by tenant {0} is {2}, but its ended holds make {3}",
        """
        SELECT coalesce(p.tenant_id, made.tenant_id), coalesce(p.resource, made.resource), p.level, made.level
        FROM quotas_pastuse AS p FULL JOIN quotas_past_use_of_holds() AS made
            ON made.tenant_id = p.tenant_id AND made.resource = p.resource
        WHERE p.at IS DISTINCT FROM made.at
            OR abs(p.level - made.level) > 1e-6 * greatest(1, abs(p.level), abs(made.level))
        ORDER BY 1, 2
        """,
    ),
)
"""The same checks over all records: the counters against the whole journal."""
