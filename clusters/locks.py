"""The locking functions of this room. Call them inside a transaction."""

from uuid import UUID

from .models import Cluster


def lock_cluster(cluster_id: UUID) -> Cluster | None:
    """The cluster's row, locked against other writers until the transaction ends; None if it was removed."""
    return Cluster.objects.select_for_update(no_key=True).filter(id=cluster_id).first()


def lock_cluster_for_removal(cluster_id: UUID) -> Cluster | None:
    """The same, also locked against new rows that refer to it; None if it was removed already."""
    return Cluster.objects.select_for_update().filter(id=cluster_id).first()
