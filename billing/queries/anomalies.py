"""Days that cost unusually much: what the routine compares, what pages and the API list, and the clusters and jobs behind one."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from decimal import Decimal
from typing import Any, NamedTuple
from uuid import UUID

from django.db import connection
from django.db.models import Q, QuerySet

from billing.models import SpendAnomaly
from foundation.problems import NotFound
from tenancy.engine.roles import Permission
from tenancy.queries import Actor, NotAllowedHere, permissions_at, tenant_by_path, visible_tenants

MOST_JOBS = 20
A_DAY = timedelta(days=1)


class Place(NamedTuple):
    """What is compared day by day, over all clusters: one tenant, flavor and currency."""

    tenant_id: UUID
    flavor: str
    currency: str


@dataclass(frozen=True, slots=True)
class JobBehind:
    """A job of that day on one cluster, with what its day cost there before corrections."""

    workload_id: UUID
    name: str
    user: str
    cluster: str
    cost: Decimal


@dataclass(frozen=True, slots=True)
class ClusterBehind:
    """What a cluster cost on the day of an anomaly and on the same weekday of the week before, with corrected prices."""

    cluster_id: UUID
    name: str
    cost: Decimal
    week_before: Decimal


@dataclass(frozen=True, slots=True)
class AnomalyGroup:
    """Anomalies of one tenant on adjoining days, which often have one cause. `excess` is what they cost beyond the usual."""

    tenant_path: str
    first: date
    last: date
    currency: str
    excess: Decimal
    anomalies: tuple[SpendAnomaly, ...]


def daily_costs(
    organisation_id: UUID, first: date, before: date, tenants: Sequence[UUID] | None = None
) -> dict[Place, dict[date, Decimal]]:
    """What each place cost on each day of [first, before) on all clusters, with what corrected prices changed; with
    `tenants`, of these only.
    """
    values: dict[str, Any] = {
        "organisation": organisation_id, "first": first, "before": before, "tenants": tenants and list(tenants),
    }  # fmt: skip
    found: dict[Place, dict[date, Decimal]] = {}
    with connection.cursor() as cursor:
        cursor.execute(COSTS, values)
        rows = cursor.fetchall()
        cursor.execute(CORRECTED, values)
        rows += cursor.fetchall()
    for *place, day, amount in rows:
        days = found.setdefault(Place(*place), {})
        days[day] = days.get(day, Decimal(0)) + amount
    return found


def known_since() -> dict[UUID, date]:
    """Each organisation with its first day of usage."""
    with connection.cursor() as cursor:
        cursor.execute(FIRST_DAYS)
        return dict(cursor.fetchall())


def visible_anomalies(actor: Actor, *, tenant_path: str = "", state: str = "") -> QuerySet[SpendAnomaly]:
    """The anomalies of tenants that the actor may see; with `tenant_path`, of that one and those below it. Raises NotFound."""
    rows = SpendAnomaly.objects.select_related("tenant", "cluster")
    if tenant_path:
        tenant = tenant_by_path(actor, tenant_path)
        rows = rows.filter(Q(tenant__path=tenant.path) | Q(tenant__path__startswith=f"{tenant.path}/"))
    else:
        rows = rows.filter(tenant__in=visible_tenants(actor))
    return rows.filter(state=state) if state else rows


def anomaly_by_id(actor: Actor, anomaly_id: UUID, *, may_decide: bool = False) -> SpendAnomaly:
    """The anomaly. NotFound if the actor may not see it; with `may_decide`, NotAllowedHere if they may only see it."""
    anomaly = visible_anomalies(actor).filter(id=anomaly_id).first()
    if anomaly is None:
        raise NotFound
    if may_decide and Permission.DISPUTE_CHARGE not in permissions_at(actor, anomaly.tenant):
        raise NotAllowedHere(anomaly.tenant, Permission.DISPUTE_CHARGE)
    return anomaly


def clusters_behind(anomaly: SpendAnomaly) -> tuple[ClusterBehind, ...]:
    """What the day of the anomaly cost on each cluster, the most expensive first; of an anomaly of one cluster, on that one."""
    with connection.cursor() as cursor:
        cursor.execute(CLUSTERS, _values_of(anomaly))
        return tuple(ClusterBehind(*row) for row in cursor.fetchall())


def jobs_behind(anomaly: SpendAnomaly, clusters: Sequence[ClusterBehind]) -> tuple[JobBehind, ...]:
    """The jobs that cost most on the day of the anomaly on these clusters, from the sums of meters."""
    values = {**_values_of(anomaly), "clusters": [one.cluster_id for one in clusters], "most": MOST_JOBS}
    with connection.cursor() as cursor:
        cursor.execute(JOBS, values)
        return tuple(JobBehind(*row) for row in cursor.fetchall())


def _values_of(anomaly: SpendAnomaly) -> dict[str, Any]:
    """A finding of one cluster is of one path of its tenant too."""
    is_of_one = anomaly.cluster_id is not None
    return {
        "tenant": anomaly.tenant_id, "flavor": anomaly.flavor, "currency": anomaly.currency, "day": anomaly.day,
        "week_before": anomaly.day - 7 * A_DAY, "cluster": anomaly.cluster_id,
        "path": anomaly.tenant_path if is_of_one else None,
    }  # fmt: skip


def grouped(anomalies: Iterable[SpendAnomaly]) -> tuple[AnomalyGroup, ...]:
    """By tenant, currency and adjoining days; the latest group first, and in it the most expensive first."""
    runs: list[list[SpendAnomaly]] = []
    for one in sorted(anomalies, key=lambda row: (row.tenant_path, row.currency, row.day)):
        run = runs[-1] if runs else []
        last = run[-1] if run else None
        same = last is not None and (last.tenant_path, last.currency) == (one.tenant_path, one.currency)
        if last is not None and same and one.day - last.day <= A_DAY:
            run.append(one)
        else:
            runs.append([one])
    groups = [_group(run) for run in runs]
    return tuple(sorted(groups, key=lambda group: (group.last, group.excess), reverse=True))


def _group(run: Sequence[SpendAnomaly]) -> AnomalyGroup:
    excess = sum((one.cost - one.usual for one in run), Decimal(0))
    ordered = sorted(run, key=lambda one: one.cost - one.usual, reverse=True)
    return AnomalyGroup(run[0].tenant_path, run[0].day, run[-1].day, run[0].currency, excess, tuple(ordered))


def place_of(anomaly: SpendAnomaly) -> Place:
    """What is compared; of an anomaly of one cluster, the place that its day is compared at now."""
    return Place(anomaly.tenant_id, anomaly.flavor, anomaly.currency)


def days_in(organisation_id: UUID, state: str, oldest: date) -> dict[Place, set[date]]:
    """The days from `oldest` on with an anomaly in this state, by place."""
    return _days(SpendAnomaly.objects.filter(organisation=organisation_id, state=state, day__gte=oldest))


def decided_in_part(organisation_id: UUID, oldest: date) -> dict[Place, set[date]]:
    """The days from `oldest` on of which a person explained or dismissed what a single cluster cost, by place."""
    decided = Q(state__in=[SpendAnomaly.State.EXPLAINED, SpendAnomaly.State.DISMISSED], cluster__isnull=False)
    return _days(SpendAnomaly.objects.filter(decided, organisation=organisation_id, day__gte=oldest))


def _days(anomalies: Iterable[SpendAnomaly]) -> dict[Place, set[date]]:
    found: dict[Place, set[date]] = {}
    for row in anomalies:
        found.setdefault(place_of(row), set()).add(row.day)
    return found


COSTS = """
SELECT tenant_id, flavor, currency, day, sum(cost) FROM billing_tenantday
 WHERE organisation_id = %(organisation)s AND day >= %(first)s AND day < %(before)s AND currency <> ''
   AND (%(tenants)s::uuid[] IS NULL OR tenant_id = ANY(%(tenants)s::uuid[]))
 GROUP BY 1, 2, 3, 4
