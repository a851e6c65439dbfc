"""The locking functions of this room. Call them inside a transaction."""

from collections.abc import Collection
from uuid import UUID

from .models import Cluster, MaintenanceWindow, Network, StagingPlan, Storage, TenantSecret


def lock_cluster(cluster_id: UUID) -> Cluster | None:
    """The cluster's row, locked against other writers until the transaction ends; None if it was removed."""
    return Cluster.objects.select_for_update(no_key=True).filter(id=cluster_id).first()


def lock_cluster_for_removal(cluster_id: UUID) -> Cluster | None:
    """The same, also locked against new rows that refer to it; None if it was removed already."""
    return Cluster.objects.select_for_update().filter(id=cluster_id).first()


def lock_storage(cluster_id: UUID, storage_id: UUID) -> Storage | None:
    """The storage's row, with its cluster and tenant, locked against other writers; None if there is none."""
    rows = Storage.objects.filter(cluster_id=cluster_id, id=storage_id).select_related("cluster", "tenant")
    return rows.select_for_update(of=("self",), no_key=True).first()


def lock_network(cluster_id: UUID, network_id: UUID) -> Network | None:
    """The network's row, with its cluster and tenant, locked against other writers; None if there is none."""
    rows = Network.objects.filter(cluster_id=cluster_id, id=network_id).select_related("cluster", "tenant")
    return rows.select_for_update(no_key=True, of=("self",)).first()


def lock_storages(storage_ids: Collection[UUID]) -> list[Storage]:
    """The rows of these storages, in id order, locked against other writers."""
    return list(Storage.objects.filter(id__in=list(storage_ids)).order_by("id").select_for_update(no_key=True))


def lock_staging_plans(plan_ids: Collection[UUID]) -> list[StagingPlan]:
    """The rows of those of these plans that exist, in id order: until commit they are not removed."""
    return list(StagingPlan.objects.filter(id__in=list(plan_ids)).order_by("id").select_for_update(no_key=True))


def lock_window(cluster_id: UUID, window_id: UUID) -> MaintenanceWindow | None:
    """The row of a cluster's maintenance window, locked against other writers; None if there is none."""
    rows = MaintenanceWindow.objects.filter(cluster_id=cluster_id, id=window_id)
    return rows.select_for_update(no_key=True).first()


def lock_secret(tenant_id: UUID, name: str) -> TenantSecret | None:
    """The row of a tenant's own secret, locked against other writers; None if there is none."""
    rows = TenantSecret.objects.filter(tenant_id=tenant_id, name=name).select_related("tenant")
    return rows.select_for_update(of=("self",), no_key=True).first()
