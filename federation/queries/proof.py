"""Checks whether jobs, attempts, pods, holds and meters agree across all rooms; only the
highest room can query them all.
"""

from datetime import datetime

from federation.engine.unseen import WHY
from federation.models import IS_LIVE
from foundation.proofs import findings


def disagreements(since: datetime | None = None) -> tuple[str, ...]:
    """The disagreements, in sentences; with `since`, only of attempts settled after it or not settled yet."""
    return tuple(findings(PROOFS, {"since": since.isoformat() if since else "-infinity"}))


SETTLED = "FROM federation_attempt AS a WHERE a.settled_at >= %(since)s::timestamptz"
SETTLED_PODS = """
FROM federation_attempt AS a JOIN federation_podrun AS pod ON pod.attempt_id = a.id
WHERE a.settled_at >= %(since)s::timestamptz AND pod.started_at IS NOT NULL
"""
METER_OF_POD = """
FROM billing_meter AS m WHERE m.cluster_id = pod.cluster_id
    AND m.source_uid = pod.uid || CASE pod.part WHEN 0 THEN '' ELSE '~' || pod.part END
"""
PROOFS = (
    (
        "attempt {0} is {1} and has no pending hold",
        f"""
        SELECT a.id, a.state FROM federation_attempt AS a LEFT JOIN quotas_hold AS h ON h.holder_id = a.id
        WHERE a.state {IS_LIVE} AND h.state IS DISTINCT FROM 'pending' ORDER BY a.id
        """,
    ),
    (
        "attempt {0} is {1} although its job is {2}",
        f"""
        SELECT a.id, a.state, j.state AS job FROM federation_attempt AS a JOIN federation_job AS j ON j.id = a.job_id
        WHERE a.state {IS_LIVE} AND j.state NOT IN ('dispatching', 'running', 'cancelling') ORDER BY a.id
        """,
    ),
    (
        "job {0} is {1} although it has no live attempt",
        f"""
        SELECT j.id, j.state FROM federation_job AS j
        WHERE j.id IN (SELECT a.job_id {SETTLED}) AND j.state IN ('dispatching', 'running', 'cancelling')
            AND NOT EXISTS (SELECT 1 FROM federation_attempt AS a WHERE a.job_id = j.id AND a.state {IS_LIVE})
        ORDER BY j.id
        """,
    ),
    (
        "pending hold {0} belongs to no attempt that is live or waits for settlement, no wait for data and no stage-in",
        """
        SELECT h.holder_id FROM quotas_hold AS h LEFT JOIN federation_attempt AS a ON a.id = h.holder_id
        WHERE h.state = 'pending' AND (a.id IS NULL OR a.settled_at IS NOT NULL)
            AND NOT EXISTS (SELECT FROM federation_datawait AS w WHERE w.id = h.holder_id AND w.ended_at IS NULL)
            AND NOT EXISTS (SELECT FROM federation_stagein AS s WHERE s.object_id = h.holder_id) ORDER BY h.holder_id
        """,
    ),
    (
        "job {1} waits for data and has no pending hold {0}",
        """
        SELECT w.id, w.job_id FROM federation_datawait AS w LEFT JOIN quotas_hold AS h ON h.holder_id = w.id
        WHERE w.ended_at IS NULL AND h.state IS DISTINCT FROM 'pending' ORDER BY w.id
        """,
    ),
    (
        "the copy for plan {1} is under way and has no pending hold {0}",
        """
        SELECT s.object_id, s.plan_id FROM federation_stagein AS s LEFT JOIN quotas_hold AS h ON h.holder_id = s.object_id
        WHERE s.object_id IS NOT NULL AND h.state IS DISTINCT FROM 'pending' ORDER BY s.object_id
        """,
    ),
    (
        "pending budget hold {0} belongs to no attempt that is live or waits for settlement",
        """
        SELECT h.holder_id FROM billing_budgethold AS h LEFT JOIN federation_attempt AS a ON a.id = h.holder_id
        WHERE h.state = 'pending' AND (a.id IS NULL OR a.settled_at IS NOT NULL) ORDER BY h.holder_id
        """,
    ),
    (
        "attempt {0} is {1}, but its budget hold is {2}",
        f"""
        SELECT a.id, a.state, b.state AS hold FROM federation_attempt AS a JOIN billing_budgethold AS b ON b.holder_id = a.id
        WHERE a.state {IS_LIVE} AND b.state <> 'pending' ORDER BY a.id
        """,
    ),
    (
        "attempt {0} ended at {1}, but its hold was {2} before its usage was settled",
        """
        SELECT a.id, a.finished_at, h.state FROM federation_attempt AS a JOIN quotas_hold AS h ON h.holder_id = a.id
        WHERE a.settled_at IS NULL AND a.finished_at IS NOT NULL AND a.reopened_at IS NULL AND h.state <> 'pending'
        ORDER BY a.id
        """,
    ),
    (
        "attempt {0} ended at {1} and is not settled yet: {2}",
        """
        SELECT a.id, a.finished_at, coalesce(nullif(a.settle_error, ''), 'cause unknown') AS why FROM federation_attempt AS a
        WHERE a.settled_at IS NULL AND a.finished_at < now() - interval '1 day' ORDER BY a.id
        """,
    ),
    (
        "attempt {0} is settled, but its hold is {1} and it has {2} meters",
        f"""
        SELECT id, state, meters FROM (
            SELECT a.id, h.state, a.reopened_at, (SELECT count(*) FROM billing_meter AS m
                WHERE m.workload_id = a.job_id AND m.run_id = a.id) AS meters
            FROM (SELECT a.* {SETTLED}) AS a JOIN quotas_hold AS h ON h.holder_id = a.id
        ) AS settled
        WHERE state = 'pending' OR state = 'posted' AND meters = 0 OR state = 'voided' AND meters > 0 AND reopened_at IS NULL
        ORDER BY id
        """,
    ),
    (
        "pod {1} of settled attempt {0} ran and has no closed meter",
        f"SELECT a.id, pod.uid {SETTLED_PODS} AND NOT EXISTS (SELECT {METER_OF_POD} AND m.is_closed) ORDER BY a.id, pod.uid",
    ),
    (
        "pod {1} of settled attempt {0} ran from {2} to {3}, which its meters do not cover",
        f"""
        SELECT a.id, pod.uid, pod.started_at, pod.finished_at {SETTLED_PODS} AND EXISTS (SELECT {METER_OF_POD}
                AND (m.metered_until < date_trunc('milliseconds', pod.finished_at) AND NOT (pod.reason = '{WHY}' AND m.revisions > 0)
                    OR m.metered_from <> date_trunc('milliseconds', coalesce(pod.resumed_at, pod.started_at))
                    OR m.metered_until > greatest(pod.started_at, pod.finished_at, pod.observed_at, a.finished_at, a.settled_at)))
        ORDER BY a.id, pod.uid
        """,
    ),
    (
        "pod {1} of settled attempt {0} is reported to have ended at {2}, but is still assumed to have run longer",
        f"""
        SELECT a.id, pod.uid, pod.finished_at {SETTLED_PODS} AND pod.reason <> '{WHY}'
            AND (pod.finished_at > pod.started_at OR NOT pod.is_estimated) AND EXISTS (SELECT {METER_OF_POD}
                AND m.certain_until < m.metered_until AND m.metered_until > date_trunc('milliseconds', pod.finished_at))
        ORDER BY a.id, pod.uid
        """,
    ),
    (
        "meter {1} counts {2} for settled attempt {0}, which has no such pod",
        f"""
        SELECT a.id, m.id AS meter, m.source_uid FROM (SELECT a.* {SETTLED}) AS a
        JOIN billing_meter AS m ON m.workload_id = a.job_id AND m.run_id = a.id
        WHERE NOT EXISTS (SELECT 1 FROM federation_podrun AS pod
            WHERE pod.attempt_id = a.id AND pod.cluster_id = m.cluster_id AND pod.uid = split_part(m.source_uid, '~', 1))
        ORDER BY a.id, m.id
        """,
    ),
    (
        "attempt {0} lost its work since {2} to {1}, but billing records since {4} to {3}",
        f"""
        SELECT due.attempt_id, due.cause, due.lost_from, coalesce(known.cause, '') AS recorded, known.lost_from AS recorded_from
        FROM federation_lost_work((SELECT array_agg(a.id) {SETTLED})) AS due
        LEFT JOIN LATERAL billing_lost(due.attempt_id) AS known ON true
        WHERE (due.cause, due.lost_from) IS DISTINCT FROM (coalesce(known.cause, ''), known.lost_from)
            AND 'bad_node' NOT IN (due.cause, coalesce(known.cause, '')) ORDER BY due.attempt_id
        """,
    ),
    (
        "attempt {0} began to start at {1} and ended at {2}",
        f"""
        SELECT a.id, a.starting_at, a.finished_at {SETTLED} AND (a.finished_at < a.starting_at
            OR NOT isfinite(a.finished_at) OR a.finished_at > now() + interval '1 day'
            OR coalesce(NOT isfinite(a.starting_at), false))
        ORDER BY a.id
        """,
    ),
)
"""Each entry has a sentence and the query whose rows fill it. Unsettled rows are few, whatever the history."""
