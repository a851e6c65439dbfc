"""The cost of workloads so far."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
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
SELECT m.workload_id, waived.currency, sum(waived.cost)
FROM billing_waived((
    SELECT array_agg(DISTINCT own.run_id) FROM billing_meter AS own JOIN billing_lostwork AS w ON w.run_id = own.run_id
    WHERE own.workload_id = ANY(%s)), '-infinity', 'infinity') AS waived
JOIN billing_meter AS m ON m.id = waived.meter_id GROUP BY 1, 2
"""
RUNS_NOT_CHARGED = """
SELECT m.run_id, waived.currency, sum(waived.cost) FROM billing_waived(%s::uuid[], '-infinity', 'infinity') AS waived
JOIN billing_meter AS m ON m.id = waived.meter_id GROUP BY 1, 2 ORDER BY 1, 2
"""
NOTHING = Decimal(0)


@dataclass(frozen=True, slots=True)
class Money:
    """An amount of one currency."""

    amount: Decimal
    currency: str
    not_charged: Decimal


@dataclass(frozen=True, slots=True)
class CostView:
    """A cost before any rounding for display. `is_provisional` while part of the work still runs.

    `not_charged` was taken off the amount: infrastructure lost the work, and the organisation's policy does not charge it.

    `is_unpriced`: part of the work had no price, and the amount leaves it out. If `currency` is empty, none of it had a
    price. `beside`: what it costs in other currencies, where prices in several applied to it.
    """

    amount: Decimal
    currency: str
    is_provisional: bool
    is_unpriced: bool = False
    not_charged: Decimal = Decimal(0)
    beside: tuple[Money, ...] = ()


def costs_of(workload_ids: Collection[UUID]) -> Mapping[UUID, CostView]:
    """The cost so far of each workload that has run, including running time up to now."""
    if not workload_ids:
        return {}
    running = open_runs(Whose(workloads=workload_ids), now())
    amounts: dict[UUID, dict[str, Decimal]] = defaultdict(lambda: defaultdict(Decimal))
    lines = _recorded(workload_ids, running) + [
        (part.meter.workload_id, part.piece.currency, part.piece.cost) for part in provisional_parts(running)
    ]
    for workload_id, currency, cost in lines:
        amounts[workload_id][currency] += cost
    open_ids = {run.meter.workload_id for run in running}
    waived = _not_charged(workload_ids)
    return {
        id_: _cost_view(amounts.get(id_, {}), waived.get(id_, {}), is_provisional=id_ in open_ids)
        for id_ in amounts.keys() | open_ids
    }


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


def _cost_view(amounts: Mapping[str, Decimal], waived: Mapping[str, Decimal], *, is_provisional: bool) -> CostView:
    """The amount of the first currency in it, and the others beside it."""
    parts = [
        Money(amount - waived.get(currency, NOTHING), currency, waived.get(currency, NOTHING))
        for currency, amount in sorted(amounts.items())
        if currency
    ] or [Money(NOTHING, "", NOTHING)]
    first = parts[0]
    return CostView(first.amount, first.currency, is_provisional, "" in amounts, first.not_charged, tuple(parts[1:]))


def runs_not_charged(run_ids: Collection[UUID]) -> Mapping[UUID, Mapping[str, Decimal]]:
    """What is not charged of each of these runs, because infrastructure lost their work, by currency; of others nothing."""
    with connection.cursor() as cursor:
        cursor.execute(RUNS_NOT_CHARGED, [list(run_ids)])
        return _by_currency(cursor.fetchall())


def _by_currency(rows: Iterable[tuple[UUID, str, Decimal]]) -> dict[UUID, dict[str, Decimal]]:
    found: dict[UUID, dict[str, Decimal]] = defaultdict(dict)
    for id_, currency, cost in rows:
        found[id_][currency] = cost
    return dict(found)


def _not_charged(workload_ids: Collection[UUID]) -> Mapping[UUID, Mapping[str, Decimal]]:
    with connection.cursor() as cursor:
        cursor.execute(ANY_POLICY)
        if not cursor.fetchone()[0]:
            return {}
        cursor.execute(NOT_CHARGED, [list(workload_ids)])
        return _by_currency(cursor.fetchall())


def _recorded(workload_ids: Collection[UUID], running: Sequence[OpenRun]) -> list[tuple[UUID, str, Decimal]]:
    with connection.cursor() as cursor:
        cursor.execute(RECORDED, [*positions(running), list(workload_ids)])
        return list(cursor.fetchall())
