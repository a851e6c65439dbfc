"""When clusters are compared with our rows: after a new list, and on request."""

from uuid import UUID

from django.db import close_old_connections, connection, transaction

from foundation.outbox import announce

MAKE_DUE = """
INSERT INTO federation_clusterupkeep (cluster_id, compare_due_at)
SELECT id, now() + make_interval(secs => %s)
  FROM clusters_cluster WHERE removed_at IS NULL AND id = ANY(coalesce(%s::uuid[], ARRAY[id])) ORDER BY id
    ON CONFLICT (cluster_id) DO UPDATE SET compare_due_at = excluded.compare_due_at
"""
VOID_CLAIMS = "UPDATE federation_clusterupkeep SET compare_claimed_until = NULL WHERE compare_claimed_until IS NOT NULL"
POSTPONE = """
UPDATE federation_clusterupkeep
   SET compare_claimed_until = NULL,
       compare_due_at = greatest(now() + make_interval(secs => %s),
                                 (SELECT compare_from FROM federation_standstill WHERE ended_at IS NULL))
 WHERE cluster_id = %s
"""
POSTPONED_SECONDS = 2
GIVE_UP = """
UPDATE federation_clusterupkeep
   SET compare_claimed_until = NULL,
       compare_due_at = CASE WHEN EXISTS (SELECT FROM federation_standstill WHERE ended_at IS NULL)
                             THEN least(compare_due_at, now() + make_interval(secs => %s)) ELSE compare_due_at END
 WHERE cluster_id = %s
"""
RETRY_SECONDS = 5
"""In a standstill, in which everything waits for the comparison. A cluster that does not answer is spared by its driver."""


def ask_for_reconciliation(*cluster_ids: UUID) -> None:
    """Requests an immediate comparison of these clusters; of all clusters if none is named."""
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(MAKE_DUE, [0, list(cluster_ids) or None])
        announce("reconcile")


def compare_all_in(seconds: float) -> None:
    """Requests the next comparison of all clusters after this time. Those under way do not count and hold up no other:
    their processes may have died with the database's earlier server.
    """
    with connection.cursor() as cursor:
        cursor.execute(MAKE_DUE, [seconds, None])
        cursor.execute(VOID_CLAIMS)


def postpone_comparison(cluster_id: UUID) -> None:
    """Ends the claim of a comparison that does not count, and requests another one soon, in a standstill as soon as
    comparisons count.
    """
    with connection.cursor() as cursor:
        cursor.execute(POSTPONE, [POSTPONED_SECONDS, cluster_id])


def give_up_comparison(cluster_id: UUID) -> None:
    """Ends the claim of a comparison that failed, and in a standstill requests another one soon."""
    close_old_connections()  # the failure may be that of the session
    with connection.cursor() as cursor:
        cursor.execute(GIVE_UP, [RETRY_SECONDS, cluster_id])
