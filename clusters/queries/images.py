"""Which images clusters have, and how long they take to pull others."""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from clusters.engine.pulls import USUAL_SECONDS, class_of, expected_seconds
from clusters.models import ClusterImage, PullTimes


@dataclass(frozen=True, slots=True)
class ImageView:
    """An image on a cluster: the class of its size, and the number of nodes that have it by flavor."""

    cluster_id: UUID
    name: str
    size_class: int
    by_flavor: Mapping[str, int]


def image_counts(names: Collection[str]) -> list[ImageView]:
    """The counts of the images with these normal names, on every cluster that has them."""
    rows = ClusterImage.objects.filter(name__any_of=list(names)).order_by("cluster_id", "name")
    return [ImageView(row.cluster_id, row.name, class_of(row.size_mib), row.by_flavor) for row in rows]


def nodes_with(cluster_id: UUID, names: Collection[str]) -> dict[str, frozenset[str]]:
    """By normal name, the nodes of the cluster that list these images; of images that nodes should not have, none is known."""
    rows = ClusterImage.objects.filter(cluster_id=cluster_id, name__in=list(names)).exclude(on_nodes=None)
    return {name: frozenset(nodes or ()) for name, nodes in rows.values_list("name", "on_nodes")}


def pulls_by_cluster() -> dict[UUID, tuple[int, ...]]:
    """How long a pull is expected to take, for each class of size, on each cluster where pulls were seen."""
    seen: dict[UUID, dict[int, Sequence[int]]] = defaultdict(dict)
    for cluster_id, size_class, recent in PullTimes.objects.values_list("cluster_id", "size_class", "recent_seconds"):
        seen[cluster_id][size_class] = recent
    return {
        cluster_id: tuple(expected_seconds(recent.get(number, ()), number) for number in range(len(USUAL_SECONDS)))
        for cluster_id, recent in seen.items()
    }
