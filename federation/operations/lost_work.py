"""Reports to billing what infrastructure lost of ended attempts, and again when later news says something else.

The database decides what was lost (`federation_lost_work`), and refuses to record anything else.
"""

from collections.abc import Collection
from datetime import timedelta
from uuid import UUID

from django.db import connection, transaction

import billing.operations
from federation.locks import lock_to_settle
from federation.models import Attempt
from foundation import clock
from foundation.transactions import retried

LOST_WORK = "SELECT attempt_id, cause, lost_from FROM federation_lost_work(%s)"
MISSED = """
SELECT due.attempt_id FROM federation_lost_work((
    SELECT array_agg(a.id) FROM federation_attempt AS a
     WHERE a.settled_at > now() - interval '1 hour' AND a.state IN ('failed', 'preempted', 'lost')
       AND NOT EXISTS (SELECT FROM billing_lostwork AS known WHERE known.run_id = a.id))) AS due
 WHERE due.cause <> ''
"""


def record_lost_work(attempt_ids: Collection[UUID]) -> int:
    """The number of these attempts of which something new is known. The caller holds locks of them that exclude settlement, so
    that two transactions do not record different news of one attempt.
    """
    if not attempt_ids:
        return 0
    with connection.cursor() as cursor:
        cursor.execute(LOST_WORK, [sorted(attempt_ids)])
        found = {attempt_id: (cause, lost_from) for attempt_id, cause, lost_from in cursor.fetchall()}
    return billing.operations.record_lost_work(found)


def record_work_lost_on(cluster_id: UUID, node: str, within: timedelta) -> int:
    """The same for attempts that failed on a node not longer ago than this: they count as lost once the node is avoided. In the
    caller's transaction.
    """
    since = clock.database_now() - within
    rows = Attempt.objects.filter(cluster=cluster_id, diagnosis__node=node, settled_at__gte=since)
    return record_lost_work(lock_to_settle(list(rows.values_list("id", flat=True))))


@retried
def record_missed() -> int:
    """The same for attempts that were settled in the last hour and of which nothing is recorded: a worker of an earlier version
    settled them during an upgrade.
    """
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute(MISSED)
            missed = [row[0] for row in cursor.fetchall()]
        return record_lost_work(lock_to_settle(missed)) if missed else 0
