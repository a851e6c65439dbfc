"""Energy and emissions of metered use: by the groups of a usage report, and by the charges of a day.

Runs are added up at their edges in the database, so that only the hours in which runs begin or end leave it.
"""

from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from fractions import Fraction
from typing import Any
from uuid import UUID

from django.db import connection

from billing.engine.carbon import (
    Edge,
    Footprint,
    Hours,
    MeasuredHour,
    Part,
    Used,
    edges_of,
    footprint,
)
from billing.engine.months import midnight
from billing.models import MeasuredEnergy, Meter
from foundation.problems import Invalid

from .carbon import places_of
from .paths import Scope
from .progress import OpenRun
from .recorded import key_columns, naming, stored_statement, words_read

HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
MOST_EDGES = 400_000
MOST_TIME = timedelta(days=1_500)
PARTS: Sequence[Part] = ("gpu", "core", "gib")
"""As the statements have their sums."""
SCALES: Mapping[Part, Fraction] = {"core": Fraction(1, 1000), "gib": Fraction(1, 1024)}
"""Cores and GiB, which are rated, in what is metered."""
KEYS_OF_CHARGES = 9
"""The first columns of EDGES_OF_CHARGES: what identifies a charge of a day beside its GPU model."""
Key = tuple[Hashable, ...]


@dataclass(frozen=True, slots=True)
class _Place:
    cluster_id: UUID
    gpu_model: str
    numerator: int
    denominator: int
    has_gpus: bool

    @property
    def scales(self) -> Mapping[Part, Fraction]:
        return {"gpu": Fraction(self.numerator, self.denominator), **SCALES}


class _Uses:
    """What is used, by key and place, in the units that are metered."""

    def __init__(self) -> None:
        self._found: dict[tuple[Key, _Place], Used] = {}

    def _at(self, key: Key, place: _Place) -> Used:
        used = self._found.get((key, place))
        if used is None:
            used = self._found[key, place] = Used(place.gpu_model, place.has_gpus, scales=place.scales)
        return used

    def add_edge(self, key: Key, row: Sequence[Any]) -> None:
        """A row of the statements of edges."""
        *place, hour = row[:6]
        edges = self._at(key, _Place(*place)).edges
        for number, part in enumerate(PARTS, start=3):
            units, moments = row[2 * number], row[2 * number + 1]
            if units or moments:
                edges.setdefault(part, []).append(Edge(hour, int(units), int(moments)))

    def add_run(self, key: Key, meter: Meter, start: datetime, until: datetime) -> None:
        """A run that is not metered to its end, in [start, until)."""
        place = _Place(
            meter.cluster_id, meter.gpu_model, meter.gpu_numerator, meter.gpu_denominator, meter.gpu_units > 0
        )
        edges = self._at(key, place).edges
        for part, units in zip(PARTS, (meter.gpu_units, meter.cpu_millicores, meter.memory_mib), strict=True):
            edges.setdefault(part, []).extend(edges_of(start, until, units))

    def add_measured(self, key: Key, row: Sequence[Any]) -> None:
        """A row of the statements of measured hours."""
        *place, hour, whole, energy = row[:8]
        use = {part: int(amount) for part, amount in zip(PARTS, row[8:], strict=True) if amount}
        one = MeasuredHour(hour, Fraction(int(energy), int(whole)), use)
        self._at(key, _Place(*place)).measured.append(one)

    def footprints(self) -> Mapping[Key, Footprint]:
        """The energy and emissions of each key. Raises Invalid `report_too_large`."""
        times = [at for used in self._found.values() for at in used.times()]
        if not times:
            return {}
        start, until = min(times), max(times) + HOUR
        if until - start > MOST_TIME:
            raise Invalid.field("from", "report_too_large", f"energy and emissions of more than {MOST_TIME.days} days")
        places = places_of({place.cluster_id for _, place in self._found}, start, until)
        hours = {id_: Hours(place, start, until) for id_, place in places.items()}
        found: dict[Key, Footprint] = defaultdict(Footprint)
        for (key, place), used in self._found.items():
            found[key] += footprint(used, hours[place.cluster_id])
        return found


KeysAt = Callable[[Meter, datetime], Mapping[str, str]]


