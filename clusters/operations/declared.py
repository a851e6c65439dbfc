"""What the declarations of a cluster have in common: its storages and its networks."""

from typing import Any
from uuid import UUID

from clusters.models import Cluster, Network, Storage
from clusters.queries.visible import cluster_by_id, require_at_owner
from foundation.outbox import announce
from tenancy.operations import record_audit
from tenancy.queries import Actor


def managed_cluster(actor: Actor, cluster_id: UUID) -> Cluster:
    """The cluster. Raises NotFound, and NotAllowedHere if the actor does not manage it."""
    cluster = cluster_by_id(actor, cluster_id)
    require_at_owner(actor, cluster)
    return cluster


def record_declaration(
    actor: Actor,
    action: str,
    declared: Network | Storage,
    before: dict[str, Any] | None = None,
    after: dict[str, Any] | None = None,
) -> None:
    """Audits the change (`network.create`, for example), and lets the next cycle see it."""
    detail = {"cluster": declared.cluster.name, "name": declared.name, "before": before, "after": after}
    kind, owner_id = action.partition(".")[0], declared.cluster.owner_id
    record_audit(actor, action, object_kind=kind, object_id=declared.id, tenant_id=owner_id, detail=detail)
    announce("cycle")
