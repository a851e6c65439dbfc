"""What the fleet offered at any time, from its history."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Literal
from uuid import UUID

from django.db import connection


@dataclass(frozen=True, slots=True)
class OfferedSpan:
    """What nodes of a cluster offered of a flavor from `start` to `until`: one node, or equal ones together without their names.

    `unit` is what the flavor is counted in.
    """

    cluster_id: UUID
    flavor: str
    capacity_type: str
    node: str
    uid: str
    start: datetime
    until: datetime
    unit: Literal["gpu", "core"]
    is_available: bool
    is_assumed: bool
    units: int
    cpu_millicores: int
    memory_mib: int


def offered_together(cluster_ids: Collection[UUID], start: datetime, until: datetime) -> list[OfferedSpan]:
    """The spans within [start, until). Nodes that arrived, changed and left together are one: most months have few rows."""
    with connection.cursor() as cursor:
        cursor.execute(OFFERED, {"clusters": list(cluster_ids), "start": start, "until": until})
        return [OfferedSpan(*row[:-3], *map(int, row[-3:])) for row in cursor.fetchall()]


def offered_by_nodes(
    cluster_ids: Collection[UUID], start: datetime, until: datetime, names: Collection[str] = ()
) -> list[OfferedSpan]:
    """The spans of each node (of these names, if given) within [start, until), by cluster, node, flavor and time."""
    with connection.cursor() as cursor:
        cursor.execute(
            NODES_OFFERED, {"clusters": list(cluster_ids), "start": start, "until": until, "names": list(names)}
        )
        return [OfferedSpan(*row) for row in cursor.fetchall()]


def history_begins(cluster_ids: Collection[UUID]) -> dict[UUID, datetime]:
    """When the history of each cluster that has one begins."""
    with connection.cursor() as cursor:
        cursor.execute(KNOWN_FROM, [list(cluster_ids)])
        return dict(cursor.fetchall())


OFFERED = """
SELECT o.cluster_id, o.flavor, s.capacity_type, '' AS node, '' AS uid, greatest(lower(s.period), %(start)s) AS start,
    least(coalesce(upper(s.period), %(until)s), %(until)s) AS until,
    CASE WHEN s.units > 0 OR s.gpu_model <> '' THEN 'gpu' ELSE 'core' END AS unit, s.is_available, s.is_assumed,
    sum(s.units), sum(s.cpu_millicores), sum(s.memory_mib)
FROM clusters_nodeoffer AS o JOIN clusters_nodespan AS s ON s.offer_id = o.id
WHERE o.cluster_id = ANY(%(clusters)s) AND s.period && tstzrange(%(start)s, %(until)s)
GROUP BY 1, 2, 3, 6, 7, 8, 9, 10
"""
NODES_OFFERED = """
SELECT o.cluster_id, o.flavor, s.capacity_type, o.node, s.uid, greatest(lower(s.period), %(start)s),
    least(coalesce(upper(s.period), %(until)s), %(until)s),
    CASE WHEN s.units > 0 OR s.gpu_model <> '' THEN 'gpu' ELSE 'core' END, s.is_available, s.is_assumed,
    s.units, s.cpu_millicores, s.memory_mib
FROM clusters_nodeoffer AS o JOIN clusters_nodespan AS s ON s.offer_id = o.id
WHERE o.cluster_id = ANY(%(clusters)s) AND s.period && tstzrange(%(start)s, %(until)s)
    AND (cardinality(%(names)s::text[]) = 0 OR o.node = ANY(%(names)s))
ORDER BY o.cluster_id, o.node, o.flavor, lower(s.period)
"""
KNOWN_FROM = """
SELECT o.cluster_id, min(lower(s.period)) FROM clusters_nodeoffer AS o JOIN clusters_nodespan AS s ON s.offer_id = o.id
WHERE o.cluster_id = ANY(%s) GROUP BY 1
"""
