"""What recommendations are made from: what jobs of each name used where, what the fleet offers, and which labels jobs lack."""

import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import date, datetime
from fractions import Fraction
from typing import Any
from uuid import UUID

from django.db import connection

from billing.engine.recommendations import Kind, Needs, Offer, Use
from billing.engine.recommended_sums import FoundJob, Labelled
from billing.queries.prices import price_book
from billing.queries.recommendations import SPENT
from clusters.engine.gpu_models import memory_in_profile_mib, usual_memory_mib
from clusters.queries import fleet
from federation.engine import advice
from federation.engine.needs import needs_of
from federation.models import Job
from federation.queries.recommendations import recommendations
from placement.ranking.runtimes import name_pattern
from tenancy.models import Tenant
from tenancy.queries import SYSTEM

MOST_USES = 20_000
"""Rows of uses; those that cost most. Others are too cheap for any recommendation."""
ACCEPTING = frozenset({"ready", "degraded"})
HOUR_MILLI, MIB_A_GIB, MILLI = 3_600_000, 1024, 1000
SLICE = "mig:"


def offers_of(organisation_path: str, at: datetime) -> tuple[Offer, ...]:
    """The priced flavors with GPUs of the organisation's clusters that accept jobs, as far as every team of it may use them: clusters
    that the organisation itself owns.
    """
    prices = price_book(at)
    found = []
    for cluster in fleet():
        if cluster.owner_path != organisation_path or cluster.state not in ACCEPTING:
            continue
        most: dict[str, int] = defaultdict(int)
        for node in cluster.nodes:
            if node.is_usable:
                for name, units in node.devices.items():
                    most[name] = max(most[name], units)
        for flavor in cluster.flavors.values():
            price = prices.get((cluster.id, flavor.name))
            if price is None or not flavor.gpu_model or flavor.unplaceable or not most[flavor.name]:
                continue
            found.append(
                Offer(
                    cluster_id=cluster.id, cluster=cluster.name, region=cluster.region, flavor=flavor.name, vendor=flavor.vendor,
                    gpu_model=flavor.gpu_model, sharing=flavor.sharing,
                    memory_mib=flavor.gpu_memory_mib or _memory(flavor.gpu_model, flavor.sharing),
                    capacity_type=flavor.capacity_type, currency=price.currency, unit_price=price.unit_price,
                    cpu_price=price.cpu_price, memory_price=price.memory_price, most_units=most[flavor.name],
                    interruptions_per_hour=price.interruptions_per_hour,
                )
            )  # fmt: skip
    return tuple(found)


def uses_of(tenants: Collection[UUID], start: datetime, until: datetime) -> list[Use]:
    """What jobs with GPUs used in [start, until), whole days: one for each tenant, name (without what changes from run to
    run), flavor of a cluster, and currency.
    """
    vendors = {(one.id, flavor.name): flavor.vendor for one in fleet() for flavor in one.flavors.values()}
    merged: dict[tuple[Any, ...], Use] = {}
    for row in _rows(USES, tenants, start, until, most=MOST_USES):
        use = _use(row, vendors)
        key = (
            use.tenant_id,
            use.name,
            use.cluster_id,
            use.flavor,
            use.gpu_model,
            use.sharing,
            use.capacity_type,
            use.currency,
        )
        merged[key] = _both(merged[key], use) if key in merged else use
    return list(merged.values())


