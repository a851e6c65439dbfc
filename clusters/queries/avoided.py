"""Nodes that jobs avoid for a while, and those that they avoided."""

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from clusters.models import AvoidedNode, Cluster

HISTORY_SHOWN = 50


@dataclass(frozen=True, slots=True)
class AvoidedView:
    """A period in which jobs avoid, or avoided, a node."""

    id: UUID
    node: str
    reason: str
    began_at: datetime
    until_at: datetime
    ended_at: datetime | None
    ended_by: str

    @property
    def is_active(self) -> bool:
        """Whether jobs avoid it now."""
        return self.ended_at is None


def avoided_on(cluster_ids: Collection[UUID]) -> Mapping[UUID, Mapping[str, str]]:
    """Why jobs avoid nodes now, by cluster and the node's uid."""
    found: dict[UUID, dict[str, str]] = defaultdict(dict)
    rows = AvoidedNode.objects.filter(cluster_id__in=cluster_ids, ended_at=None)
    for cluster_id, uid, reason in rows.values_list("cluster_id", "uid", "reason"):
        found[cluster_id][uid] = reason
    return found


def avoided_names() -> Mapping[UUID, frozenset[str]]:
    """The names of the nodes that jobs avoid now, by cluster."""
    found: dict[UUID, set[str]] = defaultdict(set)
    for cluster_id, node in AvoidedNode.objects.filter(ended_at=None).values_list("cluster_id", "node"):
        found[cluster_id].add(node)
    return {cluster_id: frozenset(names) for cluster_id, names in found.items()}


def last_ends() -> Mapping[tuple[UUID, str], datetime]:
    """When jobs last stopped avoiding a node, by cluster and the node's name: what was seen before does not count again."""
    rows = AvoidedNode.objects.exclude(ended_at=None).order_by("ended_at")
    return {(cluster_id, node): at for cluster_id, node, at in rows.values_list("cluster_id", "node", "ended_at") if at}


def history_of(cluster: Cluster) -> tuple[AvoidedView, ...]:
    """The newest periods, those of now first."""
    rows = AvoidedNode.objects.filter(cluster=cluster).order_by("-id")
    found = [view_of(row) for row in rows[:HISTORY_SHOWN]]
    return tuple(sorted(found, key=lambda one: not one.is_active))


def view_of(row: AvoidedNode) -> AvoidedView:
    """The row as users see it."""
    return AvoidedView(row.id, row.node, row.reason, row.began_at, row.until_at, row.ended_at, row.ended_by)
