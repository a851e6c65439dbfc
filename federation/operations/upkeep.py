"""When clusters are compared with our rows: on a list that began anew, and when somebody asks."""

from uuid import UUID

from django.db import connection, transaction

from foundation.outbox import announce

MAKE_DUE = """
INSERT INTO federation_clusterupkeep (cluster_id)
SELECT id FROM clusters_cluster WHERE removed_at IS NULL AND id = ANY(coalesce(%s::uuid[], ARRAY[id])) ORDER BY id
    ON CONFLICT (cluster_id) DO UPDATE SET compare_due_at = now()
"""


def ask_for_reconciliation(*cluster_ids: UUID) -> None:
    """Has these clusters compared at once; all there are when none is named."""
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(MAKE_DUE, [list(cluster_ids) or None])
        announce("reconcile")
