"""The report of unit costs: what the jobs that ended in a range cost, with all their attempts, whenever these ran.

Billing knows what each workload used, this room how its job ended. Sums of meters' days are read, not their segments.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any, TypeAlias
from uuid import UUID

from django.db import connection
from django.db.models import QuerySet

from billing.queries import usage_report
from billing.queries.corrected import HAS_CORRECTION
from billing.queries.paths import Scope, tenants_under
from billing.queries.progress import OpenRun, Whose, open_runs, positions, provisional_parts
from federation.engine import names
from federation.engine.unit_costs import Bridge, Part, UnitCostRow, bridges, unit_cost_rows
from federation.models import Job
from foundation.clock import database_now
from foundation.problems import Invalid
from tenancy.models import Tenant
from tenancy.queries import Actor

MOST_ROWS = 20_000
MOST_DAYS = 366
MOST_LABELS = 5
LABEL = "label:"
GROUPS: Mapping[str, tuple[str, ...]] = {
    "tenant": ("tenant",),
    "user": ("user", "user_id"),
    "job_name": ("job_name",),
    "day": ("day",),
    "month": ("month",),
}
"""The words that the report may be grouped by, besides `label:KEY`, and the columns of each."""
COLUMNS: Mapping[str, tuple[str, ...]] = {
    "tenant": ("e.path",),
    "user": ("max(e.email)", "e.created_by_id"),
    "job_name": ("e.name",),
    "day": ("to_char(e.finished_at AT TIME ZONE 'UTC', 'YYYY-MM-DD')",),
    "month": ("to_char(e.finished_at AT TIME ZONE 'UTC', 'YYYY-MM')",),
}
LATEST = "max("
NOTHING = Decimal(0)

Extra: TypeAlias = tuple[UUID, str, int, int, int, int, Decimal, Decimal]
"""Of a job: currency, the part of a GPU as numerator and denominator, milliseconds, unit-milliseconds, cost, cost inside."""


@dataclass(frozen=True, slots=True)
class JobFilters:
    """Which jobs a report has. Empty: all. `label` is (key, value)."""

    user: str = ""
    job_name: str = ""
    label: tuple[str, str] | None = None

    @property
    def are_empty(self) -> bool:
        """Whether it has all jobs."""
        return self == JobFilters()


@dataclass(frozen=True, slots=True)
class UnitCostReport:
    """The jobs that ended in [start, until), whole days (UTC). `totals` has the sums of the rows of each currency.

    `bridges` leads from each currency's cost to that of `usage_report`. With filters there is none. `unsettled_jobs` are not metered to
    their end, so their cost is provisional.
    """

    tenant_path: str
    start: datetime
    until: datetime
    group_by: tuple[str, ...]
    rows: tuple[UnitCostRow, ...]
    totals: tuple[UnitCostRow, ...]
    bridges: tuple[Bridge, ...]
    unsettled_jobs: int

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the key columns, in order."""
        return key_columns(self.group_by)


def unit_cost_report(
    actor: Actor,
    tenant_path: str,
    span: tuple[datetime, datetime],
    group_by: Sequence[str] = (),
    filters: JobFilters | None = None,
    *,
    among: QuerySet[Tenant] | None = None,
) -> UnitCostReport:
    """What the jobs of a tenant and its descendants cost that ended in `span`; if the path is empty, of all that the actor may see.

    Visibility and paths are those of `usage_report`, and so is `among`. A job has the path of its last metered pod, else its
    tenant's path now. Raises NotFound, Invalid (`unknown_group`, `report_too_large`, `empty_period`, `not_whole_days`,
    `span_too_large`).
    """
    words = _checked(group_by)
    start, until = span
    _check_period(start, until)
    filters = filters or JobFilters()
    tenants = tenants_under(actor, tenant_path) if among is None else dict(among.values_list("id", "path"))
    scope = Scope(tenant_path if among is None else "", tenants)
    parts = _parts(words, scope, span, filters)
    rows, totals = unit_cost_rows(parts)
    found: tuple[Bridge, ...] = ()
    if filters.are_empty:
        usage = usage_report(actor, tenant_path, start, until, among=among)
        found = bridges(parts, {one.currency: one.cost for one in usage.totals})
    return UnitCostReport(
        tenant_path, start, until, words, rows, totals, found, unsettled_jobs=sum(part.unsettled for part in parts)
    )


