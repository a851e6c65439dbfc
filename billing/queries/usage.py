"""The usage report: usage by user and place, and its cost. Totals are the sums of the displayed rows."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from operator import add
from typing import Any, TypeAlias
from uuid import UUID

from django.db import connection
from django.db.models import QuerySet

from billing.engine.shares import shown_parts
from billing.models import Meter
from clusters.models import Cluster
from foundation.clock import now
from foundation.problems import Invalid
from tenancy.models import Tenant
from tenancy.queries import Actor

from .corrected import CORRECTED
from .paths import Scope, tenants_under
from .progress import OpenRun, Provisional, Whose, open_runs, positions, provisional_parts

MOST_ROWS = 50_000
MOST_PARTS = 4 * MOST_ROWS
"""The maximum number of row parts: a row has one for each currency and kind of unit of its usage."""
MILLISECONDS_AN_HOUR = 3_600_000
MIB_A_GIB = 1024
SHOWN_PLACES = 6
DEFAULT_CURRENCY = "USD"
"""The currency of a report without any price."""

GROUPS: Mapping[str, Mapping[str, str]] = {
    "tenant": {"tenant": "m.tenant_path"},
    "cluster": {"cluster": "c.name", "cluster_id": "c.id::text"},
    "flavor": {"flavor": "m.flavor"},
    "user": {"user": "max(m.user_name)", "user_id": "m.user_id::text"},
    "job": {"job": "m.workload_id::text", "job_name": "max(m.workload_name)"},
    "day": {"day": "to_char(part.start AT TIME ZONE 'UTC', 'YYYY-MM-DD')"},
    "month": {"month": "to_char(part.start AT TIME ZONE 'UTC', 'YYYY-MM')"},
}
"""The words that a report may be grouped by, and the columns that each word adds."""
LATEST = "max("
NAMES_OF_IDS = frozenset({"user", "job_name"})
"""Columns that only label a row that another column already identifies."""
REPORT = """
WITH part AS (
    SELECT meter_id, currency, price_id, cost, gpu_milliseconds AS gpu, cpu_millicore_milliseconds AS cpu,
        lower(period) AS begins, greatest(lower(period), %(start)s) AS start, least(upper(period), %(until)s) AS until,
        extract(epoch FROM upper(period) - lower(period)) * 1000 AS length
    FROM billing_usagesegment
    WHERE lower(period) > %(day_before)s AND lower(period) < %(until)s AND upper(period) > %(start)s
), cut AS (
    SELECT *, extract(epoch FROM start - begins) * 1000 AS skipped, extract(epoch FROM until - begins) * 1000 AS reached
    FROM part
)
SELECT {keys} part.currency, m.gpu_numerator, m.gpu_denominator,
    sum(part.gpu * (part.reached - part.skipped) / part.length),
    sum(part.cpu * (part.reached - part.skipped) / part.length),
    sum(m.memory_mib * (part.reached - part.skipped)),
    coalesce(sum(part.gpu * (part.reached - part.skipped) / part.length) FILTER (WHERE part.price_id IS NULL), 0),
    coalesce(sum(part.cpu * (part.reached - part.skipped) / part.length) FILTER (WHERE part.price_id IS NULL), 0),
    coalesce(sum(m.memory_mib * (part.reached - part.skipped)) FILTER (WHERE part.price_id IS NULL), 0),
    coalesce(sum(
        part.gpu * (part.reached - greatest(part.skipped, extract(epoch FROM m.redone_from - part.begins) * 1000)) / part.length
    ) FILTER (WHERE m.redone_from < part.until), 0),
    sum(round(part.cost * part.reached / part.length, 12) - round(part.cost * part.skipped / part.length, 12))
FROM cut AS part JOIN billing_meter AS m ON m.id = part.meter_id
JOIN clusters_cluster AS c ON c.id = m.cluster_id
LEFT JOIN unnest(%(clusters)s::uuid[], %(uids)s::text[], %(ends)s::timestamptz[]) AS known(cluster_id, source_uid, until)
    ON known.cluster_id = m.cluster_id AND known.source_uid = m.source_uid
WHERE m.tenant_id = ANY(%(tenants)s) AND (known.until IS NULL OR part.begins < known.until)
    AND (%(path)s IN ('', m.tenant_path) OR starts_with(m.tenant_path, %(path)s || '/'))
GROUP BY {groups} LIMIT %(most)s
"""
"""A part's cost is a difference of two readings, so that reports of adjoining periods add up to the whole."""


