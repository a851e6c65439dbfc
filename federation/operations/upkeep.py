"""When clusters are compared with our rows: after a new list, and on request."""

from uuid import UUID

from django.db import connection, transaction

from foundation.outbox import announce

MAKE_DUE = """
INSERT INTO federation_clusterupkeep (cluster_id)
SELECT id FROM clusters_cluster WHERE removed_at IS NULL AND id = ANY(coalesce(%s::uuid[], ARRAY[id])) ORDER BY id
    ON CONFLICT (cluster_id) DO UPDATE SET compare_due_at = now()
"""


def ask_for_reconciliation(*cluster_ids: UUID) -> None:
    """Requests an immediate comparison of these clusters; of all clusters if none is named."""
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(MAKE_DUE, [list(cluster_ids) or None])
        announce("reconcile")