def label_filter(text: str) -> tuple[str, str]:
    """Key and value of `key:value`. Raises Invalid `bad_format`."""
    key, colon, value = text.partition(":")
    if not colon or _is_no_label(key):
        raise Invalid.field("label", "bad_format", "write a label as key:value")
    return key, value


def key_columns(words: Sequence[str]) -> tuple[str, ...]:
    """The key columns of a report grouped by these words, in order."""
    return tuple(name for word in words for name in GROUPS.get(word, (word,)))


def unit_costs_statement(words: Sequence[str], template: str) -> str:
    """UNIT_COSTS, grouped by these words."""
    columns = [column for number, word in enumerate(words) for column in COLUMNS.get(word, (_label_column(number),))]
    return template.format(
        keys="".join(f"{column}, " for column in columns),
        groups="".join(f"{column}, " for column in columns if not column.startswith(LATEST)),
    )


def _label_column(number: int) -> str:
    return f"(e.labels->>%(word_{number})s::text)"


def _is_no_label(key: str) -> bool:
    return names.label_key_fault(key, allow_simulation=True) is not None


def _checked(group_by: Sequence[str]) -> tuple[str, ...]:
    words = tuple(dict.fromkeys(group_by))
    for word in words:
        if word not in GROUPS and (not word.startswith(LABEL) or _is_no_label(word.removeprefix(LABEL))):
            known = f"{', '.join(GROUPS)} and label:KEY"
            raise Invalid.field("group_by", "unknown_group", f"group by {known}; not by {word[:50]}")
    if sum(word.startswith(LABEL) for word in words) > MOST_LABELS:
        raise Invalid.field("group_by", "too_many", f"at most {MOST_LABELS} labels")
    return words


def _check_period(start: datetime, until: datetime) -> None:
    for name, at in (("from", start), ("to", until)):
        if at.astimezone(UTC).time() != time():
            raise Invalid.field(name, "not_whole_days", "give days: the report has whole days (UTC)")
    if start >= until:
        raise Invalid.field("to", "empty_period", "the period ends before it begins")
    if (until - start).days > MOST_DAYS:
        raise Invalid.field("to", "span_too_large", f"at most {MOST_DAYS} days")


def _parts(words: Sequence[str], scope: Scope, span: tuple[datetime, datetime], filters: JobFilters) -> list[Part]:
    start, until = span
    running = _open_runs_of_ended(scope, span)
    clusters, uids, ends = positions(running)
    label = filters.label or ("", "")
    values: dict[str, Any] = {
        "start": start, "until": until, "first": start.astimezone(UTC).date(), "last": until.astimezone(UTC).date(),
        "tenants": list(scope.tenants), "path": scope.path, "most": MOST_ROWS + 1,
        "user": filters.user.lower(), "job_name": filters.job_name,
        "by_label": filters.label is not None, "label_key": label[0], "label_value": label[1],
        "clusters": clusters, "uids": uids, "ends": ends, "open": list({run.meter.workload_id for run in running}),
    }  # fmt: skip
    values |= {f"word_{number}": word.removeprefix(LABEL) for number, word in enumerate(words)}
    beyond = _provisional(scope, running, span)
    values |= {name: [row[number] for row in beyond] for number, name in enumerate(EXTRAS)}
    with connection.cursor() as cursor:
        cursor.execute(unit_costs_statement(words, UNIT_COSTS), values)
        rows = cursor.fetchall()
    if len(rows) > MOST_ROWS:
        raise Invalid.field("group_by", "report_too_large", f"more than {MOST_ROWS} rows; group by fewer keys")
    columns = key_columns(words)
    return [_part(dict(zip(columns, row, strict=False)), *row[len(columns) :]) for row in rows]


def _open_runs_of_ended(scope: Scope, span: tuple[datetime, datetime]) -> list[OpenRun]:
    """Runs that are not metered to their end, of jobs that ended in the range."""
    running = open_runs(Whose(tenants=scope.tenants), database_now())
    ids = {run.meter.workload_id for run in running}
    if not ids:
        return []
    ended = set(
        Job.objects.filter(id__in=ids, finished_at__gte=span[0], finished_at__lt=span[1]).values_list("id", flat=True)
    )
    return [run for run in running if run.meter.workload_id in ended]


