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

RECORDED = f"""
SELECT m.workload_id, worth.currency, sum(worth.cost)
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
GROUP BY m.workload_id, worth.currency HAVING sum(worth.milliseconds) <> 0 OR sum(worth.cost) <> 0
"""
"""By the corrected prices. Takes away what was recorded of open runs since they were read: their provisional part contains it."""


@dataclass(frozen=True, slots=True)
class CostView:
    """A cost before any rounding for display. `is_provisional` while part of the work still runs.

    `is_unpriced`: part of the work had no price, and the amount leaves it out. If `currency` is empty, none of it had a
    price.
    """

    amount: Decimal
    currency: str
    is_provisional: bool
    is_unpriced: bool = False


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
    return {
        id_: CostView(amounts[id_], currencies.get(id_, ""), id_ in open_ids, id_ in unpriced)
        for id_ in amounts.keys() | open_ids
    }


def _recorded(workload_ids: Collection[UUID], running: Sequence[OpenRun]) -> list[tuple[UUID, str, Decimal]]:
    with connection.cursor() as cursor:
        cursor.execute(RECORDED, [*positions(running), list(workload_ids)])
        return list(cursor.fetchall())
