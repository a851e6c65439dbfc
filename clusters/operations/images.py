"""Stores which nodes have the images that the gateway follows, and how long clusters take to pull them.

A row is written per cluster and image, never per node, and only if a count has changed. The inventory's version does not
grow: which nodes there are does not depend on their images.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple
from uuid import UUID

from django.db import connection, transaction
from django.db.models.functions import Now

from clusters.engine.image_counts import ImageCount, counts
from clusters.engine.images import NodeImages
from clusters.engine.pulls import MOST_PULLS, PullSample
from clusters.locks import lock_cluster
from clusters.models import ClusterImage, Node

_BATCH = 1000

REMEMBER_PULLS = """
INSERT INTO clusters_pulltimes AS known (cluster_id, size_class, recent_seconds, pulls, last_at)
SELECT %(cluster)s, size_class, (array_agg(seconds ORDER BY position DESC))[1:%(most)s], count(*), now()
  FROM unnest(%(classes)s::int[], %(seconds)s::int[]) WITH ORDINALITY AS pull(size_class, seconds, position)
 GROUP BY size_class ORDER BY size_class
ON CONFLICT (cluster_id, size_class) DO UPDATE
   SET recent_seconds = (excluded.recent_seconds || known.recent_seconds)[1:%(most)s],
       pulls = known.pulls + excluded.pulls,
       last_at = now()
"""


class ImagesChange(NamedTuple):
    """The number of rows written or removed, and of nodes with images that are not stored yet: they do not count."""

    rows: int
    unknown_nodes: int


def record_images(
    cluster_id: UUID, by_node: Mapping[str, NodeImages], names: Sequence[str], kept: Collection[str] = ()
) -> ImagesChange:
    """Makes the stored counts of the images with these normal names equal to what the stored nodes report, and of those
    `kept` the names of the nodes. Other images are no longer stored.
    """
    devices = Node.objects.filter(cluster_id=cluster_id).values_list("name", "devices")
    flavors = {name: sorted({entry["flavor"] for entry in offered}) for name, offered in devices}
    found = counts(by_node, names, flavors, frozenset(kept))
    with transaction.atomic():
        if lock_cluster(cluster_id) is None:
            return ImagesChange(0, 0)
        stored = {row.name: row for row in ClusterImage.objects.filter(cluster_id=cluster_id)}
        rows = [
            ClusterImage(
                cluster_id=cluster_id,
                name=name,
                size_mib=one.size_mib,
                nodes=one.nodes,
                by_flavor=dict(one.by_flavor),
                on_nodes=_listed(one),
                changed_at=Now(),
            )
            for name, one in sorted(found.items())
            if (known := stored.get(name)) is None
            or (known.size_mib, known.nodes, known.by_flavor, known.on_nodes)
            != (one.size_mib, one.nodes, one.by_flavor, _listed(one))
        ]
        ClusterImage.objects.bulk_create(
            rows,
            batch_size=_BATCH,
            update_conflicts=True,
            unique_fields=["cluster", "name"],
            update_fields=["size_mib", "nodes", "by_flavor", "on_nodes", "changed_at"],
        )
        gone = [row.id for name, row in stored.items() if name not in found]
        if gone:
            ClusterImage.objects.filter(id__in=gone).delete()
    return ImagesChange(len(rows) + len(gone), sum(bool(has) for name, has in by_node.items() if name not in flavors))


def _listed(one: ImageCount) -> list[str] | None:
    return None if one.on_nodes is None else list(one.on_nodes)


def record_pulls(cluster_id: UUID, pulls: Sequence[PullSample]) -> None:
    """Adds pulls to the cluster's newest ones, the last of `pulls` being the newest."""
    with transaction.atomic():
        if not pulls or lock_cluster(cluster_id) is None:
            return
        with connection.cursor() as cursor:
            cursor.execute(
                REMEMBER_PULLS,
                {
                    "cluster": cluster_id,
                    "classes": [pull.size_class for pull in pulls],
                    "seconds": [pull.seconds for pull in pulls],
                    "most": MOST_PULLS,
                },
            )