def _provisional(scope: Scope, running: Sequence[OpenRun], span: tuple[datetime, datetime]) -> list[Extra]:
    """What these runs used beyond their segments: everything, and of its cost what the range has."""
    found: list[Extra] = []
    for is_inside, parts in ((False, provisional_parts(running)), (True, provisional_parts(running, *span))):
        for part in parts:
            meter, piece = part.meter, part.piece
            share = (meter.workload_id, piece.currency, meter.gpu_numerator, meter.gpu_denominator)
            if not is_inside:
                milliseconds = (piece.until - piece.start) // timedelta(milliseconds=1)
                found.append((*share, milliseconds, piece.gpu_milliseconds, piece.cost, NOTHING))
            elif scope.covers(meter):
                found.append((*share, 0, 0, NOTHING, piece.cost))
    return found


def _part(  # noqa: PLR0913, PLR0917 - the columns of a row
    keys: Mapping[str, Any], state: str, currency: str, numerator: int, denominator: int, jobs: int, unsettled: int,
    *sums: Decimal,
) -> Part:  # fmt: skip
    gpu, unpriced = (Fraction(int(number) * numerator, denominator) for number in sums[:2])
    named = {name: None if value is None else str(value) for name, value in keys.items()}
    return Part(named, state, currency, jobs, gpu, unpriced, Fraction(sums[2]), Fraction(sums[3]), unsettled)


