"""The cost of workloads so far."""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from uuid import UUID

from django.db import connection

from foundation.clock import now

from .corrected import HAS_CORRECTION
from .progress import OpenRun, Whose, open_runs, positions, provisional_parts

_METERS = f"""
FROM billing_meter AS m
LEFT JOIN unnest(%s::uuid[], %s::text[], %s::timestamptz[]) AS known(cluster_id, source_uid, until)
    ON known.cluster_id = m.cluster_id AND known.source_uid = m.source_uid
CROSS JOIN LATERAL (
    SELECT d.currency, d.cost, d.milliseconds FROM billing_meterday AS d WHERE d.meter_id = m.id
    UNION ALL
    SELECT s.currency, -s.cost, -extract(epoch FROM upper(s.period) - lower(s.period)) * 1000
    FROM billing_usagesegment AS s WHERE s.meter_id = m.id AND lower(s.period) >= known.until
    UNION ALL
    SELECT moved.currency, moved.cost, moved.milliseconds
    FROM billing_usagesegment AS s CROSS JOIN LATERAL (
        SELECT currency, cost, milliseconds FROM billing_corrected(m.id, s.period)
        UNION ALL
        SELECT s.currency, -s.cost, -extract(epoch FROM upper(s.period) - lower(s.period)) * 1000
    ) AS moved
    WHERE s.meter_id = m.id AND (known.until IS NULL OR lower(s.period) < known.until) AND {HAS_CORRECTION}
) AS worth
WHERE m.workload_id = ANY(%s)
"""
_SOME = "HAVING sum(worth.milliseconds) <> 0 OR sum(worth.cost) <> 0"
RECORDED = f"""
SELECT m.workload_id, worth.currency, sum(worth.cost) {_METERS} GROUP BY m.workload_id, worth.currency {_SOME}
"""
RECORDED_BY_RUN = (
    f"SELECT m.run_id, worth.currency, sum(worth.cost) {_METERS} GROUP BY m.run_id, worth.currency {_SOME}"
)
"""By the corrected prices. Takes away what was recorded of open runs since they were read: their provisional part contains it."""

ANY_POLICY = "SELECT EXISTS (SELECT 1 FROM billing_creditpolicy)"
NOT_CHARGED = """
SELECT m.workload_id, sum(waived.cost)
FROM billing_waived((
    SELECT array_agg(DISTINCT own.run_id) FROM billing_meter AS own JOIN billing_lostwork AS w ON w.run_id = own.run_id
    WHERE own.workload_id = ANY(%s)), '-infinity', 'infinity') AS waived
JOIN billing_meter AS m ON m.id = waived.meter_id GROUP BY 1
"""
RUNS_NOT_CHARGED = """
SELECT m.run_id, sum(waived.cost) FROM billing_waived(%s::uuid[], '-infinity', 'infinity') AS waived
JOIN billing_meter AS m ON m.id = waived.meter_id GROUP BY 1
"""
NOTHING = Decimal(0)


@dataclass(frozen=True, slots=True)
class CostView:
    """A cost before any rounding for display. `is_provisional` while part of the work still runs.

    `not_charged` was taken off the amount: infrastructure lost the work, and the organisation's policy does not charge it.

    `is_unpriced`: part of the work had no price, and the amount leaves it out. If `currency` is empty, none of it had a
    price.
    """

    amount: Decimal
    currency: str
    is_provisional: bool
    is_unpriced: bool = False
    not_charged: Decimal = Decimal(0)


def costs_of(workload_ids: Collection[UUID]) -> Mapping[UUID, CostView]:
    """The cost so far of each workload that has run, including running time up to now.

    An organisation's prices are in one currency, so a workload's cost is too.
    """
    if not workload_ids:
        return {}
    running = open_runs(Whose(workloads=workload_ids), now())
    amounts: dict[UUID, Decimal] = defaultdict(Decimal)
    currencies: dict[UUID, str] = {}
    lines = _recorded(workload_ids, running) + [
        (part.meter.workload_id, part.piece.currency, part.piece.cost) for part in provisional_parts(running)
    ]
    unpriced: set[UUID] = set()
    for workload_id, currency, cost in lines:
        amounts[workload_id] += cost
        if currency:
            currencies[workload_id] = currency
        else:
            unpriced.add(workload_id)
    open_ids = {run.meter.workload_id for run in running}
    waived = _not_charged(workload_ids)
    return {
        id_: CostView(
            amounts[id_] - waived.get(id_, NOTHING), currencies.get(id_, ""), id_ in open_ids, id_ in unpriced,
            waived.get(id_, NOTHING),
        )
        for id_ in amounts.keys() | open_ids
    }  # fmt: skip


def costs_of_runs(workload_id: UUID) -> Mapping[UUID, Mapping[str, Decimal]]:
    """What each run of a workload costs so far, by currency (empty: without a price), including running time up to now."""
    running = open_runs(Whose(workloads=[workload_id]), now())
    with connection.cursor() as cursor:
        cursor.execute(RECORDED_BY_RUN, [*positions(running), [workload_id]])
        lines = list(cursor.fetchall())
    lines += [(part.meter.run_id, part.piece.currency, part.piece.cost) for part in provisional_parts(running)]
    found: dict[UUID, dict[str, Decimal]] = defaultdict(lambda: defaultdict(Decimal))
    for run_id, currency, cost in lines:
        found[run_id][currency] += cost
    return found


def runs_not_charged(run_ids: Collection[UUID]) -> Mapping[UUID, Decimal]:
    """What is not charged of each of these runs, because infrastructure lost their work; of others nothing."""
    with connection.cursor() as cursor:
        cursor.execute(RUNS_NOT_CHARGED, [list(run_ids)])
        return dict(cursor.fetchall())


def _not_charged(workload_ids: Collection[UUID]) -> Mapping[UUID, Decimal]:
    with connection.cursor() as cursor:
        cursor.execute(ANY_POLICY)
        if not cursor.fetchone()[0]:
            return {}
        cursor.execute(NOT_CHARGED, [list(workload_ids)])
        return dict(cursor.fetchall())


def _recorded(workload_ids: Collection[UUID], running: Sequence[OpenRun]) -> list[tuple[UUID, str, Decimal]]:
    with connection.cursor() as cursor:
        cursor.execute(RECORDED, [*positions(running), list(workload_ids)])
        return list(cursor.fetchall())
