"""Keeps what Prometheus says of the GPUs of metered pods: which hours are to be asked for, and the rows of each.

The statements write two tables alone. Nothing that is charged reads them.
"""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import connection, transaction

from billing.engine.utilisation import ASKED_FOR, ASKED_FROM, Hour, next_ask
from billing.models.utilisation import REASON_LENGTH, TelemetryHour
from foundation.clock import database_now
from foundation.transactions import retried

LEASE_SECONDS = 900
"""An ask that did not end, for example because its process was killed, is repeated after this time."""
KEPT_DAYS = 90
MOST_COUNTED = 2_000_000_000


@dataclass(frozen=True, slots=True)
class Ask:
    """An hour of a cluster that this process asks for. It counts while the hour has as many asks."""

    id: int
    cluster_id: UUID
    hour: datetime
    asks: int
    url: str
    key_id: str
    sealed: bytes | None = field(repr=False)


@dataclass(frozen=True, slots=True)
class Told:
    """What came of an ask: the rows, or why there are none. `pods` could be measured; `measured` of them were before."""

    hour: Hour
    pods: int
    measured: int
    foreign: int = 0
    unusable: int = 0
    why_not: str = ""


def plan_hours() -> None:
    """Every hour of the last day that has ended, of each cluster with a Prometheus, is to be asked for; old ones are forgotten."""
    with connection.cursor() as cursor:
        cursor.execute(PLAN, {"back": ASKED_FOR.total_seconds(), "wait": ASKED_FROM.total_seconds()})
        cursor.execute(FORGET, {"kept": KEPT_DAYS})


@retried
@transaction.atomic
def claim_hours(at_once: int) -> list[Ask]:
    """The next due hour of each of some clusters: of those first that were asked longest ago."""
    with connection.cursor() as cursor:
        cursor.execute(CLAIM, {"lease": LEASE_SECONDS, "most": at_once, "back": ASKED_FOR.total_seconds()})
        rows = [[*row[:-1], row[-1] and bytes(row[-1])] for row in cursor.fetchall()]
        return [Ask(*row) for row in rows]


@retried
@transaction.atomic
def keep_hour(ask: Ask, told: Told) -> bool:
    """Stores what came of an ask, and when the hour is asked for again. False if a later ask has begun: then nothing is stored."""
    at = database_now()
    own = TelemetryHour.objects.filter(id=ask.id, asks=ask.asks)
    columns: dict[str, object] = {"next_at": next_ask(ask.hour, ask.asks, at), "why_not": told.why_not[:REASON_LENGTH]}
    if not told.why_not:
        columns |= {"pods": told.pods, "measured": min(told.measured, told.pods)}
        columns |= {"foreign": min(told.foreign, MOST_COUNTED), "unusable": min(told.unusable, MOST_COUNTED)}
    if not own.update(**columns):
        return False
    if told.hour.rows:
        _store(ask.hour, told.hour)
    return True


def _store(hour: datetime, found: Hour) -> None:
    rows = sorted(found.rows, key=lambda row: row.meter_id)
    columns: dict[str, list[Any]] = {
        name: [getattr(row, name) for row in rows]
        for name in (
            "meter_id", "coverage_seconds", "utilisation", "sm_active", "tensor_active", "peak_memory_mib", "power_watts",
        )
    }  # fmt: skip
    with connection.cursor() as cursor:
        cursor.execute(STORE, {"hour": hour, **columns})


PLAN = """
INSERT INTO billing_telemetryhour (cluster_id, hour, next_at)
SELECT p.cluster_id, hour, clock_timestamp()
  FROM clusters_clusterprometheus AS p JOIN clusters_cluster AS c ON c.id = p.cluster_id AND c.removed_at IS NULL
 CROSS JOIN generate_series(
       date_trunc('hour', clock_timestamp() - make_interval(secs => %(back)s), 'UTC'),
       date_trunc('hour', clock_timestamp() - make_interval(hours => 1, secs => %(wait)s), 'UTC'), interval '1 hour') AS hour
 ORDER BY p.cluster_id, hour ON CONFLICT (cluster_id, hour) DO NOTHING
"""
FORGET = "DELETE FROM billing_telemetryhour WHERE hour < clock_timestamp() - make_interval(days => %(kept)s)"
CLAIM = """
WITH due AS (
    SELECT DISTINCT ON (t.cluster_id) t.id, t.cluster_id
      FROM billing_telemetryhour AS t JOIN clusters_clusterprometheus AS p ON p.cluster_id = t.cluster_id
      JOIN clusters_cluster AS c ON c.id = t.cluster_id AND c.removed_at IS NULL
     WHERE t.next_at <= clock_timestamp() AND t.hour > clock_timestamp() - make_interval(secs => %(back)s) - interval '2 hours'
     ORDER BY t.cluster_id, t.hour DESC
), chosen AS (
    SELECT due.id FROM due ORDER BY (
        SELECT max(other.asked_at) FROM billing_telemetryhour AS other WHERE other.cluster_id = due.cluster_id
    ) NULLS FIRST, due.id LIMIT %(most)s
)
UPDATE billing_telemetryhour AS t SET asks = t.asks + 1, asked_at = clock_timestamp(),
       next_at = clock_timestamp() + make_interval(secs => %(lease)s)
  FROM chosen, clusters_clusterprometheus AS p
 WHERE t.id = chosen.id AND p.cluster_id = t.cluster_id AND t.next_at <= clock_timestamp()
RETURNING t.id, t.cluster_id, t.hour, t.asks, p.url, p.key_id, p.sealed
"""
"""A session that waited for another one's claim sees its new `next_at`, and leaves the row."""
STORE = """
INSERT INTO billing_utilisationhour AS known
       (meter_id, hour, coverage_seconds, utilisation, sm_active, tensor_active, peak_memory_mib, power_watts)
SELECT m.id, %(hour)s, row.coverage_seconds, row.utilisation, row.sm_active, row.tensor_active, row.peak_memory_mib, row.power_watts
  FROM unnest(%(meter_id)s::bigint[], %(coverage_seconds)s::int[], %(utilisation)s::numeric[], %(sm_active)s::numeric[],
              %(tensor_active)s::numeric[], %(peak_memory_mib)s::int[], %(power_watts)s::numeric[])
       AS row (meter_id, coverage_seconds, utilisation, sm_active, tensor_active, peak_memory_mib, power_watts)
  JOIN billing_meter AS m ON m.id = row.meter_id
 WHERE extract(epoch FROM least(m.metered_until, %(hour)s::timestamptz + interval '1 hour') - greatest(m.metered_from, %(hour)s::timestamptz)) >= row.coverage_seconds
 ORDER BY m.id
    ON CONFLICT (meter_id, hour) DO UPDATE SET
       coverage_seconds = excluded.coverage_seconds, utilisation = excluded.utilisation, sm_active = excluded.sm_active,
       tensor_active = excluded.tensor_active, peak_memory_mib = excluded.peak_memory_mib, power_watts = excluded.power_watts,
       measured_at = clock_timestamp()
 WHERE excluded.coverage_seconds >= known.coverage_seconds
   AND (known.coverage_seconds, known.utilisation, known.sm_active, known.tensor_active, known.peak_memory_mib, known.power_watts)
       IS DISTINCT FROM (excluded.coverage_seconds, excluded.utilisation, excluded.sm_active, excluded.tensor_active,
                         excluded.peak_memory_mib, excluded.power_watts)
"""
"""A meter that was shortened since it was read has no row. An answer that saw less than the one before changes nothing."""
