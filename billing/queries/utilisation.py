"""The report of utilisation: GPU-hours that were allocated, measured and used, and what unused ones cost. Nothing here is charged.

It has recorded usage alone, of pods with GPUs, at the prices of the time. A day's cost is split by the measured and the used part of
that day's GPU time, pod by pod.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, time
from decimal import Decimal
from fractions import Fraction
from typing import Any
from uuid import UUID

from django.db import connection
from django.db.models import QuerySet

from billing.engine.shares import shown_parts
from clusters.engine.gpu_models import memory_in_profile_mib, usual_memory_mib
from clusters.models import ClusterPrometheus
from clusters.queries.visible import visible_clusters
from foundation.problems import Invalid
from tenancy.engine.roles import Permission
from tenancy.models import Tenant
from tenancy.queries import Actor, visible_tenants

from .paths import Scope, tenants_under
from .recorded import GROUPS, key_columns, naming, stored_statement

MOST_ROWS = 20_000
MOST_DAYS = 366
PLACES = 6
SECONDS_AN_HOUR = 3600
HOURS = ("allocated_gpu_hours", "measured_gpu_hours", "utilised_gpu_hours")
MONEY = ("cost", "measured_cost", "waste")
SLICE = "mig:"
ZERO = Fraction(0)


@dataclass(frozen=True, slots=True)
class UtilisationRow:
    """One line. Hours are of physical GPUs; hours and money have six decimals and add up to the totals of their currency.

    Money is None for time without a price (`currency` is then empty). `measured_cost` is the part of the cost of measured time,
    `waste` the part of that in which GPUs did nothing. Of unmeasured time, neither is known. `peak_memory_ratio` is the
    most memory that a GPU used, of what its model has.
    """

    keys: Mapping[str, str]
    currency: str
    allocated_gpu_hours: Decimal
    measured_gpu_hours: Decimal
    utilised_gpu_hours: Decimal
    cost: Decimal | None
    measured_cost: Decimal | None
    waste: Decimal | None
    sm_active: Decimal | None
    tensor_active: Decimal | None
    peak_memory_mib: int | None
    peak_memory_ratio: Decimal | None

    @property
    def unmeasured_gpu_hours(self) -> Decimal:
        """Allocated, and not measured."""
        return self.allocated_gpu_hours - self.measured_gpu_hours

    @property
    def utilisation(self) -> Decimal | None:
        """The used part of measured time; None if nothing was measured."""
        return _ratio(self.utilised_gpu_hours, self.measured_gpu_hours)

    @property
    def cost_per_allocated_gpu_hour(self) -> Decimal | None:
        """None without a price or time."""
        return None if self.cost is None else _ratio(self.cost, self.allocated_gpu_hours)

    @property
    def cost_per_utilised_gpu_hour(self) -> Decimal | None:
        """What measured time cost, for each GPU-hour of it that was used."""
        return None if self.measured_cost is None else _ratio(self.measured_cost, self.utilised_gpu_hours)


@dataclass(frozen=True, slots=True)
class UtilisationReport:
    """Utilisation in [start, until), whole days (UTC). `totals` has the sums of the rows of each currency."""

    tenant_path: str
    start: datetime
    until: datetime
    group_by: tuple[str, ...]
    rows: tuple[UtilisationRow, ...]
    totals: tuple[UtilisationRow, ...]

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the key columns, in order."""
        return key_columns(self.group_by)


@dataclass(slots=True)
class _Sums:
    keys: Mapping[str, str]
    currency: str
    hours: list[Fraction]
    money: list[Fraction]
    active: list[Fraction]
    """Active SM-seconds, the seconds in which they were reported, and the same of tensor cores."""
    peak: int | None = None
    ratio: Fraction | None = None

    def add(self, other: "_Sums") -> None:
        for own, more in ((self.hours, other.hours), (self.money, other.money), (self.active, other.active)):
            own[:] = [one + two for one, two in zip(own, more, strict=True)]
        self.peak = max((one for one in (self.peak, other.peak) if one is not None), default=None)
        self.ratio = max((one for one in (self.ratio, other.ratio) if one is not None), default=None)


