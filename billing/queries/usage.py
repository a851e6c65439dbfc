"""The usage report: what was used, by whom and where, and what it cost. Totals are the sums of what is shown."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any

from django.db import connection

from billing.engine.shares import shown_parts
from foundation.clock import now
from foundation.problems import Invalid
from tenancy.queries import Actor, tenant_by_path, visible_tenants

MOST_ROWS = 50_000
MILLISECONDS_AN_HOUR = 3_600_000
SHOWN_PLACES = 6
DEFAULT_CURRENCY = "USD"
"""What a report without any price is in."""

GROUPS: Mapping[str, Mapping[str, str]] = {
    "tenant": {"tenant": "t.path"},
    "cluster": {"cluster": "c.name", "cluster_id": "c.id::text"},
    "flavor": {"flavor": "m.flavor"},
    "user": {"user": "max(m.user_name)", "user_id": "m.user_id::text"},
    "job": {"job": "m.workload_id::text", "job_name": "max(m.workload_name)"},
    "day": {"day": "to_char(part.start AT TIME ZONE 'UTC', 'YYYY-MM-DD')"},
    "month": {"month": "to_char(part.start AT TIME ZONE 'UTC', 'YYYY-MM')"},
}
"""What a report may be grouped by, and the columns that each word adds."""


@dataclass(frozen=True, slots=True)
class UsageRow:
    """One line. `keys` are the columns of its groups; hours and cost have six decimals and add up to the totals."""

    keys: Mapping[str, str]
    gpu_milliseconds: int
    gpu_hours: Decimal
    cpu_millicore_milliseconds: int
    cpu_core_hours: Decimal
    unpriced_gpu_milliseconds: int
    unpriced_cpu_millicore_milliseconds: int
    cost: Decimal


@dataclass(frozen=True, slots=True)
class UsageReport:
    """Usage in [start, until). `is_complete` is False while something in it still runs or is not recorded to its end."""

    tenant_path: str
    start: datetime
    until: datetime
    group_by: tuple[str, ...]
    currency: str
    rows: tuple[UsageRow, ...]
    total: UsageRow
    is_complete: bool

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the key columns, in order."""
        return key_columns(self.group_by)


@dataclass(frozen=True, slots=True)
class _Line:
    """A row as summed by the database: keys, integer quantities, exact cost."""

    keys: Mapping[str, str]
    currency: str
    quantities: tuple[int, int, int, int]
    cost: Decimal


def usage_report(
    actor: Actor, tenant_path: str, start: datetime, until: datetime, group_by: Sequence[str] = ()
) -> UsageReport:
    """Usage of a tenant and all below it (of everything the actor may see, if the path is empty) in [start, until).

    A segment that reaches over an end of the period counts by its part inside. Raises NotFound, Invalid
    (`unknown_group`, `report_too_large`, `mixed_currencies`, `empty_period`).
    """
    words = tuple(dict.fromkeys(group_by))
    unknown = [word for word in words if word not in GROUPS]
    if unknown:
        raise Invalid.field("group_by", "unknown_group", f"group by {', '.join(GROUPS)}; not by {unknown[0][:50]}")
    if start >= until:
        raise Invalid.field("to", "empty_period", "the period ends before it begins")
    scope, scope_values = _scope(actor, tenant_path)
    values = {"start": start, "until": until, "day_before": start - timedelta(days=1), "most": MOST_ROWS + 1}
    lines = _lines(words, scope, {**values, **scope_values})
    currency = _one_currency(lines)
    rows, total = _shown(_merged(lines))
    return UsageReport(
        tenant_path, start, until, words, currency, rows, total, not _has_open_ends(scope, {**values, **scope_values})
    )


def key_columns(words: Sequence[str]) -> tuple[str, ...]:
    """The key columns of a report grouped by these words, in order."""
    return tuple(name for word in words for name in GROUPS[word])


def _scope(actor: Actor, tenant_path: str) -> tuple[str, dict[str, Any]]:
    """A condition on the tenant `t`, and its values."""
    if tenant_path:
        path = tenant_by_path(actor, tenant_path).path
        return "(t.path = %(path)s OR starts_with(t.path, %(below)s))", {"path": path, "below": f"{path}/"}
    return "t.id = ANY(%(tenants)s)", {"tenants": list(visible_tenants(actor).values_list("id", flat=True))}


def _lines(words: Sequence[str], scope: str, values: Mapping[str, Any]) -> list[_Line]:
    names = key_columns(words)
    columns = [GROUPS[word][name] for word in words for name in GROUPS[word]]
    grouping = [column for column in columns if not column.startswith("max(")]
    query = REPORT.format(
        keys="".join(f"{column}, " for column in columns),
        scope=scope,
        groups=", ".join([*grouping, "part.currency"]),
        order=", ".join([*(str(number) for number in range(1, len(columns) + 1)), "part.currency"]),
    )
    with connection.cursor() as cursor:
        cursor.execute(query, values)
        found = cursor.fetchall()
    if len(found) > MOST_ROWS:
        raise Invalid.field("group_by", "report_too_large", f"more than {MOST_ROWS} rows; group more coarsely")
    return [
        _Line(
            keys=dict(zip(names, row, strict=False)),
            currency=row[len(names)],
            quantities=tuple(int(number) for number in row[len(names) + 1 : -1]),  # type: ignore[arg-type]
            cost=row[-1],
        )
        for row in found
    ]


