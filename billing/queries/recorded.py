"""Recorded usage by the groups of a report. Whole days come from stored sums, the rest of the first and last day from
segments.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any, TypeAlias
from uuid import UUID

from django.db import connection

from clusters.models import Cluster

from .corrected import CORRECTED
from .paths import Scope
from .progress import OpenRun, positions

A_DAY = timedelta(days=1)
GROUPS: Mapping[str, Mapping[str, str]] = {
    "tenant": {"tenant": "m.tenant_path"},
    "cluster": {"cluster": "c.name", "cluster_id": "c.id::text"},
    "flavor": {"flavor": "m.flavor"},
    "user": {"user": "max(m.user_name)", "user_id": "m.user_id::text"},
    "job": {"job": "m.workload_id::text", "job_name": "max(m.workload_name)"},
    "day": {"day": "to_char(part.start AT TIME ZONE 'UTC', 'YYYY-MM-DD')"},
    "month": {"month": "to_char(part.start AT TIME ZONE 'UTC', 'YYYY-MM')"},
}
"""The words that a report may be grouped by, and the columns that each word adds, as texts of CORRECTED."""
CURRENT_TENANT = "current tenant"
"""Stands for `tenant` in a report of current paths."""
TEXTS: Mapping[str, Mapping[str, str]] = {**GROUPS, CURRENT_TENANT: {"tenant": "m.tenant_id"}}
STORED: Mapping[str, Sequence[str]] = {
    "tenant": ("tenant_path",),
    "cluster": ("cluster_id",),
    "flavor": ("flavor",),
    "user": ("max(user_name)", "user_id"),
    "job": ("workload_id", "max(workload_name)"),
    "day": ("day",),
    "month": ("date_trunc('month', day::timestamp)::date",),
    CURRENT_TENANT: ("tenant_id",),
}
"""The same columns as they are stored: a text for each row would cost more than its sum."""
OF_ONE_RUN = frozenset({"user", "job"})
"""What the sums of tenants do not distinguish; the sums of meters do."""
LATEST = "max("

Quantities: TypeAlias = tuple[int, int, int, int, int, int]
"""GPU-ms (of units) and millicore-ms: all, those without a price, those not recorded yet."""
MemoryTime: TypeAlias = tuple[int, int, int]
"""MiB-ms: all, those without a price, those not recorded yet."""
GpuTime: TypeAlias = tuple[Fraction, Fraction, Fraction, Fraction]
"""Milliseconds of physical GPUs: all, those without a price, those not recorded yet, those of work that was lost."""
ZERO = Fraction(0)
NONE: Quantities = (0, 0, 0, 0, 0, 0)


@dataclass(frozen=True, slots=True)
class Line:
    """A part of a row: its keys, exact quantities and costs, and its running jobs. `credits` is negative, and no part of
    `cost`.
    """

    keys: Mapping[str, str]
    currency: str
    quantities: Quantities
    memory: MemoryTime
    gpus: GpuTime
    cost: Fraction
    provisional_cost: Fraction = ZERO
    corrections: Fraction = ZERO
    credits: Fraction = ZERO
    running: frozenset[UUID] = frozenset()


def key_columns(words: Sequence[str]) -> tuple[str, ...]:
    """The key columns of a report grouped by these words, in order."""
    return tuple(name for word in words for name in TEXTS[word])


def words_read(words: Sequence[str], scope: Scope) -> tuple[str, ...]:
    """The words by which a report of this scope groups what it reads."""
    return tuple(CURRENT_TENANT if word == "tenant" and scope.is_current else word for word in words)


def recorded(
    words: Sequence[str], scope: Scope, running: Sequence[OpenRun], start: datetime, until: datetime, most: int
) -> list[Line]:
    """Usage in segments, what corrections change, and what is not charged of it; for open runs, only as far as they were recorded when they were
    read. At most `most` rows of each statement.
    """
    clusters, uids, ends = positions(running)
    values: dict[str, Any] = {
        "start": start, "until": until, "most": most, "day_before": start - A_DAY,
        "tenants": list(scope.tenants), "path": scope.path, "clusters": clusters, "uids": uids, "ends": ends,
    }  # fmt: skip
    words = words_read(words, scope)
    named = naming(words, scope)
    lines: list[Line] = []
    with connection.cursor() as cursor:
        for template, (begins, ends_at) in _pieces(words, start, until):
            days = {"first": begins.date(), "last": ends_at.date(), "start": begins, "until": ends_at}
            cursor.execute(stored_statement(words, template), {**values, **days, "day_before": begins - A_DAY})
            lines += [_stored_line(*named(row)) for row in cursor.fetchall()]
        cursor.execute(stored_statement(words, LOST), values)
        lines += [_lost_line(*named(row)) for row in cursor.fetchall()]
        cursor.execute(ANY_CREDIT, values)
        if cursor.fetchone()[0]:
            cursor.execute(stored_statement(words, CREDITS), values)
            lines += [_credit_line(*named(row)) for row in cursor.fetchall()]
        cursor.execute(ANY_CORRECTION, values)
        if not cursor.fetchone()[0]:
            return lines
        cursor.execute(report_statement(words), values)
        for row in cursor.fetchall():
            keys = dict(zip(key_columns(words), row, strict=False))
            if CURRENT_TENANT in words:
                keys["tenant"] = scope.tenants[keys["tenant"]]
            lines.append(_corrected_line(keys, *row[len(keys) :]))
    return lines


def _pieces(words: Sequence[str], start: datetime, until: datetime) -> Iterator[tuple[str, tuple[datetime, datetime]]]:
    """The parts of [start, until) with the statement that reads each."""
    first, last = _midnight(start + A_DAY - timedelta.resolution), _midnight(until)
    if first >= last:
        yield PARTS, (start, until)
        return
    if start < first:
        yield PARTS, (start, first)
    yield METER_DAYS if OF_ONE_RUN & set(words) else DAYS, (first, last)
    if last < until:
        yield PARTS, (last, until)


def _midnight(at: datetime) -> datetime:
    return datetime.combine(at.astimezone(UTC).date(), time(), UTC)


def stored_statement(words: Sequence[str], template: str) -> str:
    """DAYS, METER_DAYS, PARTS, LOST or CREDITS, grouped by these words."""
    columns = [column for word in words for column in STORED[word]]
    return template.format(
        keys="".join(f"{column}, " for column in columns),
        groups="".join(f"{column}, " for column in columns if not column.startswith(LATEST)),
    )


def report_statement(words: Sequence[str]) -> str:
    """CORRECTED, grouped by these words."""
    columns = [column for word in words for column in TEXTS[word].values()]
    grouping = [column for column in columns if not column.startswith(LATEST)]
    return CORRECTED.format(
        keys="".join(f"{column}, " for column in columns),
        groups=", ".join([*grouping, "part.currency", "m.gpu_numerator", "m.gpu_denominator"]),
    )


def naming(words: Sequence[str], scope: Scope) -> Callable[[Sequence[Any]], tuple[Any, ...]]:
    """Turns the stored columns of a row of the scope into its keys, before its other columns."""
    names: dict[UUID, str] = {}
    if "cluster" in words:
        names = dict(Cluster.everything.values_list("id", "name"))
    columns = key_columns(words)
    shown: list[tuple[int, Callable[[Any], str]]] = []
    number = 0
    for word in words:
        if word == "cluster":
            shown += [(number, names.__getitem__), (number, str)]
        elif word == CURRENT_TENANT:
            shown.append((number, scope.tenants.__getitem__))
        elif word == "month":
            shown.append((number, lambda day: date.isoformat(day)[:7]))
        else:
            shown += [(number + place, str) for place in range(len(STORED[word]))]
        number += len(STORED[word])
    return lambda row: (
        {name: text(row[place]) for name, (place, text) in zip(columns, shown, strict=True)},
        *row[number:],
    )


def _stored_line(keys: Mapping[str, str], currency: str, numerator: int, denominator: int, *sums: Decimal) -> Line:
    gpu, cpu, memory = (int(number) for number in sums[:-1])
    gpus = Fraction(gpu * numerator, denominator)
    return Line(
        keys=keys,
        currency=currency,
        quantities=(gpu, cpu, 0 if currency else gpu, 0 if currency else cpu, 0, 0),
        memory=(memory, 0 if currency else memory, 0),
        gpus=(gpus, ZERO if currency else gpus, ZERO, ZERO),
        cost=Fraction(sums[-1]),
    )


def _lost_line(keys: Mapping[str, str], numerator: int, denominator: int, gpu: Decimal) -> Line:
    gpus = (ZERO, ZERO, ZERO, Fraction(int(gpu) * numerator, denominator))
    return Line(keys=keys, currency="", quantities=NONE, memory=(0, 0, 0), gpus=gpus, cost=ZERO)


def _credit_line(keys: Mapping[str, str], currency: str, amount: Decimal) -> Line:
    return Line(
        keys=keys, currency=currency, quantities=NONE, memory=(0, 0, 0), gpus=(ZERO, ZERO, ZERO, ZERO), cost=ZERO,
        credits=-Fraction(amount),
    )  # fmt: skip


def _corrected_line(keys: Mapping[str, str], currency: str, numerator: int, denominator: int, *sums: Decimal) -> Line:
    gpu, cpu, memory = (int(number) for number in sums[:-1])
    cost = Fraction(sums[-1])
    return Line(
        keys=keys,
        currency=currency,
        quantities=(0, 0, gpu, cpu, 0, 0),
        memory=(0, memory, 0),
        gpus=(ZERO, Fraction(gpu * numerator, denominator), ZERO, ZERO),
        cost=cost,
        corrections=cost,
    )


ANY_CREDIT = "SELECT EXISTS (SELECT 1 FROM billing_creditpolicy WHERE effective_from < %(until)s)"
WAIVED = """
billing_waived((
    SELECT array_agg(DISTINCT own.run_id) FROM billing_lostwork AS w JOIN billing_meter AS own ON own.run_id = w.run_id
    WHERE w.lost_from < %(until)s AND own.metered_until > %(start)s AND own.tenant_id = ANY(%(tenants)s)
), %(start)s, %(until)s) AS part JOIN billing_meter AS m ON m.id = part.meter_id
"""
CREDITS = f"""
SELECT {{keys}} part.currency, sum(part.cost) FROM {WAIVED}
WHERE m.tenant_id = ANY(%(tenants)s) AND (%(path)s IN ('', m.tenant_path) OR starts_with(m.tenant_path, %(path)s || '/'))
GROUP BY {{groups}} part.currency LIMIT %(most)s
"""
ANY_CORRECTION = "SELECT EXISTS (SELECT 1 FROM billing_pricecorrection WHERE span && tstzrange(%(start)s, %(until)s))"
DAYS = """
SELECT {keys} currency, gpu_numerator, gpu_denominator, sum(gpu), sum(cpu), sum(memory), sum(cost) FROM (
    SELECT tenant_id, tenant_path, cluster_id, flavor, day, currency, gpu_numerator, gpu_denominator, gpu_milliseconds AS gpu,
        cpu_millicore_milliseconds AS cpu, memory_mib_milliseconds AS memory, cost, segments
    FROM billing_tenantday
    WHERE day >= %(first)s AND day < %(last)s AND tenant_id = ANY(%(tenants)s)
        AND (%(path)s IN ('', tenant_path) OR starts_with(tenant_path, %(path)s || '/'))
    UNION ALL
    SELECT m.tenant_id, m.tenant_path, m.cluster_id, m.flavor, (lower(s.period) AT TIME ZONE 'UTC')::date, s.currency, m.gpu_numerator,
        m.gpu_denominator, -s.gpu_milliseconds, -s.cpu_millicore_milliseconds,
        -m.memory_mib * extract(epoch FROM upper(s.period) - lower(s.period)) * 1000, -s.cost, -1
    FROM unnest(%(clusters)s::uuid[], %(uids)s::text[], %(ends)s::timestamptz[]) AS known(cluster_id, source_uid, until)
    JOIN billing_meter AS m ON m.cluster_id = known.cluster_id AND m.source_uid = known.source_uid
        AND m.metered_until > known.until
    CROSS JOIN LATERAL (
        SELECT * FROM billing_usagesegment WHERE meter_id = m.id
            AND lower(period) >= greatest(known.until, %(start)s) AND lower(period) < %(until)s OFFSET 0
    ) AS s
    WHERE m.tenant_id = ANY(%(tenants)s) AND (%(path)s IN ('', m.tenant_path) OR starts_with(m.tenant_path, %(path)s || '/'))
) AS part GROUP BY {groups} currency, gpu_numerator, gpu_denominator HAVING sum(segments) <> 0 LIMIT %(most)s
"""
"""The stored sums of tenants, less what was recorded of open runs since they were read: their provisional part contains
it. OFFSET keeps the planner from reading all segments for the few of such a run.
"""
METER_DAYS = """
SELECT {keys} currency, gpu_numerator, gpu_denominator, sum(part.milliseconds * m.gpu_units),
    sum(part.milliseconds * m.cpu_millicores), sum(part.milliseconds * m.memory_mib), sum(part.cost)
