"""Questions about quota: who may hold how much, what is held, what would never fit. Read-only."""

from collections.abc import Iterable, Mapping, Sequence
from uuid import UUID

from django.db import connection
from django.db.models import Q, QuerySet

from foundation.problems import NotFound
from tenancy.queries import Actor, tenant_by_path, visible_tenants

from .engine.holds import HoldRefusal, Limit, never_fits, path_prefixes
from .models import QuotaLimit


def limit_states() -> tuple[Limit, ...]:
    """Every standing limit, root first."""
    return _values(QuotaLimit.objects.all())


def limits_on_path(tenant_path: str) -> tuple[Limit, ...]:
    """The standing limits that count for a tenant: its own and those above, root first."""
    return _values(QuotaLimit.objects.filter(tenant__path__in=path_prefixes(tenant_path)))


def refusal_for_good(
    tenant_path: str, amounts_per_option: Sequence[tuple[str, Mapping[str, int]]]
) -> tuple[HoldRefusal, ...] | None:
    """None if one of the options (cluster name, amounts in base units) fits under the limits with nothing else held.

    Otherwise why each option never will: no release of other work can help, only a larger limit.
    """
    return never_fits(tenant_path, amounts_per_option, limits_on_path(tenant_path))


def visible_limits(actor: Actor, *, tenant_path: str = "", resource: str = "") -> QuerySet[QuotaLimit]:
    """Standing limits that the actor may see; with `tenant_path` those of that tenant and below (NotFound as usual)."""
    limits = QuotaLimit.objects.select_related("tenant").filter(removed_at__isnull=True)
    if tenant_path:
        tenant = tenant_by_path(actor, tenant_path)
        limits = limits.filter(Q(tenant__path=tenant.path) | Q(tenant__path__startswith=f"{tenant.path}/"))
    else:
        limits = limits.filter(tenant__in=visible_tenants(actor))
    return limits.filter(resource=resource) if resource else limits


def limit_by_id(actor: Actor, limit_id: UUID) -> QuotaLimit:
    """A standing limit that the actor may see; NotFound otherwise."""
    limit = visible_limits(actor).filter(id=limit_id).first()
    if limit is None:
        raise NotFound
    return limit


def discrepancies() -> tuple[str, ...]:
    """What is wrong with the books, in sentences; empty when counters equal the journal and the journal is whole."""
    found: list[str] = []
    with connection.cursor() as cursor:
        for sentence, query in PROOFS:
            cursor.execute(query)
            found += [sentence.format(*row) for row in cursor.fetchall()]
    return tuple(found)


def _values(limits: QuerySet[QuotaLimit]) -> tuple[Limit, ...]:
    rows: Iterable[QuotaLimit] = (
        limits.filter(removed_at__isnull=True).select_related("tenant").order_by("tenant__depth", "id")
    )
    return tuple(as_value(row) for row in rows)


def as_value(row: QuotaLimit) -> Limit:
    """A limit's row as the engine sees it."""
    return Limit(
        id=row.id,
        tenant_path=row.tenant.path,
        resource=row.resource,
        clusters=tuple(row.clusters),
        nominal=row.nominal,
        cap=row.cap,
        held=row.held,
    )


PROOFS = (
    (
        "limit {0} counts {1} held, its journal says {2}",
        """
        SELECT l.id, l.held, coalesce(sum(m.amount), 0) FROM quotas_quotalimit AS l
        LEFT JOIN quotas_holdmovement AS m ON m.limit_id = l.id
        GROUP BY l.id HAVING l.held <> coalesce(sum(m.amount), 0) ORDER BY l.id
        """,
    ),
    (
        "limit {0} holds {1}, more than its cap {2}",
        "SELECT id, held, cap FROM quotas_quotalimit WHERE held > cap OR held < 0 ORDER BY id",
    ),
    (
        "{1} hold {0} gave back {2} of its takes where {3} were due",
        """
        SELECT h.holder_id, h.state, count(*) FILTER (WHERE m.kind = 'end') AS given_back,
            CASE h.state WHEN 'pending' THEN 0 ELSE count(*) FILTER (WHERE m.kind = 'take') END AS due
        FROM quotas_hold AS h JOIN quotas_holdmovement AS m ON m.hold_id = h.holder_id
        GROUP BY h.holder_id, h.state
        HAVING count(*) FILTER (WHERE m.kind = 'end')
            <> CASE h.state WHEN 'pending' THEN 0 ELSE count(*) FILTER (WHERE m.kind = 'take') END
        ORDER BY h.holder_id
        """,
    ),
    (
        "pending hold {0} is not counted at limit {1}",
        """
        SELECT h.holder_id, l.id FROM quotas_hold AS h
        JOIN tenancy_tenant AS t ON t.id = h.tenant_id
        JOIN tenancy_tenant AS above ON above.path = t.path OR starts_with(t.path, above.path || '/')
        JOIN quotas_quotalimit AS l ON l.tenant_id = above.id AND l.removed_at IS NULL
            AND (cardinality(l.clusters) = 0 OR h.cluster_name = ANY (l.clusters))
        WHERE h.state = 'pending' AND coalesce((h.amounts ->> l.resource)::bigint, 0) > 0
            AND NOT EXISTS (SELECT 1 FROM quotas_holdmovement AS m
                WHERE m.hold_id = h.holder_id AND m.limit_id = l.id AND m.kind = 'take')
        ORDER BY h.holder_id, l.id
        """,
    ),
)
"""Each: a sentence and the query whose rows fill it. No rows is the proof."""