def _use(row: Sequence[Any], vendors: Mapping[tuple[UUID, str], str]) -> Use:
    (tenant, name, cluster_id, cluster, flavor, model, sharing, capacity, currency, constraints, bound, cost, units, cores, memory,
     seen, active, active_seen, peak, most, jobs, last, checkpoint) = row  # fmt: skip
    return Use(
        tenant_id=tenant, name=name_pattern(name), cluster_id=cluster_id, cluster=cluster, flavor=flavor,
        vendor=vendors.get((cluster_id, flavor), ""), gpu_model=model, sharing=sharing, memory_mib=_memory(model, sharing),
        capacity_type=capacity, currency=currency, cost=Fraction(cost), unit_hours=Fraction(units) / HOUR_MILLI,
        core_hours=Fraction(cores) / HOUR_MILLI / MILLI, gib_hours=Fraction(memory) / HOUR_MILLI / MIB_A_GIB,
        measured_hours=Fraction(seen or 0) / HOUR_MILLI, active=Fraction(active or 0) / HOUR_MILLI,
        active_hours=Fraction(active_seen or 0) / HOUR_MILLI, peak_mib=peak, units_per_pod=most, jobs=jobs,
        last_job=UUID(last), checkpoint_seconds=checkpoint, needs=frozenset({needs_of(json.loads(constraints), is_bound=bound)}),
    )  # fmt: skip


def _both(one: Use, other: Use) -> Use:
    """Jobs of one name with different constraints: what is recommended must suit all of them."""
    peaks = [peak for peak in (one.peak_mib, other.peak_mib) if peak is not None]
    seconds = (one.checkpoint_seconds, other.checkpoint_seconds)
    sums = ("cost", "unit_hours", "core_hours", "gib_hours", "measured_hours", "active_hours", "active", "jobs")
    needs: frozenset[Needs] = one.needs | other.needs
    return replace(
        one,
        **{name: getattr(one, name) + getattr(other, name) for name in sums},
        peak_mib=max(peaks) if peaks else None,
        units_per_pod=max(one.units_per_pod, other.units_per_pod),
        last_job=max(one.last_job or UUID(int=0), other.last_job or UUID(int=0)),
        checkpoint_seconds=None if None in seconds else max(value for value in seconds if value is not None),
        needs=needs,
    )


def _memory(model: str, sharing: str) -> int:
    return memory_in_profile_mib(sharing) if sharing.startswith(SLICE) else usual_memory_mib(model)


def wasteful_jobs(
    tenants: Collection[UUID], start: datetime, until: datetime
) -> dict[tuple[Kind, UUID, str, str], list[FoundJob]]:
    """The idle jobs and those that failed late, the oldest first, by kind, tenant, name (likewise) and currency."""
    found = recommendations(SYSTEM, "", start, until, among=Tenant.objects.filter(id__in=tenants))
    owners = dict(
        Job.objects.filter(id__in={row.job for one in found.items for row in one.jobs}).values_list("id", "tenant_id")
    )
    jobs: dict[tuple[Kind, UUID, str, str], list[FoundJob]] = defaultdict(list)
    for one in found.items:
        kind = Kind.IDLE if one.kind is advice.Kind.IDLE else Kind.LATE_FAILURES
        for row in one.jobs:
            if row.amount is None or row.job not in owners:
                continue
            measured = row.measured if kind is Kind.IDLE else row.allocated
            jobs[kind, owners[row.job], name_pattern(row.name), row.currency].append(
                FoundJob(row.job, row.amount, row.allocated, measured)
            )
    return {key: _in_order(key[0], rows) for key, rows in jobs.items()}


def _in_order(kind: Kind, rows: list[FoundJob]) -> list[FoundJob]:
    """Failures come in the order of their ends; idle jobs by amount, and their ids are in the order of their submission."""
    return rows if kind is Kind.LATE_FAILURES else sorted(rows, key=lambda one: one.job_id)


def labelled(tenants: Collection[UUID], keys: Sequence[str], start: datetime, until: datetime) -> list[Labelled]:
    """What the jobs of each tenant cost, and of that what lacks each of the labels."""
    if not keys:
        return []
    rows = _rows(LABELLED, tenants, start, until, keys=list(keys))
    return [
        Labelled(tenant, key, currency, Fraction(cost), Fraction(missing), jobs, UUID(last) if last else None)
        for tenant, key, currency, cost, missing, jobs, last in rows
    ]


def _rows(statement: str, tenants: Iterable[UUID], start: datetime, until: datetime, **more: Any) -> list[Any]:
    days: dict[str, date] = {"first": start.date(), "last": until.date()}
    with connection.cursor() as cursor:
        cursor.execute(statement, {"tenants": list(tenants), "start": start, "until": until, **days, **more})
        return list(cursor.fetchall())