FROM (
    SELECT meter_id, day, currency, milliseconds::numeric, cost FROM billing_meterday WHERE day >= %(first)s AND day < %(last)s
    UNION ALL
    SELECT s.meter_id, (lower(s.period) AT TIME ZONE 'UTC')::date, s.currency,
        -extract(epoch FROM upper(s.period) - lower(s.period)) * 1000, -s.cost
    FROM unnest(%(clusters)s::uuid[], %(uids)s::text[], %(ends)s::timestamptz[]) AS known(cluster_id, source_uid, until)
    JOIN billing_meter AS m ON m.cluster_id = known.cluster_id AND m.source_uid = known.source_uid
        AND m.metered_until > known.until
    CROSS JOIN LATERAL (
        SELECT * FROM billing_usagesegment WHERE meter_id = m.id
            AND lower(period) >= greatest(known.until, %(start)s) AND lower(period) < %(until)s OFFSET 0
    ) AS s
) AS part JOIN billing_meter AS m ON m.id = part.meter_id
WHERE m.tenant_id = ANY(%(tenants)s) AND (%(path)s IN ('', m.tenant_path) OR starts_with(m.tenant_path, %(path)s || '/'))
GROUP BY {groups} currency, gpu_numerator, gpu_denominator HAVING sum(part.milliseconds) <> 0 LIMIT %(most)s
"""
PARTS = """
WITH part AS (
    SELECT meter_id, currency, cost, gpu_milliseconds AS gpu, cpu_millicore_milliseconds AS cpu, lower(period) AS begins,
        (lower(period) AT TIME ZONE 'UTC')::date AS day,
        extract(epoch FROM greatest(lower(period), %(start)s) - lower(period)) * 1000 AS skipped,
        extract(epoch FROM least(upper(period), %(until)s) - lower(period)) * 1000 AS reached,
        extract(epoch FROM upper(period) - lower(period)) * 1000 AS length
    FROM billing_usagesegment
    WHERE lower(period) > %(day_before)s AND lower(period) < %(until)s AND upper(period) > %(start)s
)
SELECT {keys} currency, gpu_numerator, gpu_denominator,
    sum(part.gpu * (part.reached - part.skipped) / part.length),
    sum(part.cpu * (part.reached - part.skipped) / part.length),
    sum(m.memory_mib * (part.reached - part.skipped)),
    sum(round(part.cost * part.reached / part.length, 12) - round(part.cost * part.skipped / part.length, 12))
