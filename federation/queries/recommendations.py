"""Recommendations: what jobs of a period cost without use. They are computed when they are asked for, and nothing is stored.

They need no separate right: users who may see the usage may see them.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from fractions import Fraction
from typing import Any
from uuid import UUID

from django.db import connection
from django.db.models import QuerySet

from billing.engine.shares import shown_parts
from billing.queries.measured_jobs import seen_seconds
from billing.queries.paths import Scope, tenants_under
from billing.queries.utilisation import MOST_ROWS, UtilisationRow, utilisation_report
from federation.engine.advice import FAILURES, LATE_SECONDS, Evidence, Kind, Recommendation, idle_jobs, late_failures
from foundation.problems import Invalid
from tenancy.models import Tenant
from tenancy.queries import Actor

PLACES = 6
MILLISECONDS_AN_HOUR = 3_600_000
MOST_OF_A_KIND = 200
"""Recommendations of a kind and currency; those with the largest amounts."""


@dataclass(frozen=True, slots=True)
class Total:
    """All recommendations of a kind in a currency, those that are left out too. Kinds overlap: a job may be in several."""

    kind: Kind
    currency: str
    count: int
    amount: Decimal | None
    left_out: int


@dataclass(frozen=True, slots=True)
class Recommendations:
    """Those of [start, until), whole days (UTC), by kind and currency, the largest amount first."""

    tenant_path: str
    start: datetime
    until: datetime
    items: tuple[Recommendation, ...]
    totals: tuple[Total, ...]


def recommendations(
    actor: Actor, tenant_path: str, start: datetime, until: datetime, *, among: QuerySet[Tenant] | None = None
) -> Recommendations:
    """What is recommended for a tenant and its descendants; if the path is empty, for all that the actor may see.

    Visibility, paths and periods are those of `utilisation_report`. Raises NotFound and Invalid as it does.
    """
    report = utilisation_report(actor, tenant_path, start, until, ("tenant", "job"), among=among)
    idle = idle_jobs([_measured(row) for row in report.rows], lambda jobs: seen_seconds(jobs, start, until))
    tenants = tenants_under(actor, tenant_path) if among is None else dict(among.values_list("id", "path"))
    scope = Scope(tenant_path if among is None else "", tenants)
    by_currency: dict[tuple[Kind, str], list[Recommendation]] = defaultdict(list)
    for one in (*idle, *late_failures(_failed_late(scope, start, until))):
        by_currency[one.kind, one.currency].append(one)
    items, totals = [], []
    for (kind, currency), found in sorted(by_currency.items()):
        found.sort(key=lambda one: (-(one.amount or 0), -one.allocated, one.tenant, one.name, one.jobs[0].job))
        items += found[:MOST_OF_A_KIND]
        amount = sum((one.amount or Decimal(0) for one in found), Decimal(0)) if currency else None
        totals.append(Total(kind, currency, len(found), amount, max(len(found) - MOST_OF_A_KIND, 0)))
    return Recommendations(tenant_path, start, until, tuple(items), tuple(totals))


def _measured(row: UtilisationRow) -> Evidence:
    return Evidence(
        job=UUID(row.keys["job"]),
        tenant=row.keys["tenant"],
        name=row.keys["job_name"],
        currency=row.currency,
        amount=row.waste,
        allocated=row.allocated_gpu_hours,
        measured=row.measured_gpu_hours,
        used=row.utilised_gpu_hours,
    )


def _failed_late(scope: Scope, start: datetime, until: datetime) -> Sequence[Evidence]:
    values: dict[str, Any] = {
        "start": start, "until": until, "first": start.astimezone(UTC).date(), "last": until.astimezone(UTC).date(),
        "tenants": list(scope.tenants), "path": scope.path, "late": LATE_SECONDS, "failures": FAILURES, "most": MOST_ROWS + 1,
    }  # fmt: skip
    with connection.cursor() as cursor:
        cursor.execute(FAILED_LATE, values)
        rows = cursor.fetchall()
    if len(rows) > MOST_ROWS:
        raise Invalid.field("to", "span_too_large", f"more than {MOST_ROWS} jobs failed late; take shorter parts")
    cost: dict[tuple[str, str, UUID, str], Fraction] = defaultdict(Fraction)
    hours: dict[tuple[str, str, UUID, str], Fraction] = defaultdict(Fraction)
    for tenant, name, job, currency, numerator, denominator, amount, gpu in rows:
        key = (tenant, name, job, currency)
        cost[key] += Fraction(amount)
        hours[key] += Fraction(gpu) * Fraction(numerator, denominator)
    shown_hours, _ = shown_parts(list(hours.values()), PLACES, per=MILLISECONDS_AN_HOUR)
    amounts: dict[tuple[str, str, UUID, str], Decimal] = {}
    for currency in {key[3] for key in cost} - {""}:
        keys = [key for key in cost if key[3] == currency]
        amounts |= zip(keys, shown_parts([cost[key] for key in keys], PLACES)[0], strict=True)
    return [
        Evidence(job, tenant, name, currency, amounts.get(key), allocated)
        for (key, allocated) in zip(cost, shown_hours, strict=True)
        for tenant, name, job, currency in (key,)
    ]


FAILED_LATE = """
WITH part AS (
    SELECT m.workload_id, m.tenant_path, d.currency, m.gpu_numerator, m.gpu_denominator, sum(d.cost) AS cost,
           sum(d.milliseconds::numeric * m.gpu_units) AS gpu
      FROM billing_meterday AS d JOIN billing_meter AS m ON m.id = d.meter_id
     WHERE d.day >= %(first)s AND d.day < %(last)s AND d.milliseconds > 0 AND m.tenant_id = ANY(%(tenants)s)
       AND (%(path)s IN ('', m.tenant_path) OR starts_with(m.tenant_path, %(path)s || '/'))
     GROUP BY m.workload_id, m.tenant_path, d.currency, m.gpu_numerator, m.gpu_denominator
), late AS (
    SELECT part.*, job.name, job.finished_at, dense_rank() OVER place + dense_rank() OVER back - 1 AS failures
      FROM part JOIN federation_job AS job ON job.id = part.workload_id
     WHERE job.state = 'failed' AND job.finished_at >= %(start)s AND job.finished_at < %(until)s
       AND (
        SELECT max(own.metered_until) - min(own.metered_from) FROM billing_meter AS own WHERE own.workload_id = job.id
         GROUP BY own.run_id ORDER BY max(own.metered_until) DESC, own.run_id DESC LIMIT 1
       ) >= make_interval(secs => %(late)s)
    WINDOW place AS (PARTITION BY part.tenant_path, job.name ORDER BY part.workload_id),
           back AS (PARTITION BY part.tenant_path, job.name ORDER BY part.workload_id DESC)
)
SELECT tenant_path, name, workload_id, currency, gpu_numerator, gpu_denominator, cost, gpu
  FROM late WHERE failures >= %(failures)s ORDER BY tenant_path, name, finished_at, workload_id, currency LIMIT %(most)s
"""
"""The sum of both ranks less one is the number of different jobs of a name. A job's last attempt is the one that was metered last."""
