"""Days that cost unusually much: what the routine compares, what pages and the API list, and the jobs behind one."""

from collections.abc import Iterable, Mapping, Sequence
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
    """What is compared day by day: one tenant (by the path that it had), cluster, flavor and currency."""

    tenant_id: UUID
    tenant_path: str
    cluster_id: UUID
    flavor: str
    currency: str


@dataclass(frozen=True, slots=True)
class JobBehind:
    """A job of that day and place, with what its day cost before corrections."""

    workload_id: UUID
    name: str
    user: str
    cost: Decimal


@dataclass(frozen=True, slots=True)
class AnomalyGroup:
    """Anomalies of one tenant on adjoining days, which often have one cause. `excess` is what they cost beyond the usual."""

    tenant_path: str
    first: date
    last: date
    currency: str
    excess: Decimal
    anomalies: tuple[SpendAnomaly, ...]


def daily_costs(organisation_id: UUID, first: date, last: date) -> dict[Place, dict[date, Decimal]]:
    """What each place cost on each day of [first, last], with what corrected prices changed."""
    values: dict[str, Any] = {"organisation": organisation_id, "first": first, "last": last}
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


def jobs_behind(anomaly: SpendAnomaly) -> tuple[JobBehind, ...]:
    """The jobs that cost most on the day and place of the anomaly, from the sums of meters."""
    with connection.cursor() as cursor:
        cursor.execute(
            JOBS,
            {
                "tenant": anomaly.tenant_id, "path": anomaly.tenant_path, "cluster": anomaly.cluster_id,
                "flavor": anomaly.flavor, "currency": anomaly.currency, "day": anomaly.day, "most": MOST_JOBS,
            },
        )  # fmt: skip
        return tuple(JobBehind(*row) for row in cursor.fetchall())


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
    """What was compared."""
    return Place(anomaly.tenant_id, anomaly.tenant_path, anomaly.cluster_id, anomaly.flavor, anomaly.currency)


def open_days(organisation_id: UUID) -> Mapping[Place, list[date]]:
    """The days whose anomalies are open, by place."""
    found: dict[Place, list[date]] = {}
    for row in SpendAnomaly.objects.filter(organisation=organisation_id, state=SpendAnomaly.State.OPEN):
        found.setdefault(place_of(row), []).append(row.day)
    return found


COSTS = """
SELECT tenant_id, tenant_path, cluster_id, flavor, currency, day, sum(cost) FROM billing_tenantday
 WHERE organisation_id = %(organisation)s AND day >= %(first)s AND day <= %(last)s AND currency <> ''
 GROUP BY 1, 2, 3, 4, 5, 6
"""
CORRECTED = """
SELECT e.tenant_id, e.tenant_path, e.cluster_id, e.flavor, l.currency, e.charge_day, sum(l.amount)
  FROM billing_ledgerentry AS e JOIN billing_ledgerline AS l ON l.entry_id = e.id
  JOIN billing_ledgeraccount AS a ON a.id = l.account_id AND a.kind = 'tenant_expense'
 WHERE e.organisation_id = %(organisation)s AND e.charge_day >= %(first)s AND e.charge_day <= %(last)s
   AND e.kind IN ('reversal', 'reentry') AND e.tenant_id IS NOT NULL AND e.cluster_id IS NOT NULL
 GROUP BY 1, 2, 3, 4, 5, 6
"""
FIRST_DAYS = "SELECT organisation_id, min(day) FROM billing_tenantday GROUP BY 1 ORDER BY 1"
JOBS = """
SELECT m.workload_id, max(m.workload_name), max(m.user_name), sum(d.cost)
  FROM billing_meter AS m JOIN billing_meterday AS d ON d.meter_id = m.id AND d.day = %(day)s
 WHERE m.tenant_id = %(tenant)s AND m.tenant_path = %(path)s AND m.cluster_id = %(cluster)s AND m.flavor = %(flavor)s
   AND m.metered_until > %(day)s::date AND m.metered_from < %(day)s::date + 1 AND d.currency = %(currency)s
 GROUP BY 1 ORDER BY 4 DESC, 1 LIMIT %(most)s
"""