@dataclass(frozen=True, slots=True)
class UsageRow:
    """One line. `keys` are the columns of its groups; hours and cost have six decimals and add up to the totals.

    Memory has hours only: in MiB-milliseconds, a year of a large fleet is more than the 64 bits that JSON parsers read.
    GPU-hours are of physical GPUs; GPU-milliseconds are of units (GPUs, MIG slices, shares), which prices apply to. The
    `provisional` quantities are included in the others: they come from `running_jobs` and are not recorded yet. So are
    the `lost` ones: their work was lost and done again. `corrections` is the part of the cost that corrections of
    prices made; it may be negative.
    """

    keys: Mapping[str, str]
    gpu_hours: Decimal
    unpriced_gpu_hours: Decimal
    provisional_gpu_hours: Decimal
    lost_gpu_hours: Decimal
    gpu_milliseconds: int
    cpu_millicore_milliseconds: int
    cpu_core_hours: Decimal
    memory_gib_hours: Decimal
    unpriced_gpu_milliseconds: int
    unpriced_cpu_millicore_milliseconds: int
    unpriced_memory_gib_hours: Decimal
    cost: Decimal
    corrections: Decimal
    provisional_gpu_milliseconds: int
    provisional_cpu_millicore_milliseconds: int
    provisional_memory_gib_hours: Decimal
    provisional_cost: Decimal
    running_jobs: int


