"""What accepted recommendations saved: jobs of the same name, before and after the decision, and days of commitments."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, timedelta
from fractions import Fraction
from typing import Any
from uuid import UUID

from django.db import connection

from billing.engine.realised import Realised, Runs, WhyNot, realised
from billing.engine.recommendations import OF_JOBS, WINDOW_DAYS, Kind
from billing.models import Recommendation
from billing.queries.recommendations import unused_of_days
from foundation.clock import database_now
from placement.ranking.runtimes import name_pattern

MOST_AFTER = 90
"""Days after the decision that are measured."""
ONE_DAY = timedelta(days=1)
ANYTHING = "#"
"""In the pattern of a name, what changes from run to run."""
DECIDED = frozenset({Recommendation.State.ACCEPTED, Recommendation.State.DONE})


@dataclass(frozen=True, slots=True)
class Measured:
    """What was realised, and the days [first, last) of before and after, which leave out that of the decision."""

    before: tuple[date, date]
    after: tuple[date, date]
    result: Realised = field(repr=False)


def realised_of(rows: Iterable[Recommendation]) -> dict[UUID, Measured]:
    """By id, of those that are accepted or done. One statement for all that are about jobs."""
    today = database_now().astimezone(UTC).date()
    decided = {row.id: row for row in rows if row.state in DECIDED}
    spans = {id_: _spans(row, today) for id_, row in decided.items()}
    runs = _runs({id_: row for id_, row in decided.items() if row.kind in OF_JOBS}, spans)
    return {id_: Measured(*spans[id_], _result(row, spans[id_], runs)) for id_, row in decided.items()}


def _spans(row: Recommendation, today: date) -> tuple[tuple[date, date], tuple[date, date]]:
    assert row.decided_at is not None  # a constraint
    day = row.decided_at.astimezone(UTC).date()
    first = day + ONE_DAY
    return (day - timedelta(days=WINDOW_DAYS), day), (first, max(first, min(today, first + timedelta(days=MOST_AFTER))))


def _result(
    row: Recommendation,
    spans: tuple[tuple[date, date], tuple[date, date]],
    runs: Mapping[tuple[UUID, bool], Runs],
) -> Realised:
    if row.kind == Kind.MISSING_LABEL:
        return Realised(Runs(), Runs(), why_not=WhyNot.SAVES_NOTHING)
    if row.kind == Kind.UNUSED_COMMITMENT:
        days = (unused_of_days(row.organisation_id, UUID(row.subject), *span) for span in spans)
        return realised(*(Runs(len(each), len(each), sum(each, Fraction(0)), _squares(each)) for each in days))
    return realised(*(runs.get((row.id, is_after), Runs()) for is_after in (False, True)))


def _squares(each: Iterable[Fraction]) -> Fraction:
    return sum((one * one for one in each), Fraction(0))


def _runs(
    rows: Mapping[UUID, Recommendation], spans: Mapping[UUID, tuple[tuple[date, date], tuple[date, date]]]
) -> dict[tuple[UUID, bool], Runs]:
    if not rows:
        return {}
    asked = [(row, is_after, spans[id_][is_after]) for id_, row in rows.items() for is_after in (False, True)]
    values: dict[str, Any] = {
        "ids": [row.id for row, *_ in asked], "after": [is_after for _, is_after, _ in asked],
        "tenants": [row.tenant_id for row, *_ in asked], "prefixes": [row.evidence["name"].partition(ANYTHING)[0] for row, *_ in asked],
        "currencies": [row.currency for row, *_ in asked],
        "starts": [first for *_, (first, _) in asked], "ends": [last for *_, (_, last) in asked],
    }  # fmt: skip
    found: dict[tuple[UUID, bool], Runs] = {}
    with connection.cursor() as cursor:
        cursor.execute(RUNS, values)
        for id_, is_after, name, jobs, units, cost, squares, others in cursor.fetchall():
            if name_pattern(name) == rows[id_].evidence["name"]:
                before = found.get((id_, is_after), Runs())
                found[id_, is_after] = before.plus(Runs(jobs, units, Fraction(cost), Fraction(squares), others))
    return found


RUNS = """
SELECT asked.id, asked.is_after, j.name, count(*), count(*) FILTER (WHERE j.state = 'succeeded'), sum(spent.cost), sum(spent.cost * spent.cost),
       count(*) FILTER (WHERE spent.has_others)
  FROM unnest(%(ids)s::uuid[], %(after)s::bool[], %(tenants)s::uuid[], %(prefixes)s::text[], %(currencies)s::text[], %(starts)s::date[],
       %(ends)s::date[]) AS asked(id, is_after, tenant_id, prefix, currency, first, last)
  JOIN federation_job AS j ON j.tenant_id = asked.tenant_id AND starts_with(j.name, asked.prefix)
   AND j.finished_at >= asked.first::timestamp AT TIME ZONE 'UTC' AND j.finished_at < asked.last::timestamp AT TIME ZONE 'UTC'
 CROSS JOIN LATERAL (
    SELECT COALESCE(sum(d.cost) FILTER (WHERE d.currency = asked.currency), 0) AS cost,
           bool_or(d.currency <> asked.currency AND d.milliseconds > 0) AS has_others, sum(d.milliseconds) AS milliseconds
      FROM billing_meter AS m JOIN billing_meterday AS d ON d.meter_id = m.id WHERE m.workload_id = j.id
 ) AS spent
 WHERE spent.milliseconds > 0
   AND NOT EXISTS (SELECT 1 FROM federation_attempt AS a WHERE a.job_id = j.id AND a.settled_at IS NULL)
 GROUP BY asked.id, asked.is_after, j.name
"""
"""Jobs that never ran are no runs; of those whose usage is not settled, the cost is not known. Costs are as charged first."""