def _one_currency(lines: Sequence[_Line]) -> str:
    currencies = sorted({line.currency for line in lines if line.currency})
    if len(currencies) > 1:
        raise Invalid.field(
            "tenant", "mixed_currencies", f"costs in {' and '.join(currencies)} do not add up; name one organisation"
        )
    return currencies[0] if currencies else DEFAULT_CURRENCY


def _merged(lines: Sequence[_Line]) -> list[_Line]:
    """Priced and unpriced parts of the same keys in one line."""
    merged: dict[tuple[str, ...], _Line] = {}
    for line in lines:
        key = tuple(line.keys.values())
        known = merged.get(key)
        if known is not None:
            sums = tuple(a + b for a, b in zip(known.quantities, line.quantities, strict=True))
            merged[key] = _Line(line.keys, "", sums, _exact_sum(known.cost, line.cost))  # type: ignore[arg-type]
        else:
            merged[key] = line
    return list(merged.values())


def _exact_sum(one: Decimal, other: Decimal) -> Decimal:
    """One of the two is unpriced, so zero: nothing is added in a context that could round."""
    return one or other


def _shown(lines: Sequence[_Line]) -> tuple[tuple[UsageRow, ...], UsageRow]:
    gpu = [line.quantities[0] for line in lines]
    cpu = [line.quantities[1] for line in lines]
    gpu_hours, gpu_total = shown_parts([Fraction(value, MILLISECONDS_AN_HOUR) for value in gpu], SHOWN_PLACES)
    core_hours, core_total = shown_parts([Fraction(value, MILLISECONDS_AN_HOUR * 1000) for value in cpu], SHOWN_PLACES)
    costs, cost_total = shown_parts([Fraction(line.cost) for line in lines], SHOWN_PLACES)
    rows = tuple(
        UsageRow(
            keys=line.keys,
            gpu_milliseconds=line.quantities[0],
            gpu_hours=gpu_hours[number],
            cpu_millicore_milliseconds=line.quantities[1],
            cpu_core_hours=core_hours[number],
            unpriced_gpu_milliseconds=line.quantities[2],
            unpriced_cpu_millicore_milliseconds=line.quantities[3],
            cost=costs[number],
        )
        for number, line in enumerate(lines)
    )
    total = UsageRow(
        keys={},
        gpu_milliseconds=sum(gpu),
        gpu_hours=gpu_total,
        cpu_millicore_milliseconds=sum(cpu),
        cpu_core_hours=core_total,
        unpriced_gpu_milliseconds=sum(line.quantities[2] for line in lines),
        unpriced_cpu_millicore_milliseconds=sum(line.quantities[3] for line in lines),
        cost=cost_total,
    )
    return rows, total


def _has_open_ends(scope: str, values: Mapping[str, Any]) -> bool:
    """Whether some run reaches into the period beyond what is recorded of it."""
    with connection.cursor() as cursor:
        cursor.execute(OPEN_ENDS.format(scope=scope), {**values, "now": now().astimezone(UTC)})
        return bool(cursor.fetchone()[0])


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
SELECT {keys} part.currency,
    sum(part.gpu * (part.reached - part.skipped) / part.length),
    sum(part.cpu * (part.reached - part.skipped) / part.length),
    coalesce(sum(part.gpu * (part.reached - part.skipped) / part.length) FILTER (WHERE part.price_id IS NULL), 0),
    coalesce(sum(part.cpu * (part.reached - part.skipped) / part.length) FILTER (WHERE part.price_id IS NULL), 0),
    sum(round(part.cost * part.reached / part.length, 12) - round(part.cost * part.skipped / part.length, 12))
FROM cut AS part JOIN billing_meter AS m ON m.id = part.meter_id
JOIN tenancy_tenant AS t ON t.id = m.tenant_id JOIN clusters_cluster AS c ON c.id = m.cluster_id
WHERE {scope} GROUP BY {groups} ORDER BY {order} LIMIT %(most)s
"""
"""A part's cost is a difference of two readings, so that reports of adjoining periods add up to the whole."""

OPEN_ENDS = """
SELECT EXISTS (
    SELECT 1 FROM billing_meter AS m JOIN tenancy_tenant AS t ON t.id = m.tenant_id
    WHERE NOT m.is_closed AND m.metered_from < %(until)s AND m.metered_until < least(%(until)s, %(now)s) AND {scope}
)
"""
