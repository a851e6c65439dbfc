"""Clusters of which the inventory or an administrator says that something there will soon be stopped."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID

from django.db import connection

CLUSTERS = """
SELECT id FROM clusters_cluster WHERE wish = 'draining'
 UNION
SELECT cluster_id FROM clusters_maintenancewindow
 WHERE drain AND cancelled_at IS NULL AND starts_at > now() AND starts_at < now() + %(ahead)s
 UNION
SELECT cluster_id FROM clusters_node AS node
 WHERE taints <> '[]' AND EXISTS (SELECT FROM jsonb_array_elements(node.taints) AS taint WHERE taint->>'key' = ANY(%(taints)s))
"""


def clusters_with_notice(ahead: timedelta, taints: Sequence[str]) -> list[UUID]:
    """The clusters that are drained, that have a maintenance window which drains and begins within that time, or a node with a
    taint of one of these keys. One query.
    """
    asked: dict[str, Any] = {"ahead": ahead, "taints": list(taints)}
    with connection.cursor() as cursor:
        cursor.execute(CLUSTERS, asked)
        return [cluster_id for (cluster_id,) in cursor.fetchall()]