def footprints_of(
    words: Sequence[str], scope: Scope, running: Sequence[OpenRun], span: tuple[datetime, datetime], keys_at: KeysAt,
    key_of: Callable[[Mapping[str, str]], Key],
) -> Mapping[Key, Footprint]:  # fmt: skip
    """The energy and emissions of use in a span, by the keys of a usage report. Runs of `running` count to where they were
    observed; `keys_at` gives their keys. Raises Invalid `report_too_large`.
    """
    start, until = span
    words = words_read(words, scope)
    uses, named = _Uses(), naming(words, scope)
    values: dict[str, Any] = {
        "start": start, "until": until, "tenants": list(scope.tenants), "path": scope.path, "most": MOST_EDGES + 1,
        "clusters": [run.meter.cluster_id for run in running], "uids": [run.meter.source_uid for run in running],
    }  # fmt: skip
    with connection.cursor() as cursor:
        cursor.execute(stored_statement(words, EDGES), values)
        for row in _not_too_many(cursor.fetchall()):
            keys, *columns = named(row)
            uses.add_edge(key_of(keys), columns)
        if _is_measured(start, until):
            cursor.execute(stored_statement(words, MEASURED), {**values, "clusters": [], "uids": []})
            for row in _not_too_many(cursor.fetchall()):
                keys, *columns = named(row)
                uses.add_measured(key_of(keys), columns)
    by_day = {"day", "month"} & set(key_columns(words))
    for run in running:
        for begins, ends in _days(max(run.meter.metered_from, start), min(run.until, until), is_cut=bool(by_day)):
            uses.add_run(key_of(keys_at(run.meter, begins)), run.meter, begins, ends)
    return uses.footprints()


def footprints_of_charges(scope: Scope, day: date, as_of: datetime | None) -> Mapping[Key, Footprint]:
    """The energy and emissions of each charge of a day, by tenant, path, job, user, flavor, capacity type, sharing, whether it is
    priced by the core, price, cluster and GPU model; with `as_of`, of what was recorded until then.
    """
    uses, begins = _Uses(), midnight(day)
    values = {
        "start": begins, "until": begins + DAY, "as_of": as_of, "tenants": list(scope.tenants), "path": scope.path,
    }  # fmt: skip
    with connection.cursor() as cursor:
        cursor.execute(EDGES_OF_CHARGES, values)
        for row in cursor.fetchall():
            uses.add_edge((*row[: KEYS_OF_CHARGES + 2],), row[KEYS_OF_CHARGES:])
        if _is_measured(begins, begins + DAY):
            cursor.execute(MEASURED_OF_CHARGES, values)
            for row in cursor.fetchall():
                uses.add_measured((*row[: KEYS_OF_CHARGES + 2],), row[KEYS_OF_CHARGES:])
    return uses.footprints()


def _is_measured(start: datetime, until: datetime) -> bool:
    return MeasuredEnergy.objects.filter(hour__gt=start - HOUR, hour__lt=until).exists()


