"""Recorded charges of a month for an export, read in pieces: the number of rows has no limit."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any

from django.db import connection, transaction

from billing.engine.focus import Charge
from clusters.models import Cluster
from tenancy.models import Tenant
from tenancy.queries import Actor

from .carbon import is_counted
from .carbon_use import footprints_of_charges
from .corrected import CORRECTED
from .paths import Scope, tenants_under
from .recorded import ANY_CREDIT, WAIVED
from .usage import DEFAULT_CURRENCY

AT_A_TIME = 2_000

CHARGES = """
SELECT s.day, payer.id, payer.path, m.tenant_id, m.tenant_path,
    m.workload_id, max(m.workload_name), m.user_id, max(m.user_name), c.id, c.name, c.region, c.provider,
    split_part(owner.path, '/', 1), m.flavor, m.capacity_type, m.gpu_model, m.sharing,
    m.unit = 'core' OR (p.id IS NOT NULL AND r.flavor <> m.flavor) AS by_core, p.id, p.unit_price, p.cpu_price,
    p.memory_price, coalesce(p.currency, ''), m.gpu_numerator, m.gpu_denominator, sum(s.milliseconds::bigint * m.gpu_units),
    sum(s.milliseconds::bigint * m.cpu_millicores), sum(s.milliseconds::bigint * m.memory_mib), sum(s.cost)
FROM (
    SELECT d.meter_id, d.day, d.price_id, d.milliseconds, d.cost FROM billing_meterday AS d
    WHERE d.day = %(day)s AND d.milliseconds > 0 AND NOT d.meter_id = ANY(%(late)s::bigint[])
    UNION ALL
    SELECT u.meter_id, %(day)s::date, u.price_id, round(extract(epoch FROM upper(u.period) - lower(u.period)) * 1000), u.cost
    FROM billing_usagesegment AS u
    WHERE u.meter_id = ANY(%(late)s::bigint[]) AND u.recorded_at <= %(as_of)s
        AND lower(u.period) >= %(day)s::date::timestamp AT TIME ZONE 'UTC'
        AND lower(u.period) < (%(day)s::date + 1)::timestamp AT TIME ZONE 'UTC'
    UNION ALL
    SELECT u.meter_id, %(day)s::date, u.price_id, round(extract(epoch FROM upper(u.period) - lower(u.period)) * 1000), u.cost
    FROM billing_replacedsegment AS u JOIN billing_meterrevision AS v ON v.id = u.revision_id AND v.recorded_at > %(as_of)s
    WHERE u.meter_id = ANY(%(late)s::bigint[]) AND u.recorded_at <= %(as_of)s
        AND lower(u.period) >= %(day)s::date::timestamp AT TIME ZONE 'UTC'
        AND lower(u.period) < (%(day)s::date + 1)::timestamp AT TIME ZONE 'UTC'
) AS s JOIN billing_meter AS m ON m.id = s.meter_id
JOIN clusters_cluster AS c ON c.id = m.cluster_id JOIN tenancy_tenant AS owner ON owner.id = c.owner_id
JOIN tenancy_tenant AS now_at ON now_at.id = m.tenant_id
JOIN tenancy_tenant AS payer ON payer.path = split_part(now_at.path, '/', 1)
LEFT JOIN billing_price AS p ON p.id = s.price_id LEFT JOIN billing_rate AS r ON r.id = p.rate_id
WHERE m.tenant_id = ANY(%(tenants)s)
    AND (%(path)s IN ('', m.tenant_path) OR starts_with(m.tenant_path, %(path)s || '/'))
GROUP BY s.day, payer.id, m.tenant_id, m.tenant_path, m.workload_id, m.user_id, c.id, owner.id, m.flavor, m.capacity_type,
    m.gpu_model, m.sharing, by_core, p.id, m.gpu_numerator, m.gpu_denominator
