"""Checks the ledger by recomputing it from its source records."""

from dataclasses import dataclass

from django.db.models import Max

import quotas.queries
from billing.models import Meter, UsageSegment
from foundation.proofs import findings

from . import budget_proof, commitment_proof
from .ledger_proof import DAY_SUMS, DAY_SUMS_OF_CHANGES, money_discrepancies


@dataclass(frozen=True, slots=True)
class Place:
    """A position in the ledger: the last meter, segment and quota journal line. Zero is before the first."""

    meter: int = 0
    segment: int = 0
    movement: int = 0


START = Place()


def newest_place() -> Place:
    """The current end of the ledger."""
    meter = Meter.objects.aggregate(last=Max("id"))["last"] or 0
    segment = UsageSegment.objects.aggregate(last=Max("id"))["last"] or 0
    return Place(meter, segment, quotas.queries.newest_movement())


def discrepancies(since: Place = START) -> tuple[str, ...]:
    """Errors in the ledger, the budgets and the quota journal, as sentences; empty if all are correct.

    With `since`, checks only what was written after that position: new and extended meters, each as a whole.
    """
    found = findings(
        FULL_PROOFS if since == START else PROOFS_OF_CHANGES, {"meter": since.meter, "segment": since.segment}
    )
    if since == START:
        found = [*found, *findings((*SUMS, *DAY_SUMS), {}), *commitment_proof.discrepancies()]
    else:
        found = [*found, *findings(DAY_SUMS_OF_CHANGES, {"segment": since.segment})]
    of_budgets = budget_proof.discrepancies(is_full=since == START)
    return (*found, *money_discrepancies(), *of_budgets, *quotas.queries.discrepancies(since.movement))