FROM part JOIN billing_meter AS m ON m.id = part.meter_id
LEFT JOIN unnest(%(clusters)s::uuid[], %(uids)s::text[], %(ends)s::timestamptz[]) AS known(of_cluster, of_pod, until)
    ON known.of_cluster = m.cluster_id AND known.of_pod = m.source_uid
WHERE m.tenant_id = ANY(%(tenants)s) AND (known.until IS NULL OR part.begins < known.until)
    AND (%(path)s IN ('', m.tenant_path) OR starts_with(m.tenant_path, %(path)s || '/'))
GROUP BY {groups} currency, gpu_numerator, gpu_denominator LIMIT %(most)s
"""
"""A part's cost is a difference of two readings, so that reports of adjoining periods add up to the whole."""
LOST = """
SELECT {keys} gpu_numerator, gpu_denominator, sum(gpu_units * extract(epoch FROM
    least(day_start + interval '1 day', ends_at) - greatest(day_start, begins_at)) * 1000)
FROM (
    SELECT m.*, greatest(m.redone_from, %(start)s) AS begins_at,
        least(m.metered_until, known.until, %(until)s) AS ends_at
    FROM billing_meter AS m
    LEFT JOIN unnest(%(clusters)s::uuid[], %(uids)s::text[], %(ends)s::timestamptz[]) AS known(of_cluster, of_pod, until)
        ON known.of_cluster = m.cluster_id AND known.of_pod = m.source_uid
    WHERE m.redone_from IS NOT NULL AND m.redone_from < %(until)s AND m.metered_until > %(start)s
        AND m.tenant_id = ANY(%(tenants)s)
        AND (%(path)s IN ('', m.tenant_path) OR starts_with(m.tenant_path, %(path)s || '/'))
) AS m CROSS JOIN LATERAL (
    SELECT number::timestamp AT TIME ZONE 'UTC' AS day_start, number::date AS day
    FROM generate_series(date_trunc('day', begins_at AT TIME ZONE 'UTC'),
                         date_trunc('day', ends_at AT TIME ZONE 'UTC' - interval '1 ms'), interval '1 day') AS number
) AS part
WHERE begins_at < ends_at GROUP BY {groups} gpu_numerator, gpu_denominator LIMIT %(most)s
"""
"""A meter is metered without gaps up to its end, so what it lost follows from its own times."""
