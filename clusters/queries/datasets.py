"""Queries on datasets, for the users who record them and the jobs that name them."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from django.db.models import Exists, OuterRef, Prefetch, Q, QuerySet, Value
from django.db.models.functions import Concat

from clusters.engine.datasets import Catalogue, KnownData, Place, catalogue_of
from clusters.engine.quantities import bytes_text
from clusters.models import Dataset, DatasetLocation, DatasetReplica
from foundation.problems import NotFound
from tenancy.engine.roles import Permission
from tenancy.queries import Actor, NotAllowedHere, permissions_at, tenant_by_path, visible_tenants


@dataclass(frozen=True, slots=True)
class DatasetLine:
    """A dataset as its page shows it; `regions` and `clusters` are where it is stored."""

    id: UUID
    name: str
    tenant: str
    size: str
    regions: tuple[str, ...]
    clusters: tuple[str, ...]
    changed_at: datetime
    may_change: bool


def visible_datasets(actor: Actor, *, tenant_path: str = "", name: str = "") -> QuerySet[Dataset]:
    """Datasets of the tenants at or above one that the actor may see; with `tenant_path`, those that its jobs may name.

    NotFound for a tenant that the actor may not see.
    """
    at_or_below = Q(path=OuterRef("tenant__path")) | Q(path__startswith=Concat(OuterRef("tenant__path"), Value("/")))
    found = Dataset.objects.filter(Exists(visible_tenants(actor).filter(at_or_below)))
    if tenant_path:
        found = found.filter(tenant__path__in=tenant_by_path(actor, tenant_path).path_prefixes)
    if name:
        found = found.filter(name=name)
    places = DatasetLocation.objects.select_related("cluster").order_by("region", "cluster__name", "id")
    return found.select_related("tenant").prefetch_related(Prefetch("locations", places))


def dataset_by_id(actor: Actor, dataset_id: UUID, permission: Permission = Permission.VIEW) -> Dataset:
    """The dataset. NotFound if it does not exist or the actor may not see it; NotAllowedHere if the actor may only see
    it.
    """
    dataset = visible_datasets(actor).filter(id=dataset_id).first()
    if dataset is None:
        raise NotFound
    if permission != Permission.VIEW and permission not in permissions_at(actor, dataset.tenant):
        raise NotAllowedHere(dataset.tenant, permission)
    return dataset


def dataset_lines(actor: Actor) -> tuple[DatasetLine, ...]:
    """Every dataset that the actor may see, by tenant and name."""
    mine = set(visible_tenants(actor, Permission.MANAGE_TENANTS).values_list("id", flat=True))
    return tuple(
        line_of(dataset, may_change=dataset.tenant_id in mine)
        for dataset in visible_datasets(actor).order_by("tenant__path", "name")
    )


def line_of(dataset: Dataset, *, may_change: bool) -> DatasetLine:
    """The dataset as its page shows it."""
    places = list(dataset.locations.all())
    return DatasetLine(
        id=dataset.id,
        name=dataset.name,
        tenant=dataset.tenant.path,
        size=bytes_text(dataset.size_bytes),
        regions=tuple(place.region for place in places if place.region),
        clusters=tuple(place.cluster.name for place in places if place.cluster is not None),
        changed_at=dataset.changed_at,
        may_change=may_change,
    )


def known_data(names: Collection[str]) -> Catalogue:
    """The datasets of these names, of every tenant, with where they are stored, without removed clusters."""
    if not names:
        return {}
    places = DatasetLocation.objects.select_related("cluster").order_by("region", "cluster_id")
    replicas = DatasetReplica.objects.select_related("cluster").order_by("cluster_id")
    rows = Dataset.objects.filter(name__in=list(names)).select_related("tenant")
    return catalogue_of(
        KnownData(row.tenant.path, row.name, row.size_bytes, _places(row), row.id)
        for row in rows.prefetch_related(Prefetch("locations", places), Prefetch("replicas", replicas)).order_by("id")
    )


def _places(dataset: Dataset) -> tuple[Place, ...]:
    """Where users say that it is, then where a stage-in brought it."""
    recorded = [
        Place(place.region) if place.cluster is None else Place(place.cluster.region, place.cluster.id)
        for place in dataset.locations.all()
        if place.cluster is None or place.cluster.removed_at is None
    ]
    staged = [
        Place(replica.cluster.region, replica.cluster.id)
        for replica in dataset.replicas.all()
        if replica.cluster.removed_at is None
    ]
    return tuple(dict.fromkeys([*recorded, *staged]))