ORDER BY m.tenant_path, m.workload_id, c.name, m.flavor, p.id, m.user_id, m.sharing, m.capacity_type
"""
"""One day (UTC), so that the server sorts no more than that at a time, and a file begins immediately. Of `late` meters, only
what was recorded until `as_of` and not replaced before.
"""
LATE = """
SELECT DISTINCT s.meter_id FROM billing_usagesegment AS s JOIN billing_meter AS m ON m.id = s.meter_id
WHERE lower(s.period) >= %(start)s AND lower(s.period) < %(until)s AND s.recorded_at > %(as_of)s AND m.tenant_id = ANY(%(tenants)s)
UNION
SELECT v.meter_id FROM billing_meterrevision AS v JOIN billing_meter AS m ON m.id = v.meter_id
WHERE v.recorded_at > %(as_of)s AND v.counted_until > %(start)s AND v.until < %(until)s AND m.tenant_id = ANY(%(tenants)s)
"""
CORRECTIONS = CORRECTED.format(
    keys="(part.start AT TIME ZONE 'UTC')::date AS day, m.tenant_id, m.tenant_path, m.workload_id, max(m.workload_name),"
    " m.user_id, max(m.user_name), m.cluster_id, m.flavor, m.capacity_type, m.gpu_model, m.sharing, ",
    groups="day, m.tenant_id, m.tenant_path, m.workload_id, m.user_id, m.cluster_id, m.flavor, m.capacity_type, m.gpu_model,"
    " m.sharing, part.currency, m.gpu_numerator, m.gpu_denominator",
)
CREDITS = f"""
SELECT part.day, m.tenant_id, m.tenant_path, m.workload_id, max(m.workload_name), m.user_id, max(m.user_name), m.cluster_id,
    m.flavor, m.capacity_type, m.gpu_model, m.sharing, part.currency, -sum(part.cost)
FROM {WAIVED}
WHERE m.tenant_id = ANY(%(tenants)s) AND (%(path)s IN ('', m.tenant_path) OR starts_with(m.tenant_path, %(path)s || '/'))
GROUP BY part.day, m.tenant_id, m.tenant_path, m.workload_id, m.user_id, m.cluster_id, m.flavor, m.capacity_type, m.gpu_model,
    m.sharing, part.currency