@dataclass(frozen=True, slots=True)
class UsageReport:
    """Usage in [start, until) as of `as_of`. It is complete if every run in it has its final metering."""

    tenant_path: str
    start: datetime
    until: datetime
    group_by: tuple[str, ...]
    currency: str
    rows: tuple[UsageRow, ...]
    total: UsageRow
    as_of: datetime

    @property
    def is_complete(self) -> bool:
        """Whether every job of the period has ended and is metered to its end."""
        return not self.total.running_jobs

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the key columns, in order."""
        return key_columns(self.group_by)


Quantities: TypeAlias = tuple[int, int, int, int, int, int]
"""GPU-ms (of units) and millicore-ms: all, those without a price, those not recorded yet."""
MemoryTime: TypeAlias = tuple[int, int, int]
"""MiB-ms: all, those without a price, those not recorded yet."""
GpuTime: TypeAlias = tuple[Fraction, Fraction, Fraction, Fraction]
"""Milliseconds of physical GPUs: all, those without a price, those not recorded yet, those of work that was lost."""


@dataclass(frozen=True, slots=True)
class _Line:
    """A part of a row: its keys, exact quantities and costs, and its running jobs."""

    keys: Mapping[str, str]
    currency: str
    quantities: Quantities
    memory: MemoryTime
    gpus: GpuTime
    cost: Fraction
    provisional_cost: Fraction = Fraction(0)
    corrections: Fraction = Fraction(0)
    running: frozenset[UUID] = frozenset()


def usage_report(
    actor: Actor,
    tenant_path: str,
    start: datetime,
    until: datetime,
    group_by: Sequence[str] = (),
    *,
    among: QuerySet[Tenant] | None = None,
) -> UsageReport:
    """Usage of a tenant and its descendants in [start, until); if the path is empty, of everything that the actor may
    see.

    Usage belongs to the path that its tenant had then, and `tenant_path` may be such a former path. Who may see it
    depends on the tenant's current place. A segment that crosses an end of the period counts by its part inside. Raises
    NotFound, Invalid (`unknown_group`, `report_too_large`, `mixed_currencies`, `empty_period`). With `among`, the
    report covers these tenants instead; the caller has checked that the actor may see them.
    """
    words = tuple(dict.fromkeys(group_by))
    unknown = [word for word in words if word not in GROUPS]
    if unknown:
        raise Invalid.field("group_by", "unknown_group", f"group by {', '.join(GROUPS)}; not by {unknown[0][:50]}")
    if start >= until:
        raise Invalid.field("to", "empty_period", "the period ends before it begins")
    at = now().astimezone(UTC)
    tenants = tenants_under(actor, tenant_path) if among is None else dict(among.values_list("id", "path"))
    scope = Scope(tenant_path if among is None else "", tenants)
    running = [
        run
        for run in open_runs(Whose(tenants=scope.tenants), at)
        if max(run.recorded_until, start) < min(until, at) and scope.covers(run.meter)
    ]
    lines = [*_recorded(words, scope, running, start, until), *_provisional(words, scope, running, start, until)]
    currency = _one_currency(lines)
    rows, total = _shown(_merged(lines))
    total = replace(total, running_jobs=len({run.meter.workload_id for run in running}))
    return UsageReport(tenant_path, start, until, words, currency, rows, total, at)


def key_columns(words: Sequence[str]) -> tuple[str, ...]:
    """The key columns of a report grouped by these words, in order."""
    return tuple(name for word in words for name in GROUPS[word])


def _recorded(
    words: Sequence[str], scope: Scope, running: Sequence[OpenRun], start: datetime, until: datetime
) -> list[_Line]:
    """Usage in segments; for open runs, only as far as they were recorded when they were read."""
    names = key_columns(words)
    clusters, uids, ends = positions(running)
    values: dict[str, Any] = {
        "start": start, "until": until, "day_before": start - timedelta(days=1), "most": MOST_PARTS + 1,
        "tenants": list(scope.tenants), "path": scope.path, "clusters": clusters, "uids": uids, "ends": ends,
    }  # fmt: skip
    with connection.cursor() as cursor:
        cursor.execute(report_statement(words), values)
        found = cursor.fetchall()
        cursor.execute(report_statement(words, CORRECTED), values)
        corrected = cursor.fetchall()
    if len(found) + len(corrected) > MOST_PARTS:
        raise _too_large()
    return [
        line(dict(zip(names, row, strict=False)), *row[len(names) :])
        for line, rows in ((_recorded_line, found), (_corrected_line, corrected))
        for row in rows
    ]


def report_statement(words: Sequence[str], template: str = REPORT) -> str:
    """REPORT or CORRECTED, grouped by these words."""
    columns = [column for word in words for column in GROUPS[word].values()]
    grouping = [column for column in columns if not column.startswith(LATEST)]
    return template.format(
        keys="".join(f"{column}, " for column in columns),
        groups=", ".join([*grouping, "part.currency", "m.gpu_numerator", "m.gpu_denominator"]),
    )


def _recorded_line(keys: Mapping[str, str], currency: str, numerator: int, denominator: int, *sums: Decimal) -> _Line:
    gpu, cpu, memory, unpriced_gpu, unpriced_cpu, unpriced_memory, lost = (int(number) for number in sums[:-1])
    share = Fraction(numerator, denominator)
    return _Line(
        keys=keys,
        currency=currency,
        quantities=(gpu, cpu, unpriced_gpu, unpriced_cpu, 0, 0),
        memory=(memory, unpriced_memory, 0),
        gpus=(gpu * share, unpriced_gpu * share, Fraction(0), lost * share),
        cost=Fraction(sums[-1]),
    )


def _corrected_line(keys: Mapping[str, str], currency: str, numerator: int, denominator: int, *sums: Decimal) -> _Line:
    gpu, cpu, memory = (int(number) for number in sums[:-1])
    zero, cost = Fraction(0), Fraction(sums[-1])
    return _Line(
        keys=keys,
        currency=currency,
        quantities=(0, 0, gpu, cpu, 0, 0),
        memory=(0, memory, 0),
        gpus=(zero, gpu * Fraction(numerator, denominator), zero, zero),
        cost=cost,
        corrections=cost,
    )


def _provisional(
    words: Sequence[str], scope: Scope, running: Sequence[OpenRun], start: datetime, until: datetime
) -> list[_Line]:
    """Usage that is not in segments yet: a line for each open run and each piece of it."""
    names = key_columns(words)
    clusters = dict(
        Cluster.everything.filter(id__in={run.meter.cluster_id for run in running}).values_list("id", "name")
    )

    def keys(meter: Meter, at: datetime) -> dict[str, str]:
        known = {
            "tenant": scope.path_of(meter),
            "cluster": clusters[meter.cluster_id],
            "cluster_id": str(meter.cluster_id),
            "flavor": meter.flavor,
            "user": meter.user_name,
            "user_id": str(meter.user_id),
            "job": str(meter.workload_id),
            "job_name": meter.workload_name,
            "day": f"{at:%Y-%m-%d}",
            "month": f"{at:%Y-%m}",
        }
        return {name: known[name] for name in names}

    return [
        _provisional_line(keys(part.meter, part.piece.start), part) for part in provisional_parts(running, start, until)
    ]


def _provisional_line(keys: Mapping[str, str], part: Provisional) -> _Line:
    piece = part.piece
    gpu, cpu, memory = piece.gpu_milliseconds, piece.cpu_millicore_milliseconds, piece.memory_mib_milliseconds
    is_unpriced = piece.price_id is None
    without_price = (gpu, cpu) if is_unpriced else (0, 0)
    gpus = gpu * part.meter.gpu_share
    return _Line(
        keys=keys,
        currency=piece.currency,
        quantities=(gpu, cpu, *without_price, gpu, cpu),
        memory=(memory, memory if is_unpriced else 0, memory),
        gpus=(gpus, gpus if is_unpriced else Fraction(0), gpus, Fraction(0)),
        cost=Fraction(piece.cost),
        provisional_cost=Fraction(piece.cost),
        running=frozenset((part.meter.workload_id,)),
    )


def _one_currency(lines: Sequence[_Line]) -> str:
    currencies = sorted({line.currency for line in lines if line.currency})
    if len(currencies) > 1:
        raise Invalid.field(
            "tenant",
            "mixed_currencies",
            f"costs in {' and '.join(currencies)} cannot be added up; name one organisation",
        )
    return currencies[0] if currencies else DEFAULT_CURRENCY


def _merged(lines: Iterable[_Line]) -> list[_Line]:
    """Joins priced and unpriced, recorded and provisional parts of the same keys into one line, in the order of their
    keys.
    """
    merged: dict[tuple[str, ...], _Line] = {}
    for line in lines:
        key = tuple(value for name, value in line.keys.items() if name not in NAMES_OF_IDS)
        known = merged.get(key)
        if known is not None:
            line = _Line(  # noqa: PLW2901 - the line so far
                keys=known.keys,
                currency="",
                quantities=tuple(map(add, known.quantities, line.quantities)),
                memory=tuple(map(add, known.memory, line.memory)),
                gpus=tuple(map(add, known.gpus, line.gpus)),
                cost=known.cost + line.cost,
                provisional_cost=known.provisional_cost + line.provisional_cost,
                corrections=known.corrections + line.corrections,
                running=known.running | line.running,
            )
        merged[key] = line
    if len(merged) > MOST_ROWS:
        raise _too_large()
    return sorted(merged.values(), key=lambda line: tuple(line.keys.values()))


def _too_large() -> Invalid:
    return Invalid.field("group_by", "report_too_large", f"more than {MOST_ROWS} rows; group by fewer keys")


def _shown(lines: Sequence[_Line]) -> tuple[tuple[UsageRow, ...], UsageRow]:
    exact = {
        "gpu_hours": [line.gpus[0] / MILLISECONDS_AN_HOUR for line in lines],
        "unpriced_gpu_hours": [line.gpus[1] / MILLISECONDS_AN_HOUR for line in lines],
        "provisional_gpu_hours": [line.gpus[2] / MILLISECONDS_AN_HOUR for line in lines],
        "lost_gpu_hours": [line.gpus[3] / MILLISECONDS_AN_HOUR for line in lines],
        "cpu_core_hours": [Fraction(line.quantities[1], MILLISECONDS_AN_HOUR * 1000) for line in lines],
        "memory_gib_hours": [_gib_hours(line.memory[0]) for line in lines],
        "unpriced_memory_gib_hours": [_gib_hours(line.memory[1]) for line in lines],
        "provisional_memory_gib_hours": [_gib_hours(line.memory[2]) for line in lines],
        "cost": [line.cost for line in lines],
        "provisional_cost": [line.provisional_cost for line in lines],
        "corrections": [line.corrections for line in lines],
    }
    shown = {name: shown_parts(parts, SHOWN_PLACES) for name, parts in exact.items()}
    rows = tuple(
        _row(line.keys, line.quantities, {name: parts[number] for name, (parts, _) in shown.items()}, len(line.running))
        for number, line in enumerate(lines)
    )
    sums: Quantities = tuple(sum(line.quantities[n] for line in lines) for n in range(6))  # type: ignore[assignment]
    return rows, _row({}, sums, {name: total for name, (_, total) in shown.items()}, 0)


def _gib_hours(mib_milliseconds: int) -> Fraction:
    return Fraction(mib_milliseconds, MIB_A_GIB * MILLISECONDS_AN_HOUR)


def _row(keys: Mapping[str, str], quantities: Quantities, shown: Mapping[str, Decimal], running: int) -> UsageRow:
    return UsageRow(
        keys=keys,
        gpu_milliseconds=quantities[0],
        cpu_millicore_milliseconds=quantities[1],
        unpriced_gpu_milliseconds=quantities[2],
        unpriced_cpu_millicore_milliseconds=quantities[3],
        provisional_gpu_milliseconds=quantities[4],
        provisional_cpu_millicore_milliseconds=quantities[5],
        running_jobs=running,
        **shown,
    )
