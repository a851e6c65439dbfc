"""Makes jobs avoid a node for a while, in our inventory only: nothing is written to its cluster."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.models import F
from django.db.models.functions import Now

from clusters.locks import lock_cluster
from clusters.models import AvoidedNode, Cluster, Node
from clusters.queries.visible import cluster_by_id, require_at_owner
from foundation.outbox import announce
from foundation.problems import NotFound
from tenancy.operations import record_audit
from tenancy.queries import Actor

from .health import record_event


def avoid_node(
    cluster_id: UUID, node: str, reason: str, evidence: Mapping[str, Any], lasting: timedelta, *, most: int
) -> bool:
    """Whether jobs avoid the node from now on. No change if they do already, if the cluster has no such node, or if they
    avoid `most` of its nodes.
    """
    with transaction.atomic():
        if lock_cluster(cluster_id) is None:
            return False
        found = Node.objects.filter(cluster_id=cluster_id, name=node).first()
        active = AvoidedNode.objects.filter(cluster_id=cluster_id, ended_at=None)
        if found is None or active.filter(uid=found.uid).exists() or active.count() >= most:
            return False
        AvoidedNode.objects.create(
            cluster_id=cluster_id,
            node=node,
            uid=found.uid,
            reason=reason[:500],
            evidence=dict(evidence),
            until_at=Now() + lasting,
        )
        record_event(cluster_id, "node.avoided", f"Jobs avoid {node}: {reason}")
        _renew(cluster_id)
    return True


def end_avoidances(now: datetime) -> int:
    """The number of nodes that jobs no longer avoid, because their time is up or the cluster has another node instead."""
    due = AvoidedNode.objects.filter(ended_at=None)
    present = set(Node.objects.filter(cluster__in=due.values("cluster")).values_list("cluster_id", "uid"))
    over = [one for one in due if one.until_at <= now or (one.cluster_id, one.uid) not in present]
    return sum(_end(one, "") for one in over)


def clear_avoided_node(actor: Actor, cluster_id: UUID, avoided_id: UUID) -> AvoidedNode:
    """The period, ended now; audited. One that has ended does not change. Raises NotFound and NotAllowedHere."""
    cluster = cluster_by_id(actor, cluster_id)
    require_at_owner(actor, cluster)
    with transaction.atomic():
        found = AvoidedNode.objects.filter(cluster=cluster, id=avoided_id).first()
        if found is None:
            raise NotFound
        if _end(found, actor.name):
            record_audit(
                actor,
                "node.clear",
                object_kind="cluster",
                object_id=cluster.id,
                tenant_id=cluster.owner_id,
                detail={"node": found.node, "reason": found.reason},
            )
    return AvoidedNode.objects.get(id=avoided_id)


def _end(one: AvoidedNode, by: str) -> bool:
    with transaction.atomic():
        changed = AvoidedNode.objects.filter(id=one.id, ended_at=None).update(ended_at=Now(), ended_by=by[:300])
        if changed:
            told = f"Jobs no longer avoid {one.node}" + (f", by {by}." if by else ".")
            record_event(one.cluster_id, "node.cleared", told)
            _renew(one.cluster_id)
    return bool(changed)


def _renew(cluster_id: UUID) -> None:
    """Makes placement read the cluster's nodes again."""
    Cluster.objects.filter(id=cluster_id).update(inventory_version=F("inventory_version") + 1)
    announce("cycle")