CHANGED = """
AND m.id IN (SELECT id FROM billing_meter WHERE id > %(meter)s
             UNION SELECT meter_id FROM billing_usagesegment WHERE id > %(segment)s
             UNION SELECT meter_id FROM billing_meterrevision WHERE recorded_at > now() - interval '7 days')
"""
PROOFS = (
    (
        "meter {0} runs from {1} to {2}, which are not valid times",
        """
        SELECT m.id, m.metered_from, m.metered_until FROM billing_meter AS m
        WHERE (NOT isfinite(m.metered_from) OR NOT isfinite(m.metered_until) OR m.metered_until < m.metered_from
            OR m.metered_from < timestamptz '2000-01-01Z' OR m.metered_until > now() + interval '1 day') {changed}
        ORDER BY m.id
        """,
    ),
    (
        "meter {0}: segments cover {1} ms of the {2} ms from its beginning to {3}",
        """
        SELECT m.id, round(extract(epoch FROM coalesce(sum(upper(s.period) - lower(s.period)), interval '0')) * 1000),
            round(extract(epoch FROM m.metered_until - m.metered_from) * 1000), m.metered_until
        FROM billing_meter AS m
        LEFT JOIN billing_usagesegment AS s ON s.meter_id = m.id AND isfinite(lower(s.period)) AND isfinite(upper(s.period))
        WHERE isfinite(m.metered_from) AND isfinite(m.metered_until) {changed} GROUP BY m.id
        HAVING coalesce(sum(upper(s.period) - lower(s.period)), interval '0') <> m.metered_until - m.metered_from
            OR min(lower(s.period)) <> m.metered_from OR max(upper(s.period)) <> m.metered_until
        ORDER BY m.id
        """,
    ),
    (
        "meter {0}: a segment begins at {1} although the one before it ends at {2}",
        """
        SELECT meter_id, begins, before FROM (
            SELECT s.meter_id, lower(s.period) AS begins,
                lag(upper(s.period)) OVER (PARTITION BY s.meter_id ORDER BY lower(s.period)) AS before
            FROM billing_usagesegment AS s JOIN billing_meter AS m ON m.id = s.meter_id {changed}
        ) AS ordered WHERE begins <> before ORDER BY meter_id, begins
        """,
    ),
    (
        "segment {0} of meter {1} counts {2} GPU-ms and {3} millicore-ms, which does not match its meter",
        """
        SELECT s.id, m.id AS meter, s.gpu_milliseconds, s.cpu_millicore_milliseconds
        FROM billing_usagesegment AS s JOIN billing_meter AS m ON m.id = s.meter_id {changed}
        WHERE isfinite(lower(s.period)) AND isfinite(upper(s.period)) AND (
            s.gpu_milliseconds <> m.gpu_units * extract(epoch FROM upper(s.period) - lower(s.period)) * 1000
            OR s.cpu_millicore_milliseconds
                <> m.cpu_millicores * extract(epoch FROM upper(s.period) - lower(s.period)) * 1000)
        ORDER BY s.id
        """,
    ),
    (
        "segment {0} of meter {1} is of {2}, which is not a valid period",
        """
        SELECT s.id, m.id AS meter, s.period FROM billing_usagesegment AS s JOIN billing_meter AS m ON m.id = s.meter_id {changed}
        WHERE coalesce(isempty(s.period) OR NOT isfinite(lower(s.period)) OR NOT isfinite(upper(s.period))
            OR upper(s.period) > now() + interval '1 day', true)
        ORDER BY s.id
        """,
    ),
    (
        "segment {0} costs {1}, but by its price {2}",
        """
        SELECT id, cost, due FROM (
            SELECT s.id, s.cost, coalesce(billing_cost(
                m.unit = 'core' OR r.flavor <> m.flavor, m.gpu_units, m.cpu_millicores, m.memory_mib, m.metered_from,
                p.unit_price, p.cpu_price, p.memory_price, p.valid, s.period), 0) AS due,
                s.period <@ p.valid AND s.currency = p.currency
                AND (r.cluster_id, r.capacity_type) = (m.cluster_id, m.capacity_type)
                AND r.flavor IN (m.flavor, m.cpu_flavor) AS belongs
            FROM billing_usagesegment AS s JOIN billing_meter AS m ON m.id = s.meter_id {changed}
            LEFT JOIN billing_price AS p ON p.id = s.price_id LEFT JOIN billing_rate AS r ON r.id = p.rate_id
            WHERE isfinite(m.metered_from) AND isfinite(lower(s.period)) AND isfinite(upper(s.period))
        ) AS worked_out WHERE cost <> due OR NOT coalesce(belongs, true) ORDER BY id
        """,
    ),
    (
        "meter {0} is kept with {2} ms and a cost of {3} on {1}, but its segments add up to {4} ms and {5}",
        """
        SELECT meter_id, day, coalesce(kept.milliseconds, 0), coalesce(kept.cost, 0), coalesce(due.milliseconds, 0),
            coalesce(due.cost, 0)
        FROM (
            SELECT s.meter_id, (lower(s.period) AT TIME ZONE 'UTC')::date AS day, s.currency, coalesce(s.price_id, m.cluster_id) AS price,
                sum(round(extract(epoch FROM upper(s.period) - lower(s.period)) * 1000)) AS milliseconds, sum(s.cost) AS cost
            FROM billing_usagesegment AS s JOIN billing_meter AS m ON m.id = s.meter_id {changed}
            WHERE isfinite(lower(s.period)) AND isfinite(upper(s.period)) GROUP BY 1, 2, 3, 4
        ) AS due FULL JOIN (
            SELECT d.meter_id, d.day, d.currency, coalesce(d.price_id, m.cluster_id) AS price, d.milliseconds, d.cost
            FROM billing_meterday AS d JOIN billing_meter AS m ON m.id = d.meter_id {changed}
        ) AS kept USING (meter_id, day, currency, price)
        WHERE (coalesce(kept.milliseconds, 0), coalesce(kept.cost, 0)) <> (coalesce(due.milliseconds, 0), coalesce(due.cost, 0))
        ORDER BY 1, 2
        """,
    ),
    (
        "pod {1} of cluster {2} is metered twice from {3} on, by meters {0} and {4}",
        """
        SELECT m.id, split_part(m.source_uid, '~', 1) AS pod, m.cluster_id, greatest(m.metered_from, other.metered_from) AS since,
            other.id AS other
        FROM billing_meter AS m JOIN billing_meter AS other ON other.cluster_id = m.cluster_id AND other.id <> m.id
            AND other.source_uid = split_part(m.source_uid, '~', 1) AND m.source_uid <> other.source_uid {changed}
        WHERE m.metered_from < other.metered_until AND other.metered_from < m.metered_until AND m.metered_from < m.metered_until
        ORDER BY m.id
        """,
    ),
)
"""Each entry: a sentence and the query whose rows fill it. No rows means no error."""
FULL_PROOFS = tuple((sentence, query.format(changed="")) for sentence, query in PROOFS)
PROOFS_OF_CHANGES = tuple((sentence, query.format(changed=CHANGED)) for sentence, query in PROOFS)
SUMS = (
    (
        "the sum of {0} for {1} in {2} is {3} with {4} unit-ms, but its segments add up to {5} with {6}",
        """
        SELECT tenant.path, to_char(month, 'YYYY-MM'), coalesce(nullif(currency, ''), 'no currency'),
            coalesce(kept.cost, 0), coalesce(kept.gpu_milliseconds, 0), coalesce(due.cost, 0), coalesce(due.gpu, 0)
        FROM (
            SELECT m.tenant_id, date_trunc('month', lower(s.period) AT TIME ZONE 'UTC')::date AS month, s.currency,
                m.gpu_numerator, m.gpu_denominator, sum(s.cost) AS cost, sum(s.gpu_milliseconds) AS gpu
            FROM billing_usagesegment AS s JOIN billing_meter AS m ON m.id = s.meter_id
            WHERE isfinite(lower(s.period)) GROUP BY 1, 2, 3, 4, 5
        ) AS due FULL JOIN billing_tenantmonth AS kept
            USING (tenant_id, month, currency, gpu_numerator, gpu_denominator)
        JOIN tenancy_tenant AS tenant ON tenant.id = tenant_id
        WHERE (coalesce(kept.cost, 0), coalesce(kept.gpu_milliseconds, 0)) <> (coalesce(due.cost, 0), coalesce(due.gpu, 0))
        ORDER BY 1, 2, 3
        """,
    ),
)
"""The stored sums of a tenant's month against its segments. It reads all segments, so only a full check runs it."""