def _not_too_many(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    if len(rows) > MOST_EDGES:
        detail = (
            f"energy and emissions of more than {MOST_EDGES} hours and rows; group by fewer keys, or ask for less time"
        )
        raise Invalid.field("group_by", "report_too_large", detail)
    return rows


def _days(start: datetime, until: datetime, *, is_cut: bool) -> list[tuple[datetime, datetime]]:
    """The span, cut at midnights UTC if it is; nothing if it is empty."""
    found = []
    while start < until:
        ends = min(until, midnight(start.astimezone(UTC).date()) + DAY) if is_cut else until
        found.append((start, ends))
        start = ends
    return found


PLACE = "m.cluster_id, m.gpu_model, m.gpu_numerator, m.gpu_denominator"
ITS_TENANTS = """m.tenant_id = ANY(%(tenants)s)
        AND (%(path)s IN ('', m.tenant_path) OR starts_with(m.tenant_path, %(path)s || '/'))"""
AT_EDGES = """CROSS JOIN LATERAL (VALUES (1, part.begins_at), (-1, part.ends_at)) AS at(sign, moment)
CROSS JOIN LATERAL (
    SELECT date_trunc('hour', at.moment, 'UTC') AS hour,
        extract(epoch FROM at.moment - date_trunc('hour', at.moment, 'UTC')) * 1000 AS offset_ms
) AS edge"""
EDGE_SUMS = """sum(at.sign * m.gpu_units), sum(at.sign * m.gpu_units * edge.offset_ms),
    sum(at.sign * m.cpu_millicores), sum(at.sign * m.cpu_millicores * edge.offset_ms),
    sum(at.sign * m.memory_mib), sum(at.sign * m.memory_mib * edge.offset_ms)"""
DIFFERENT = """sum(at.sign * m.gpu_units) <> 0 OR sum(at.sign * m.gpu_units * edge.offset_ms) <> 0
    OR sum(at.sign * m.cpu_millicores) <> 0 OR sum(at.sign * m.cpu_millicores * edge.offset_ms) <> 0
    OR sum(at.sign * m.memory_mib) <> 0 OR sum(at.sign * m.memory_mib * edge.offset_ms) <> 0"""
IN_MEASURED_HOURS = """JOIN (
    SELECT DISTINCT ON (meter_id, hour) meter_id, hour, milliwatt_hours FROM billing_measuredenergy
    WHERE hour > %(start)s - interval '1 hour' AND hour < %(until)s ORDER BY meter_id, hour, id DESC
) AS e ON e.meter_id = part.meter_id AND e.hour < part.ends_at AND e.hour + interval '1 hour' > part.begins_at
CROSS JOIN LATERAL (
    SELECT extract(epoch FROM least(part.ends_at, e.hour + interval '1 hour') - greatest(part.begins_at, e.hour)) * 1000 AS length,
        extract(epoch FROM least(m.metered_until, e.hour + interval '1 hour') - greatest(m.metered_from, e.hour)) * 1000 AS whole
) AS own"""
MEASURED_SUMS = """sum(e.milliwatt_hours * own.length), sum(m.gpu_units * own.length), sum(m.cpu_millicores * own.length),
    sum(m.memory_mib * own.length)"""
METERED_DAYS = f"""(
    SELECT m.id AS meter_id, number::date AS day,
        greatest(m.metered_from, %(start)s, number::timestamp AT TIME ZONE 'UTC') AS begins_at,
        least(m.metered_until, %(until)s, (number + interval '1 day') AT TIME ZONE 'UTC') AS ends_at
    FROM billing_meter AS m CROSS JOIN LATERAL generate_series(
        date_trunc('day', greatest(m.metered_from, %(start)s) AT TIME ZONE 'UTC'),
        date_trunc('day', least(m.metered_until, %(until)s) AT TIME ZONE 'UTC' - interval '1 ms'), interval '1 day') AS number
    WHERE m.metered_from < %(until)s AND m.metered_until > %(start)s AND {ITS_TENANTS}
        AND NOT EXISTS (SELECT 1 FROM unnest(%(clusters)s::uuid[], %(uids)s::text[]) AS open(of_cluster, of_pod)
                         WHERE open.of_cluster = m.cluster_id AND open.of_pod = m.source_uid)
)"""
"""The days of meters that are not open: a meter is metered without gaps, so its time follows from its two ends."""
EDGES = f"""
SELECT {{keys}} {PLACE}, m.gpu_units > 0 AS has_gpus, edge.hour, {EDGE_SUMS}
FROM {METERED_DAYS} AS part JOIN billing_meter AS m ON m.id = part.meter_id {AT_EDGES}
GROUP BY {{groups}} {PLACE}, has_gpus, edge.hour HAVING {DIFFERENT} LIMIT %(most)s
"""
MEASURED = f"""
SELECT {{keys}} {PLACE}, m.gpu_units > 0 AS has_gpus, e.hour, own.whole, {MEASURED_SUMS}
FROM {METERED_DAYS} AS part JOIN billing_meter AS m ON m.id = part.meter_id {IN_MEASURED_HOURS}
GROUP BY {{groups}} {PLACE}, has_gpus, e.hour, own.whole LIMIT %(most)s
"""
CHARGED = """(
    SELECT s.meter_id, s.price_id, lower(s.period) AS begins_at, upper(s.period) AS ends_at FROM billing_usagesegment AS s
    WHERE lower(s.period) >= %(start)s AND lower(s.period) < %(until)s
        AND (%(as_of)s::timestamptz IS NULL OR s.recorded_at <= %(as_of)s)
)"""
OF_CHARGES = """m.tenant_id, m.tenant_path, m.workload_id, m.user_id, m.flavor, m.capacity_type, m.sharing,
    m.unit = 'core' OR (part.price_id IS NOT NULL AND r.flavor <> m.flavor) AS by_core, part.price_id"""
GROUPS_OF_CHARGES = """m.tenant_id, m.tenant_path, m.workload_id, m.user_id, m.flavor, m.capacity_type, m.sharing, by_core,
    part.price_id"""
THEIR_PRICES = "LEFT JOIN billing_price AS p ON p.id = part.price_id LEFT JOIN billing_rate AS r ON r.id = p.rate_id"
EDGES_OF_CHARGES = f"""
SELECT {OF_CHARGES}, {PLACE}, m.gpu_units > 0 AS has_gpus, edge.hour, {EDGE_SUMS}
FROM {CHARGED} AS part JOIN billing_meter AS m ON m.id = part.meter_id {THEIR_PRICES} {AT_EDGES}
WHERE {ITS_TENANTS} GROUP BY {GROUPS_OF_CHARGES}, {PLACE}, has_gpus, edge.hour
"""
MEASURED_OF_CHARGES = f"""
SELECT {OF_CHARGES}, {PLACE}, m.gpu_units > 0 AS has_gpus, e.hour, own.whole, {MEASURED_SUMS}
FROM {CHARGED} AS part JOIN billing_meter AS m ON m.id = part.meter_id {THEIR_PRICES} {IN_MEASURED_HOURS}
WHERE {ITS_TENANTS} GROUP BY {GROUPS_OF_CHARGES}, {PLACE}, has_gpus, e.hour, own.whole
"""
