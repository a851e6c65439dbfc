"""Whether the books are right, worked out again from the ground."""

from django.db import connection

import quotas.queries


def discrepancies() -> tuple[str, ...]:
    """What is wrong in the ledger and the quota journal, in sentences; empty when both are right."""
    found: list[str] = []
    with connection.cursor() as cursor:
        for sentence, query in PROOFS:
            cursor.execute(query)
            found += [sentence.format(*row) for row in cursor.fetchall()]
    return (*found, *quotas.queries.discrepancies())


PROOFS = (
    (
        "meter {0}: segments cover {1} ms of the {2} ms from its beginning to {3}",
        """
        SELECT m.id, (extract(epoch FROM coalesce(sum(upper(s.period) - lower(s.period)), interval '0')) * 1000)::bigint,
            (extract(epoch FROM m.metered_until - m.metered_from) * 1000)::bigint, m.metered_until
        FROM billing_meter AS m LEFT JOIN billing_usagesegment AS s ON s.meter_id = m.id GROUP BY m.id
        HAVING coalesce(sum(upper(s.period) - lower(s.period)), interval '0') <> m.metered_until - m.metered_from
            OR min(lower(s.period)) <> m.metered_from OR max(upper(s.period)) <> m.metered_until
        ORDER BY m.id
        """,
    ),
    (
        "meter {0}: a segment begins at {1} although the one before it ends at {2}",
        """
        SELECT meter_id, begins, before FROM (
            SELECT meter_id, lower(period) AS begins,
                lag(upper(period)) OVER (PARTITION BY meter_id ORDER BY lower(period)) AS before
            FROM billing_usagesegment
        ) AS ordered WHERE begins <> before ORDER BY meter_id, begins
        """,
    ),
    (
        "segment {0} of meter {1} counts {2} GPU-ms and {3} millicore-ms, which its meter did not",
        """
        SELECT s.id, m.id, s.gpu_milliseconds, s.cpu_millicore_milliseconds
        FROM billing_usagesegment AS s JOIN billing_meter AS m ON m.id = s.meter_id
        WHERE s.gpu_milliseconds <> m.gpu_units * extract(epoch FROM upper(s.period) - lower(s.period)) * 1000
            OR s.cpu_millicore_milliseconds
                <> m.cpu_millicores * extract(epoch FROM upper(s.period) - lower(s.period)) * 1000
        ORDER BY s.id
        """,
    ),
    (
        "segment {0} costs {1}, its price says {2}",
        """
        SELECT id, cost, due FROM (
            SELECT s.id, s.cost, coalesce(billing_cost(
                m.unit = 'core' OR r.flavor <> m.flavor, m.gpu_units, m.cpu_millicores, m.memory_mib, m.metered_from,
                p.unit_price, p.cpu_price, p.memory_price, p.valid, s.period), 0) AS due,
                s.period <@ p.valid AND s.currency = p.currency
                AND (r.cluster_id, r.capacity_type) = (m.cluster_id, m.capacity_type)
                AND r.flavor IN (m.flavor, m.cpu_flavor) AS belongs
            FROM billing_usagesegment AS s JOIN billing_meter AS m ON m.id = s.meter_id
            LEFT JOIN billing_price AS p ON p.id = s.price_id LEFT JOIN billing_rate AS r ON r.id = p.rate_id
        ) AS worked_out WHERE cost <> due OR NOT coalesce(belongs, true) ORDER BY id
        """,
    ),
)
"""Each: a sentence and the query whose rows fill it. No rows is the proof."""
