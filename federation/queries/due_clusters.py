"""Clusters with attempts that dispatch has to visit."""

from typing import NamedTuple
from uuid import UUID

from django.db import connection

from clusters.models import Cluster
from federation.models import DISPATCH_IS_OPEN, IS_LIVE

SILENT = [Cluster.Health.UNREACHABLE, Cluster.Health.AUTH_FAILED]
_DUE_CLUSTERS = f"""
SELECT cluster.id, coalesce(upkeep.slow_dispatch_until > now(), false)
  FROM clusters_cluster AS cluster
  LEFT JOIN federation_clusterupkeep AS upkeep ON upkeep.cluster_id = cluster.id
 WHERE cluster.health <> ALL(%(silent)s)
   AND coalesce(upkeep.rests_until <= now(), true)
   AND {DISPATCH_IS_OPEN}
   AND EXISTS (SELECT FROM federation_attempt AS attempt
                WHERE attempt.cluster_id = cluster.id AND attempt.next_action_at <= now() AND attempt.state {IS_LIVE}
                  AND (attempt.claim_expires_at IS NULL OR attempt.claim_expires_at < now()))
   AND NOT (coalesce(upkeep.slow_dispatch_until > now(), false)
            AND EXISTS (SELECT FROM federation_attempt AS attempt
                         WHERE attempt.cluster_id = cluster.id AND attempt.state {IS_LIVE}
                           AND attempt.claim_expires_at > now()))
"""
_IS_BEING_VISITED = f"""
SELECT EXISTS (SELECT FROM federation_attempt
                WHERE cluster_id = %(cluster)s AND state {IS_LIVE} AND claim_expires_at > now())
"""


class DueCluster(NamedTuple):
    """A cluster with work to do; `is_slow`: a recent visit to it was slow."""

    id: UUID
    is_slow: bool


def due_clusters() -> list[DueCluster]:
    """Clusters that answer, do not rest, and have unclaimed attempts due for a visit. Costs one index lookup per cluster,
    and another per slow one: it has one visit at a time, and to look for that only at its door would cost a connection
    each time.
    """
    with connection.cursor() as cursor:
        cursor.execute(_DUE_CLUSTERS, {"silent": SILENT})
        return [DueCluster._make(row) for row in cursor.fetchall()]


def is_being_visited(cluster_id: UUID) -> bool:
    """Whether attempts there have a valid claim."""
    with connection.cursor() as cursor:
        cursor.execute(_IS_BEING_VISITED, {"cluster": cluster_id})
        return bool(cursor.fetchone()[0])
