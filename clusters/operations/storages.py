"""Declares which claims of a cluster jobs may mount. The gateway creates no volumes: it trusts the administrator's input."""

from dataclasses import asdict, dataclass
from typing import Any
from uuid import UUID

from django.db import IntegrityError, transaction
from django.db.models.functions import Now

from clusters.engine.storages import Mode
from clusters.locks import lock_storage
from clusters.models import Cluster, DatasetReplica, Storage
from clusters.queries.storages import storage_by_id
from clusters.queries.visible import served_tenant
from foundation.problems import Conflict, NotFound
from tenancy.queries import Actor

from .declared import managed_cluster, record_declaration


@dataclass(frozen=True, slots=True)
class WantedStorage:
    """A storage to declare; without a tenant, it serves the owner of the cluster."""

    name: str
    claim: str
    tenant: str = ""
    mode: str = Mode.READ_ONLY
    prefix: str = ""


@dataclass(frozen=True, slots=True)
class StorageChanges:
    """The changes; None leaves a value as it is. A storage keeps its name."""

    claim: str | None = None
    tenant: str | None = None
    mode: str | None = None
    prefix: str | None = None


def create_storage(actor: Actor, cluster_id: UUID, wanted: WantedStorage) -> Storage:
    """The new storage. The actor must manage the cluster.

    Raises NotFound and NotAllowedHere (cluster), Invalid (`not_found` for a tenant that the cluster does not serve),
    Conflict `storage_exists`.
    """
    cluster = managed_cluster(actor, cluster_id)
    tenant = served_tenant(actor, cluster, wanted.tenant)
    columns = {**asdict(wanted), "tenant": tenant}
    try:
        with transaction.atomic():
            storage = Storage.objects.create(cluster=cluster, **columns)
            record_declaration(actor, "storage.create", storage, after=_standing(storage))
    except IntegrityError as error:
        if "storage_name_is_unique_on_its_cluster" in str(error):
            raise Conflict(f"{cluster.name} already has a storage {wanted.name}.", code="storage_exists") from None
        raise
    return storage_by_id(actor, cluster_id, storage.id)


def update_storage(actor: Actor, cluster_id: UUID, storage_id: UUID, changes: StorageChanges) -> Storage:
    """The storage after the change, which applies to later placements. With another claim or prefix, placement counts the copies
    of datasets there no longer. Raises as `create_storage` does.
    """
    cluster = managed_cluster(actor, cluster_id)
    columns = {name: value for name, value in asdict(changes).items() if value is not None}
    if changes.tenant is not None:
        columns["tenant"] = served_tenant(actor, cluster, changes.tenant)
    with transaction.atomic():
        storage = _locked(cluster, storage_id)
        before = _standing(storage)
        Storage.objects.filter(id=storage_id).update(changed_at=Now(), **columns)
        after = storage_by_id(actor, cluster_id, storage_id)
        if (storage.claim, storage.prefix) != (after.claim, after.prefix):
            DatasetReplica.objects.filter(storage_id=storage_id).delete()  # they are where it was
        record_declaration(actor, "storage.update", storage, before=before, after=_standing(after))
    return after


def remove_storage(actor: Actor, cluster_id: UUID, storage_id: UUID) -> None:
    """Deletes the storage: no later placement uses it. Attempts that were placed with it keep it."""
    cluster = managed_cluster(actor, cluster_id)
    with transaction.atomic():
        storage = _locked(cluster, storage_id)
        Storage.objects.filter(id=storage_id).delete()
        record_declaration(actor, "storage.remove", storage, before=_standing(storage))


def _locked(cluster: Cluster, storage_id: UUID) -> Storage:
    storage = lock_storage(cluster.id, storage_id)
    if storage is None:
        raise NotFound
    return storage


def _standing(storage: Storage) -> dict[str, Any]:
    return {"tenant": storage.tenant.path} | {
        name: getattr(storage, name) for name in ("kind", "claim", "mode", "prefix")
    }