def utilisation_report(
    actor: Actor,
    tenant_path: str,
    start: datetime,
    until: datetime,
    group_by: Sequence[str] = (),
    *,
    among: QuerySet[Tenant] | None = None,
) -> UtilisationReport:
    """What the GPUs of a tenant and its descendants did in [start, until); if the path is empty, of all that the actor may see.

    Visibility and paths are those of `usage_report`. Raises NotFound, Invalid (`unknown_group`, `report_too_large`,
    `empty_period`, `not_whole_days`, `span_too_large`).
    """
    words = tuple(dict.fromkeys(group_by))
    unknown = [word for word in words if word not in GROUPS]
    if unknown:
        raise Invalid.field("group_by", "unknown_group", f"group by {', '.join(GROUPS)}; not by {unknown[0][:50]}")
    _check_period(start, until)
    tenants = tenants_under(actor, tenant_path) if among is None else dict(among.values_list("id", "path"))
    scope = Scope(tenant_path if among is None else "", tenants)
    found = _sums(words, scope, start, until)
    currencies = sorted({one.currency for one in found}) or [""]
    shown = [_shown(currency, [one for one in found if one.currency == currency]) for currency in currencies]
    rows = sorted((row for rows, _ in shown for row in rows), key=lambda row: tuple(row.keys.values()))
    return UtilisationReport(tenant_path, start, until, words, tuple(rows), tuple(total for _, total in shown))


@dataclass(frozen=True, slots=True)
class Source:
    """What the Prometheus of a cluster answered for the last day's hours: `pods` that could be measured, those that were, series of
    pods that are not the gateway's, numbers that are no measurement, and the last reason why an hour has no answer.
    """

    cluster: str
    cluster_id: UUID
    asked_at: datetime | None
    hours: int
    pods: int
    measured: int
    foreign: int
    unusable: int
    why_not: str


def is_measured(actor: Actor) -> bool:
    """Whether a cluster that the actor may see has a Prometheus."""
    return ClusterPrometheus.objects.filter(cluster__in=visible_clusters(actor).values("id")).exists()


def sources(actor: Actor) -> tuple[Source, ...]:
    """Those of the clusters that the actor manages, by name."""
    managed = visible_tenants(actor, Permission.MANAGE_CLUSTERS)
    known = ClusterPrometheus.objects.filter(cluster__in=visible_clusters(actor).filter(owner__in=managed).values("id"))
    ids = list(known.values_list("cluster_id", flat=True))
    if not ids:
        return ()
    with connection.cursor() as cursor:
        cursor.execute(SOURCES, {"clusters": ids})
        return tuple(Source(*row) for row in cursor.fetchall())


def _check_period(start: datetime, until: datetime) -> None:
    for name, at in (("from", start), ("to", until)):
        if at.astimezone(UTC).time() != time():
            raise Invalid.field(name, "not_whole_days", "give days: the report has whole days (UTC)")
    if start >= until:
        raise Invalid.field("to", "empty_period", "the period ends before it begins")
    if (until - start).days > MOST_DAYS:
        raise Invalid.field("to", "span_too_large", f"at most {MOST_DAYS} days")


def _sums(words: Sequence[str], scope: Scope, start: datetime, until: datetime) -> list[_Sums]:
    values: dict[str, Any] = {
        "start": start, "until": until, "first": start.astimezone(UTC).date(), "last": until.astimezone(UTC).date(),
        "tenants": list(scope.tenants), "path": scope.path, "most": MOST_ROWS + 1,
    }  # fmt: skip
    named = naming(words, scope)
    merged: dict[tuple[str, ...], _Sums] = {}
    with connection.cursor() as cursor:
        cursor.execute(stored_statement(words, UTILISATION), values)
        rows = cursor.fetchall()
    if len(rows) > MOST_ROWS:
        raise Invalid.field("group_by", "report_too_large", f"more than {MOST_ROWS} rows; group by fewer keys")
    for row in rows:
        one = _one(*named(row))
        key = (one.currency, *(value for name, value in one.keys.items() if name not in {"user", "job_name"}))
        if key in merged:
            merged[key].add(one)
        else:
            merged[key] = one
    return list(merged.values())


def _one(keys: Mapping[str, str], *columns: Any) -> _Sums:
    currency, model, sharing, numerator, denominator, peak, *sums = columns
    share = Fraction(numerator, denominator)
    exact = [Fraction(value or 0) for value in sums]
    memory = memory_in_profile_mib(sharing) if sharing.startswith(SLICE) else usual_memory_mib(model)
    ratio = Fraction(peak, memory) if peak is not None and memory else None
    return _Sums(keys, currency, [value * share for value in exact[:3]], exact[3:6], exact[6:], peak, ratio)


def _shown(currency: str, found: Sequence[_Sums]) -> tuple[list[UtilisationRow], UtilisationRow]:
    whole = _Sums({}, currency, [ZERO] * 3, [ZERO] * 3, [ZERO] * 4)
    for one in found:
        whole.add(one)
    hours = [shown_parts([one.hours[n] for one in found], PLACES, per=SECONDS_AN_HOUR) for n in range(3)]
    money = [shown_parts([one.money[n] for one in found], PLACES) for n in range(3)]
    rows = [
        _row(one, [parts[number] for parts, _ in hours], [parts[number] for parts, _ in money])
        for number, one in enumerate(found)
    ]
    return rows, _row(whole, [total for _, total in hours], [total for _, total in money])