EXTRAS = ("of_jobs", "in_currencies", "numerators", "denominators", "lengths", "gpus", "costs", "insides")
INSIDE = "(%(path)s IN ('', m.tenant_path) OR starts_with(m.tenant_path, %(path)s || '/'))"
"""Whether the report of usage has meter `m`."""
KNOWN = """unnest(%(clusters)s::uuid[], %(uids)s::text[], %(ends)s::timestamptz[]) AS known(cluster_id, source_uid, until)"""
UNIT_COSTS = f"""
WITH ended AS MATERIALIZED (
    SELECT * FROM (
        SELECT j.id, j.state, j.name, j.labels, j.finished_at, j.created_by_id, u.email, COALESCE((
            SELECT m.tenant_path FROM billing_meter AS m WHERE m.workload_id = j.id ORDER BY m.id DESC LIMIT 1), t.path) COLLATE "C" AS path
        FROM federation_job AS j JOIN tenancy_tenant AS t ON t.id = j.tenant_id JOIN tenancy_user AS u ON u.id = j.created_by_id
        WHERE j.finished_at >= %(start)s AND j.finished_at < %(until)s AND j.tenant_id = ANY(%(tenants)s)
            AND (%(user)s::text = '' OR u.email = %(user)s::text) AND (%(job_name)s::text = '' OR j.name = %(job_name)s::text)
            AND (NOT %(by_label)s::bool OR j.labels @> jsonb_build_object(%(label_key)s::text, %(label_value)s::text))
    ) AS own WHERE %(path)s IN ('', own.path) OR starts_with(own.path, %(path)s || '/')
), used AS (
    SELECT m.workload_id, d.currency, m.gpu_numerator, m.gpu_denominator, d.milliseconds::numeric AS milliseconds,
        d.milliseconds::numeric * m.gpu_units AS gpu, d.cost,
        CASE WHEN d.day >= %(first)s AND d.day < %(last)s AND {INSIDE} THEN d.cost ELSE 0 END AS inside
    FROM ended AS e JOIN billing_meter AS m ON m.workload_id = e.id JOIN billing_meterday AS d ON d.meter_id = m.id
    UNION ALL
    SELECT m.workload_id, s.currency, m.gpu_numerator, m.gpu_denominator,
        -extract(epoch FROM upper(s.period) - lower(s.period)) * 1000, -s.gpu_milliseconds, -s.cost,
        CASE WHEN lower(s.period) >= %(start)s AND lower(s.period) < %(until)s AND {INSIDE} THEN -s.cost ELSE 0 END
    FROM {KNOWN} JOIN billing_meter AS m ON m.cluster_id = known.cluster_id AND m.source_uid = known.source_uid
        AND m.metered_until > known.until
    JOIN ended AS e ON e.id = m.workload_id
    CROSS JOIN LATERAL (
        SELECT * FROM billing_usagesegment WHERE meter_id = m.id AND lower(period) >= known.until OFFSET 0
    ) AS s
    UNION ALL
    SELECT beyond.* FROM unnest(%(of_jobs)s::uuid[], %(in_currencies)s::text[], %(numerators)s::int[], %(denominators)s::int[],
        %(lengths)s::numeric[], %(gpus)s::numeric[], %(costs)s::numeric[], %(insides)s::numeric[]) AS beyond(job_id)
    JOIN ended AS e ON e.id = beyond.job_id
    UNION ALL
    SELECT m.workload_id, moved.currency, m.gpu_numerator, m.gpu_denominator, moved.milliseconds, moved.milliseconds * m.gpu_units, moved.cost,
        CASE WHEN lower(s.period) >= %(start)s AND lower(s.period) < %(until)s AND {INSIDE} THEN moved.cost ELSE 0 END
    FROM ended AS e JOIN billing_meter AS m ON m.workload_id = e.id JOIN billing_usagesegment AS s ON s.meter_id = m.id
    LEFT JOIN {KNOWN} ON known.cluster_id = m.cluster_id AND known.source_uid = m.source_uid
    CROSS JOIN LATERAL (
        SELECT currency, cost, milliseconds FROM billing_corrected(m.id, s.period)
        UNION ALL
        SELECT s.currency, -s.cost, -extract(epoch FROM upper(s.period) - lower(s.period)) * 1000
    ) AS moved
    WHERE (known.until IS NULL OR lower(s.period) < known.until) AND {HAS_CORRECTION}
    UNION ALL
    SELECT m.workload_id, waived.currency, m.gpu_numerator, m.gpu_denominator, 0, 0, -waived.cost,
        CASE WHEN waived.day >= %(first)s AND waived.day < %(last)s AND {INSIDE} THEN -waived.cost ELSE 0 END
    FROM billing_waived((
        SELECT array_agg(DISTINCT own.run_id) FROM ended AS e JOIN billing_meter AS own ON own.workload_id = e.id
        JOIN billing_lostwork AS w ON w.run_id = own.run_id), '-infinity', 'infinity') AS waived
    JOIN billing_meter AS m ON m.id = waived.meter_id
    WHERE (SELECT EXISTS (SELECT 1 FROM billing_creditpolicy))
), spent AS (
    SELECT workload_id, currency, gpu_numerator, gpu_denominator, sum(gpu) AS gpu, sum(cost) AS cost, sum(inside) AS inside
    FROM used GROUP BY workload_id, currency, gpu_numerator, gpu_denominator
    HAVING sum(milliseconds) <> 0 OR sum(cost) <> 0 OR sum(inside) <> 0
), parts AS (
    SELECT e.id, COALESCE(NULLIF(s.currency, ''), min(NULLIF(s.currency, '')) OVER (PARTITION BY e.id), '') AS currency,
        COALESCE(s.gpu_numerator, 1) AS numerator, COALESCE(s.gpu_denominator, 1) AS denominator, s.gpu, s.cost, s.inside,
        s.currency = '' AS is_unpriced
    FROM ended AS e LEFT JOIN spent AS s ON s.workload_id = e.id
), counted AS (
    SELECT parts.*, row_number() OVER (PARTITION BY id ORDER BY currency, numerator, denominator) AS place,
        row_number() OVER (PARTITION BY id, currency ORDER BY numerator, denominator) AS place_in_currency
    FROM parts
)
SELECT {{keys}} e.state, c.currency, c.numerator, c.denominator, count(*) FILTER (WHERE c.place_in_currency = 1),
    count(*) FILTER (WHERE c.place = 1 AND e.id = ANY(%(open)s::uuid[])), COALESCE(sum(c.gpu), 0),
    COALESCE(sum(c.gpu) FILTER (WHERE c.is_unpriced), 0), COALESCE(sum(c.cost), 0), COALESCE(sum(c.inside), 0)
FROM counted AS c JOIN ended AS e ON e.id = c.id GROUP BY {{groups}} e.state, c.currency, c.numerator, c.denominator LIMIT %(most)s
"""
"""A job counts once in each currency that it costs something in. What has no price joins the first one of its job. Without a
correction or a policy of credits, their branches end at one look.
"""
