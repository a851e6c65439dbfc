"""Queries on storages, for the administrators who declare them and the jobs that mount them."""

from collections.abc import Collection
from dataclasses import dataclass
from uuid import UUID

from django.db.models import Exists, OuterRef, Q, QuerySet, Value
from django.db.models.functions import Concat

from clusters.engine.declared import by_name
from clusters.engine.object_stores import ObjectStore
from clusters.engine.storages import Kind, KnownStorage, Mode, Shelves
from clusters.models import Storage
from foundation.problems import NotFound
from tenancy.queries import Actor, visible_tenants

from .visible import cluster_by_id


@dataclass(frozen=True, slots=True)
class StorageLine:
    """A storage as its cluster's page shows it."""

    id: UUID
    name: str
    claim: str
    tenant: str
    mode: str
    prefix: str
    store: ObjectStore | None
    storage_class: str
    size: str
    """The largest volume of a pod."""
    image: str


def visible_storages(actor: Actor, cluster_id: UUID) -> QuerySet[Storage]:
    """The storages of a cluster that serve a tenant that the actor may see. NotFound for a cluster that the actor may
    not see.
    """
    cluster = cluster_by_id(actor, cluster_id)
    at_or_below = Q(path=OuterRef("tenant__path")) | Q(path__startswith=Concat(OuterRef("tenant__path"), Value("/")))
    found = Storage.objects.filter(Exists(visible_tenants(actor).filter(at_or_below)), cluster=cluster)
    return found.select_related("cluster__owner", "tenant")


def storage_by_id(actor: Actor, cluster_id: UUID, storage_id: UUID) -> Storage:
    """The storage; NotFound if it does not exist on this cluster or the actor may not see it."""
    storage = visible_storages(actor, cluster_id).filter(id=storage_id).first()
    if storage is None:
        raise NotFound
    return storage


def storage_lines(actor: Actor, cluster_id: UUID) -> tuple[StorageLine, ...]:
    """The storages of a cluster that the actor may see, by name."""
    return tuple(
        StorageLine(
            id=one.id,
            name=one.name,
            claim=one.claim,
            tenant=one.tenant.path,
            mode=one.mode,
            prefix=one.prefix,
            store=_store_of(one),
            storage_class=one.storage_class,
            size=one.size,
            image=one.image,
        )
        for one in visible_storages(actor, cluster_id).order_by("name")
    )


def volume_classes(actor: Actor, cluster_id: UUID) -> dict[str, int]:
    """The StorageClasses that jobs may use on a cluster, as far as the actor may see them, each with the largest volume in bytes that
    some storage gives of it. NotFound as for `visible_storages`.
    """
    rows = visible_storages(actor, cluster_id).filter(kind=Kind.STORAGE_CLASS)
    found: dict[str, int] = {}
    for name, most_bytes in rows.values_list("storage_class", "most_bytes"):
        found[name] = max(found.get(name, 0), most_bytes)
    return found


def known_storages(names: Collection[str]) -> Shelves:
    """The storages of these names on all registered clusters that jobs can mount. No query without names."""
    if not names:
        return {}
    rows = Storage.objects.filter(name__in=list(names), cluster__removed_at__isnull=True)
    rows = rows.exclude(kind=Kind.OBJECT_STORE).select_related("cluster__owner", "tenant").order_by("id")
    return by_name(known_storage(row, row.cluster.owner.path) for row in rows)


def known_storage(storage: Storage, cluster_owner_path: str) -> KnownStorage:
    """A storage as jobs and copies of datasets see it."""
    return KnownStorage(
        cluster_id=storage.cluster_id,
        cluster_owner_path=cluster_owner_path,
        tenant_path=storage.tenant.path,
        name=storage.name,
        claim=storage.claim,
        is_writable=storage.mode == Mode.READ_WRITE,
        prefix=storage.prefix,
        store=_store_of(storage),
        storage_class=storage.storage_class,
        most_bytes=storage.most_bytes,
        image=storage.image,
    )


def _store_of(storage: Storage) -> ObjectStore | None:
    if storage.kind != Kind.OBJECT_STORE:
        return None
    return ObjectStore(storage.endpoint, storage.region, storage.bucket, storage.secret)