def _row(sums: _Sums, hours: Sequence[Decimal], money: Sequence[Decimal]) -> UtilisationRow:
    active = [_rounded(sums.active[n], sums.active[n + 1]) for n in (0, 2)]
    shown: dict[str, Any] = dict(zip(HOURS, hours, strict=True))
    shown |= dict(zip(MONEY, money if sums.currency else (None,) * 3, strict=True))
    return UtilisationRow(
        keys=sums.keys,
        currency=sums.currency,
        sm_active=active[0],
        tensor_active=active[1],
        peak_memory_mib=sums.peak,
        peak_memory_ratio=None if sums.ratio is None else _rounded(sums.ratio, Fraction(1)),
        **shown,
    )


def _ratio(part: Decimal, whole: Decimal) -> Decimal | None:
    return _rounded(Fraction(part), Fraction(whole))


def _rounded(part: Fraction, whole: Fraction) -> Decimal | None:
    return shown_parts([part / whole], PLACES)[1] if whole else None


UTILISATION = """
WITH used AS (
    SELECT u.meter_id, (u.hour AT TIME ZONE 'UTC')::date AS seen_on, sum(seen.seconds) AS seen, sum(seen.seconds * u.utilisation) AS busy,
           sum(seen.seconds * u.sm_active) AS sm, sum(seen.seconds) FILTER (WHERE u.sm_active IS NOT NULL) AS sm_seen,
           sum(seen.seconds * u.tensor_active) AS tensor, sum(seen.seconds) FILTER (WHERE u.tensor_active IS NOT NULL) AS tensor_seen,
           max(u.peak_memory_mib) AS peak
      FROM billing_utilisationhour AS u JOIN billing_meter AS m ON m.id = u.meter_id
     CROSS JOIN LATERAL (SELECT greatest(least(u.coverage_seconds,
           extract(epoch FROM least(m.metered_until, u.hour + interval '1 hour') - greatest(m.metered_from, u.hour))), 0) AS seconds) AS seen
     WHERE u.hour >= %(start)s AND u.hour < %(until)s AND m.tenant_id = ANY(%(tenants)s)
       AND (%(path)s IN ('', m.tenant_path) OR starts_with(m.tenant_path, %(path)s || '/'))
     GROUP BY u.meter_id, seen_on
), part AS (
    SELECT d.meter_id, d.day, d.currency, d.milliseconds / 1000.0 AS seconds, d.cost,
           sum(d.milliseconds) OVER (PARTITION BY d.meter_id, d.day) / 1000.0 AS whole
      FROM billing_meterday AS d WHERE d.day >= %(first)s AND d.day < %(last)s AND d.milliseconds > 0
)
SELECT {keys} part.currency, m.gpu_model, m.sharing, m.gpu_numerator, m.gpu_denominator, max(used.peak),
       sum(part.seconds * m.gpu_units), sum(used.seen * part.seconds / part.whole * m.gpu_units),
       sum(used.busy * part.seconds / part.whole * m.gpu_units),
       sum(part.cost), sum(part.cost * used.seen / part.whole), sum(part.cost * (used.seen - used.busy) / part.whole),
       sum(used.sm * m.gpu_units), sum(used.sm_seen * m.gpu_units), sum(used.tensor * m.gpu_units), sum(used.tensor_seen * m.gpu_units)
  FROM part JOIN billing_meter AS m ON m.id = part.meter_id LEFT JOIN used ON used.meter_id = part.meter_id AND used.seen_on = part.day
 WHERE m.gpu_units > 0 AND m.tenant_id = ANY(%(tenants)s)
   AND (%(path)s IN ('', m.tenant_path) OR starts_with(m.tenant_path, %(path)s || '/'))
 GROUP BY {groups} part.currency, m.gpu_model, m.sharing, m.gpu_numerator, m.gpu_denominator LIMIT %(most)s
"""
"""A meter that was shortened since it was measured counts no more than its time. Days come from the sums of meters' segments."""
SOURCES = """
SELECT c.name, c.id, max(t.asked_at), count(t.id) FILTER (WHERE t.asks > 0), COALESCE(sum(t.pods), 0)::bigint,
       COALESCE(sum(t.measured), 0)::bigint, COALESCE(sum(t.foreign), 0)::bigint, COALESCE(sum(t.unusable), 0)::bigint,
       COALESCE((array_agg(t.why_not ORDER BY t.asked_at DESC NULLS LAST))[1], '')
  FROM clusters_cluster AS c LEFT JOIN billing_telemetryhour AS t ON t.cluster_id = c.id
   AND t.hour > clock_timestamp() - interval '1 day'
 WHERE c.id = ANY(%(clusters)s) GROUP BY c.id ORDER BY c.name, c.id
"""