ORDER BY part.day, m.tenant_path, m.workload_id, m.cluster_id, m.flavor
"""
KEYS = (
    "day", "organisation_id", "organisation", "tenant_id", "tenant", "job_id", "job_name", "user_id", "user_name",
    "cluster_id", "cluster", "region", "provider", "owner", "flavor", "capacity_type", "gpu_model", "sharing", "is_by_core",
    "price_id", "unit_price", "cpu_price", "memory_price",
)  # fmt: skip
"""The first columns, as the attributes of a charge."""
CURRENCIES = """
SELECT DISTINCT ON (organisation) split_part(owner.path, '/', 1) AS organisation, p.currency
FROM billing_price AS p JOIN billing_rate AS r ON r.id = p.rate_id JOIN clusters_cluster AS c ON c.id = r.cluster_id
JOIN tenancy_tenant AS owner ON owner.id = c.owner_id ORDER BY organisation, p.created_at DESC
"""


def charges_of(actor: Actor, tenant_path: str, start: datetime, until: datetime) -> Iterator[Charge]:
    """The recorded charges of a month's days, of a tenant and its descendants, or of all that the actor may see.

    Raises NotFound for the tenant immediately; the charges are read as they are taken.
    """
    return charges_in(Scope(tenant_path, tenants_under(actor, tenant_path)), start, until)


def charges_in(scope: Scope, start: datetime, until: datetime) -> Iterator[Charge]:
    """The recorded charges of these days, then what corrections change in them."""
    recorded = Recorded(scope)
    with transaction.atomic():
        for number in range((until - start).days):
            yield from recorded.on((start + timedelta(days=number)).date())
        yield from corrections_in(scope, start, until)


def corrections_in(scope: Scope, start: datetime, until: datetime) -> Iterator[Charge]:
    """What corrected prices and credits change in the recorded charges of these days."""
    values: dict[str, Any] = {
        "start": start, "until": until, "tenants": list(scope.tenants), "path": scope.path, "most": None,
        "day_before": start - timedelta(days=1), "clusters": [], "uids": [], "ends": [],
    }  # fmt: skip
    with connection.cursor() as cursor:
        cursor.execute(CORRECTIONS, values)
        corrected = [(*keys, currency, cost) for *keys, currency, _, _, _, _, _, cost in cursor.fetchall()]
        cursor.execute(ANY_CREDIT, values)
        credited: list[tuple[Any, ...]] = []
        if cursor.fetchone()[0]:
            cursor.execute(CREDITS, values)
            credited = cursor.fetchall()
    yield from _beside(corrected, is_correction=True)
    yield from _beside(credited, is_credit=True)


class Recorded:
    """The recorded charges of a scope by day. With `as_of`, without what was recorded after that time for days in [start, until).

    Its caller has a transaction open: charges are read as they are taken.
    """

    def __init__(self, scope: Scope, as_of: tuple[datetime, datetime, datetime] | None = None) -> None:
        self._scope, self._is_counted = scope, is_counted()
        self._values: dict[str, Any] = {
            "tenants": list(scope.tenants),
            "path": scope.path,
            "late": [],
            "as_of": as_of and as_of[0],
        }
        with connection.cursor() as cursor:
            cursor.execute(CURRENCIES)
            self._currencies = dict(cursor.fetchall())
            if as_of:
                _, start, until = as_of
                cursor.execute(LATE, {**self._values, "start": start, "until": until})
                self._values["late"] = [row[0] for row in cursor.fetchall()]

    def on(self, day: date) -> Iterator[Charge]:
        """The charges of a day."""
        footprints = dict(footprints_of_charges(self._scope, day, self._values["as_of"])) if self._is_counted else {}
        with connection.chunked_cursor() as cursor:
            cursor.execute(CHARGES, {**self._values, "day": day})
            while found := cursor.fetchmany(AT_A_TIME):
                for row in found:
                    charge = _charge(row, self._currencies)
                    # Taken out, so that no second charge has the same energy.
                    yield (
                        replace(charge, footprint=footprints.pop(_footprint_key(charge), None))
                        if footprints
                        else charge
                    )


def _beside(
    rows: Sequence[tuple[Any, ...]], *, is_correction: bool = False, is_credit: bool = False
) -> Iterator[Charge]:
    """What corrected prices change, or what is not charged, in its sum of each key: what is taken away and what is added."""
    sums: dict[tuple[Any, ...], Decimal] = defaultdict(Decimal)
    names: dict[tuple[Any, ...], tuple[str, str]] = {}
    for *keys, currency, cost in rows:
        day, tenant_id, tenant, job_id, job_name, user_id, user_name, *place = keys
        key = day, tenant_id, tenant, job_id, user_id, *place
        names[key] = job_name, user_name
        sums[*key, currency] += cost
    clusters = {
        one.id: one for one in Cluster.everything.filter(id__in={key[5] for key in names}).select_related("owner")
    }
    now_at = dict(Tenant.objects.filter(id__in={key[1] for key in names}).values_list("id", "path"))
    organisations = dict(
        Tenant.objects.filter(path__in={_root(path) for path in now_at.values()}).values_list("path", "id")
    )
    for (*of_key, currency), cost in sums.items():
        if not cost:
            continue
        key = tuple(of_key)
        day, tenant_id, tenant, job_id, user_id, cluster_id, flavor, capacity_type, gpu_model, sharing = key
        cluster, organisation = clusters[cluster_id], _root(now_at[tenant_id])
        yield Charge(
            day=day,
            organisation_id=organisations[organisation],
            organisation=organisation,
            tenant_id=tenant_id,
            tenant=tenant,
            job_id=job_id,
            job_name=names[key][0],
            user_id=user_id,
            user_name=names[key][1],
            cluster_id=cluster_id,
            cluster=cluster.name,
            region=cluster.region,
            provider=cluster.provider,
            owner=_root(cluster.owner.path),
            flavor=flavor,
            capacity_type=capacity_type,
            gpu_model=gpu_model,
            sharing=sharing,
            currency=currency,
            cost=cost,
            is_correction=is_correction,
            is_credit=is_credit,
        )


def _footprint_key(charge: Charge) -> tuple[Any, ...]:
    """As `footprints_of_charges` has it."""
    return (
        charge.tenant_id, charge.tenant, charge.job_id, charge.user_id, charge.flavor, charge.capacity_type, charge.sharing,
        charge.is_by_core, charge.price_id, charge.cluster_id, charge.gpu_model,
    )  # fmt: skip


def _root(path: str) -> str:
    return path.partition("/")[0]


def _charge(row: tuple[Any, ...], currencies: dict[str, str]) -> Charge:
    *keys, currency, numerator, denominator, units, cpu, memory, cost = row
    named = dict(zip(KEYS, keys, strict=True))
    return Charge(
        **named,
        currency=currency or currencies.get(named["owner"], DEFAULT_CURRENCY),
        unit_milliseconds=int(units),
        gpu_milliseconds=Fraction(int(units) * numerator, denominator),
        cpu_millicore_milliseconds=int(cpu),
        memory_mib_milliseconds=int(memory),
        cost=Decimal(cost),
    )
