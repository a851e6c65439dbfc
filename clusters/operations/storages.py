"""Declares what jobs may mount on a cluster, and from which buckets datasets may be copied there. The gateway creates no volumes and
connects to no object store and no registry: it trusts the administrator's input.
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
from clusters.engine.volumes import CLASS, IMAGE, SIZE, BadSize, is_class, is_pinned_image, size_bytes_of
from clusters.locks import lock_storage
from clusters.models import Cluster, DatasetReplica, Storage
from clusters.queries.storages import storage_by_id
from clusters.queries.visible import served_tenant
from foundation.problems import Conflict, FieldError, Invalid, NotFound
from tenancy.models import NAME_PATTERN
from tenancy.queries import Actor

from .declared import managed_cluster, record_declaration

OWN = {
    Kind.CLAIM: ("claim",),
    Kind.OBJECT_STORE: ("endpoint", "region", "bucket", "secret"),
    Kind.STORAGE_CLASS: ("storage_class", "size"),
    Kind.IMAGE: ("image",),
}
"""What only a storage of this kind has."""
_WITHOUT_PARTS = (Kind.STORAGE_CLASS, Kind.IMAGE)
"""Kinds of which every tenant gets all: they have no prefix."""
_PLACES = ("mode", "prefix", *(name for names in OWN.values() for name in names))


@dataclass(frozen=True, slots=True)
class WantedStorage:
    """A storage to declare; without a tenant, it serves the owner of the cluster. It has what its kind needs (`OWN`), of which the
    region has a default, as the mode has: `read_write` for a StorageClass, else `read_only`. `size` is a quantity.
    """

    name: str
    claim: str = ""
    tenant: str = ""
    mode: str = ""
    prefix: str = ""
    kind: str = Kind.CLAIM
    endpoint: str = ""
    region: str = ""
    bucket: str = ""
    secret: str = ""
    storage_class: str = ""
    size: str = ""
    image: str = ""


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
    storage_class: str | None = None
    size: str | None = None
    image: str | None = None


def create_storage(actor: Actor, cluster_id: UUID, wanted: WantedStorage) -> Storage:
    """The new storage. The actor must manage the cluster.

    Raises NotFound and NotAllowedHere (cluster), Invalid (`not_found` for a tenant that the cluster does not serve, and what
    does not belong to its kind), Conflict `storage_exists`.
    """
    cluster = managed_cluster(actor, cluster_id)
    columns = {**asdict(wanted), "tenant": served_tenant(actor, cluster, wanted.tenant)}
    columns |= _place_of(Kind(wanted.kind), columns)
    del columns["size"]
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
        columns |= _place_of(Kind(storage.kind), {name: getattr(storage, name) for name in _PLACES} | columns)
        columns.pop("size", None)
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


def _place_of(kind: Kind, given: Mapping[str, Any]) -> dict[str, Any]:
    """The columns that say where a storage of this kind is, in their normal form. Raises Invalid with every field at fault."""
    foreign = [name for other, names in OWN.items() if other != kind for name in names]
    foreign += ["prefix"] if kind in _WITHOUT_PARTS else []
    errors = [
        FieldError(name, "not_allowed", f"a storage of the kind {kind} has none") for name in foreign if given[name]
    ]
    found, wrong = _READERS[kind](given)
    mode, why_not = _FIXED_MODES.get(kind, ("", ""))
    found["mode"] = given["mode"] or mode or Mode.READ_ONLY.value
    if mode and found["mode"] != mode:
        wrong.append(FieldError("mode", "not_allowed", why_not))
    if errors or wrong:
        raise Invalid(errors=[*errors, *wrong])
    return found


def _claim(given: Mapping[str, Any]) -> tuple[dict[str, Any], list[FieldError]]:
    return {}, [] if given["claim"] else [FieldError("claim", "required", "name a claim")]


def _bucket(given: Mapping[str, Any]) -> tuple[dict[str, Any], list[FieldError]]:
    found = {"region": given["region"] or USUAL_REGION}
    errors = faults_of(found["region"], given["bucket"])
    if re.match(NAME_PATTERN, given["secret"]) is None:
        errors.append(FieldError("secret", "bad_format", "the name of a secret of the kind access_key"))
    try:
        found["endpoint"] = read_endpoint(given["endpoint"], settings.OBJECT_STORES)
    except Invalid as refused:
        errors += refused.errors
    return found, errors


def _class(given: Mapping[str, Any]) -> tuple[dict[str, Any], list[FieldError]]:
    found, errors = {}, []
    if not is_class(given["storage_class"]):
        errors.append(FieldError("storage_class", "bad_format", CLASS))
    try:
        found["most_bytes"] = size_bytes_of(given["size"])
    except BadSize:
        errors.append(FieldError("size", "bad_format", SIZE))
    return found, errors


def _image(given: Mapping[str, Any]) -> tuple[dict[str, Any], list[FieldError]]:
    return {}, [] if is_pinned_image(given["image"]) else [FieldError("image", "bad_format", IMAGE)]


_READERS = {Kind.CLAIM: _claim, Kind.OBJECT_STORE: _bucket, Kind.STORAGE_CLASS: _class, Kind.IMAGE: _image}
_FIXED_MODES = {
    Kind.OBJECT_STORE: (Mode.READ_ONLY.value, "data is copied from an object store, not to it: read_only"),
    Kind.STORAGE_CLASS: (Mode.READ_WRITE.value, "a new volume is empty: read_write"),
    Kind.IMAGE: (Mode.READ_ONLY.value, "an image is never written to: read_only"),
}


def _standing(storage: Storage) -> dict[str, Any]:
    names = ("kind", *OWN[Kind(storage.kind)], "mode", "prefix")
    return {"tenant": storage.tenant.path} | {name: getattr(storage, name) for name in names}
