"""Declares which claims of a cluster jobs may mount, and from which buckets datasets may be copied there. The gateway creates no
volumes and connects to no object store: it trusts the administrator's input.
"""

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import IntegrityError, transaction
from django.db.models.functions import Now

from clusters.engine.object_stores import USUAL_REGION, faults_of, read_endpoint
from clusters.engine.storages import Kind, Mode
from clusters.locks import lock_storage
from clusters.models import Cluster, DatasetReplica, Storage
from clusters.queries.storages import storage_by_id
from clusters.queries.visible import served_tenant
from foundation.problems import Conflict, FieldError, Invalid, NotFound
from tenancy.models import NAME_PATTERN
from tenancy.queries import Actor

from .declared import managed_cluster, record_declaration

OF_STORES = ("endpoint", "region", "bucket", "secret")
"""The columns that only an object store has."""
_PLACES = ("claim", "mode", *OF_STORES)


@dataclass(frozen=True, slots=True)
class WantedStorage:
    """A storage to declare; without a tenant, it serves the owner of the cluster. It has a claim, or all that names a bucket, of
    which the region has a default.
    """

    name: str
    claim: str = ""
    tenant: str = ""
    mode: str = Mode.READ_ONLY
    prefix: str = ""
    kind: str = Kind.CLAIM
    endpoint: str = ""
    region: str = ""
    bucket: str = ""
    secret: str = ""


@dataclass(frozen=True, slots=True)
class StorageChanges:
    """The changes; None leaves a value as it is. A storage keeps its name and its kind."""

    claim: str | None = None
    tenant: str | None = None
    mode: str | None = None
    prefix: str | None = None
    endpoint: str | None = None
    region: str | None = None
    bucket: str | None = None
    secret: str | None = None


def create_storage(actor: Actor, cluster_id: UUID, wanted: WantedStorage) -> Storage:
    """The new storage. The actor must manage the cluster.

    Raises NotFound and NotAllowedHere (cluster), Invalid (`not_found` for a tenant that the cluster does not serve, and what
    does not belong to its kind), Conflict `storage_exists`.
    """
    cluster = managed_cluster(actor, cluster_id)
    columns = {**asdict(wanted), "tenant": served_tenant(actor, cluster, wanted.tenant)}
    columns |= _place_of(wanted.kind, columns)
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
        columns |= _place_of(storage.kind, {name: getattr(storage, name) for name in _PLACES} | columns)
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


def _place_of(kind: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """The columns that say where a storage of this kind is, in their normal form. Raises Invalid with every field at fault."""
    is_store = kind == Kind.OBJECT_STORE
    foreign = ("claim",) if is_store else OF_STORES
    errors = [
        FieldError(name, "not_allowed", f"a storage of the kind {kind} has none") for name in foreign if given[name]
    ]
    if is_store:
        found, wrong = _bucket(given)
    else:
        found, wrong = {}, [] if given["claim"] else [FieldError("claim", "required", "name a claim")]
    if errors or wrong:
        raise Invalid(errors=[*errors, *wrong])
    return found


def _bucket(given: Mapping[str, Any]) -> tuple[dict[str, Any], list[FieldError]]:
    found = {"region": given["region"] or USUAL_REGION}
    errors = faults_of(found["region"], given["bucket"])
    if re.match(NAME_PATTERN, given["secret"]) is None:
        errors.append(FieldError("secret", "bad_format", "the name of a secret of the kind access_key"))
    if given["mode"] != Mode.READ_ONLY:
        errors.append(FieldError("mode", "not_allowed", "data is copied from an object store, not to it: read_only"))
    try:
        found["endpoint"] = read_endpoint(given["endpoint"], settings.OBJECT_STORES)
    except Invalid as refused:
        errors += refused.errors
    return found, errors


def _standing(storage: Storage) -> dict[str, Any]:
    names = OF_STORES if storage.kind == Kind.OBJECT_STORE else ("claim",)
    return {"tenant": storage.tenant.path} | {
        name: getattr(storage, name) for name in ("kind", *names, "mode", "prefix")
    }