USES = f"""
WITH spent AS ({SPENT}), seen AS (
    SELECT u.meter_id, sum(u.coverage_seconds) AS seconds, sum(u.coverage_seconds * u.sm_active) AS active,
           sum(u.coverage_seconds) FILTER (WHERE u.sm_active IS NOT NULL) AS active_seconds, max(u.peak_memory_mib) AS peak
      FROM billing_utilisationhour AS u WHERE u.hour >= %(start)s AND u.hour < %(until)s GROUP BY u.meter_id
), reported AS (
    SELECT a.job_id, ceil(max(extract(epoch FROM COALESCE(a.finished_at, now()) - a.started_at) / saved.count)) AS seconds
      FROM federation_attempt AS a CROSS JOIN LATERAL (SELECT count(*) FROM federation_checkpoint WHERE attempt_id = a.id) AS saved
     WHERE saved.count > 0 AND a.started_at IS NOT NULL AND a.job_id IN (
        SELECT m.workload_id FROM spent JOIN billing_meter AS m ON m.id = spent.meter_id)
     GROUP BY a.job_id
)
SELECT m.tenant_id, j.name, m.cluster_id, c.name, m.flavor, m.gpu_model, m.sharing, m.capacity_type, spent.currency,
       j.spec -> 'constraints', place.is_bound, sum(spent.cost), sum(spent.milliseconds * m.gpu_units),
       sum(spent.milliseconds * m.cpu_millicores), sum(spent.milliseconds * m.memory_mib),
       sum(least(seen.seconds * 1000, spent.milliseconds) * m.gpu_units),
       sum(seen.active * 1000 * m.gpu_units), sum(seen.active_seconds * 1000 * m.gpu_units), max(seen.peak), max(m.gpu_units),
       count(DISTINCT m.workload_id), max(m.workload_id::text),
       CASE WHEN bool_and(place.checkpoint IS NOT NULL) THEN max(place.checkpoint)::int END
  FROM spent JOIN billing_meter AS m ON m.id = spent.meter_id JOIN federation_job AS j ON j.id = m.workload_id
  JOIN clusters_cluster AS c ON c.id = m.cluster_id LEFT JOIN seen ON seen.meter_id = m.id
  LEFT JOIN reported ON reported.job_id = j.id
 CROSS JOIN LATERAL (
    SELECT j.spec ? 'data' OR jsonb_path_exists(j.spec, '$.pod_sets[*].mounts[*]') OR jsonb_path_exists(j.spec, '$.pod_sets[*].networks[*]')
           OR jsonb_path_exists(j.spec, '$.pod_sets[*].resources.*') AS is_bound,
           COALESCE((j.spec ->> 'checkpoint_seconds')::numeric, reported.seconds) AS checkpoint
 ) AS place
 WHERE m.gpu_units > 0 AND NOT COALESCE(j.spec -> 'constraints' ? 'reservation', false)
 GROUP BY m.tenant_id, j.name, m.cluster_id, c.name, m.flavor, m.gpu_model, m.sharing, m.capacity_type, spent.currency,
       j.spec -> 'constraints', place.is_bound
 ORDER BY 12 DESC, 1, 2, 3, 5 LIMIT %(most)s
"""
LABELLED = f"""
WITH spent AS ({SPENT})
SELECT m.tenant_id, key, spent.currency, sum(spent.cost), COALESCE(sum(spent.cost) FILTER (WHERE NOT j.labels ? key), 0),
       count(DISTINCT j.id) FILTER (WHERE NOT j.labels ? key), max(j.id::text) FILTER (WHERE NOT j.labels ? key)
  FROM spent JOIN billing_meter AS m ON m.id = spent.meter_id JOIN federation_job AS j ON j.id = m.workload_id
 CROSS JOIN unnest(%(keys)s::text[]) AS key
 GROUP BY m.tenant_id, key, spent.currency
"""
"""Ids are in the order of submission, and so are their texts."""