"""
CORRECTED = """
SELECT e.tenant_id, e.flavor, l.currency, e.charge_day, sum(l.amount)
  FROM billing_ledgerentry AS e JOIN billing_ledgerline AS l ON l.entry_id = e.id
  JOIN billing_ledgeraccount AS a ON a.id = l.account_id AND a.kind = 'tenant_expense'
 WHERE e.organisation_id = %(organisation)s AND e.charge_day >= %(first)s AND e.charge_day < %(before)s
   AND e.kind IN ('reversal', 'reentry') AND NOT billing_is_credit(e.kind, e.reverses_id) AND e.tenant_id IS NOT NULL AND e.cluster_id IS NOT NULL
   AND (%(tenants)s::uuid[] IS NULL OR e.tenant_id = ANY(%(tenants)s::uuid[]))
 GROUP BY 1, 2, 3, 4
"""
FIRST_DAYS = """
SELECT root.id, known.day FROM tenancy_tenant AS root
 CROSS JOIN LATERAL (
    SELECT d.day FROM billing_tenantday AS d WHERE d.organisation_id = root.id ORDER BY d.day LIMIT 1
 ) AS known
 WHERE root.parent_id IS NULL ORDER BY 1
"""
"""One row of the index of days for each organisation, however many days there are."""
CLUSTERS = """
SELECT cluster.id, cluster.name, coalesce(sum(part.cost) FILTER (WHERE part.day = %(day)s), 0),
       coalesce(sum(part.cost) FILTER (WHERE part.day = %(week_before)s), 0)
  FROM (
    SELECT d.cluster_id, d.tenant_path, d.day, d.cost FROM billing_tenantday AS d
     WHERE d.tenant_id = %(tenant)s AND d.day IN (%(day)s, %(week_before)s) AND d.flavor = %(flavor)s AND d.currency = %(currency)s
    UNION ALL
    SELECT e.cluster_id, e.tenant_path, e.charge_day, l.amount
      FROM billing_ledgerentry AS e JOIN billing_ledgerline AS l ON l.entry_id = e.id AND l.currency = %(currency)s
      JOIN billing_ledgeraccount AS a ON a.id = l.account_id AND a.kind = 'tenant_expense'
     WHERE e.tenant_id = %(tenant)s AND e.charge_day IN (%(day)s, %(week_before)s) AND e.flavor = %(flavor)s
       AND e.kind IN ('reversal', 'reentry') AND NOT billing_is_credit(e.kind, e.reverses_id)
  ) AS part JOIN clusters_cluster AS cluster ON cluster.id = part.cluster_id
 WHERE (%(cluster)s::uuid IS NULL OR part.cluster_id = %(cluster)s::uuid) AND (%(path)s::text IS NULL OR part.tenant_path = %(path)s::text)
 GROUP BY 1, 2 ORDER BY 3 DESC, 2
"""
JOBS = """
SELECT m.workload_id, max(m.workload_name), max(m.user_name), cluster.name, sum(d.cost)
  FROM billing_meter AS m JOIN billing_meterday AS d ON d.meter_id = m.id AND d.day = %(day)s
  JOIN clusters_cluster AS cluster ON cluster.id = m.cluster_id
 WHERE m.tenant_id = %(tenant)s AND m.cluster_id = ANY(%(clusters)s) AND m.flavor = %(flavor)s
   AND (%(path)s::text IS NULL OR m.tenant_path = %(path)s::text)
   AND m.metered_until > %(day)s::date AND m.metered_from < %(day)s::date + 1 AND d.currency = %(currency)s
 GROUP BY 1, 4 ORDER BY 5 DESC, 1, 4 LIMIT %(most)s
"""
