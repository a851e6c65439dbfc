"""Records where data is stored. The gateway fetches and checks nothing: it trusts the user's input."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.db import IntegrityError, transaction
from django.db.models.functions import Now

from clusters.engine.quantities import bytes_text
from clusters.models import Cluster, Dataset, DatasetLocation
from clusters.queries.datasets import dataset_by_id
from clusters.queries.visible import visible_clusters
from foundation.outbox import announce
from foundation.problems import Conflict, FieldError, Invalid
from tenancy.engine.roles import Permission
from tenancy.models import Tenant
from tenancy.operations import record_audit
from tenancy.queries import Actor, tenant_by_path


@dataclass(frozen=True, slots=True)
class Location:
    """A place by name: a region, or a cluster."""

    region: str = ""
    cluster: str = ""


def create_dataset(
    actor: Actor, tenant_path: str, name: str, *, size_bytes: int, locations: Sequence[Location]
) -> Dataset:
    """The new dataset of a tenant. The actor must manage the tenant.

    Raises NotFound and NotAllowedHere (tenant), Invalid (`not_found` for a cluster that does not serve the tenant,
    `duplicate`), Conflict `dataset_exists`.
    """
    tenant = tenant_by_path(actor, tenant_path, Permission.MANAGE_TENANTS)
    places = _places(actor, tenant, locations)
    try:
        with transaction.atomic():
            dataset = Dataset.objects.create(tenant=tenant, name=name, size_bytes=size_bytes)
            _put(dataset, places)
            _record(actor, "dataset.create", dataset, after=_detail(size_bytes, locations))
    except IntegrityError as error:
        if "dataset_name_is_unique_for_its_tenant" in str(error):
            raise Conflict(f"{tenant.path} already has a dataset {name}.", code="dataset_exists") from None
        raise
    return dataset_by_id(actor, dataset.id)


def update_dataset(
    actor: Actor, dataset_id: UUID, *, size_bytes: int | None = None, locations: Sequence[Location] | None = None
) -> Dataset:
    """The dataset with its new size, its new places, or both; None leaves a value as it is. Raises as `create_dataset`
    does.
    """
    with transaction.atomic():
        dataset = dataset_by_id(actor, dataset_id, Permission.MANAGE_TENANTS)
        before = _standing(dataset)
        changed = {} if size_bytes is None else {"size_bytes": size_bytes}
        # a concurrent writer waits here for the row
        Dataset.objects.filter(id=dataset.id).update(changed_at=Now(), **changed)
        if locations is not None:
            places = _places(actor, dataset.tenant, locations)
            dataset.locations.all().delete()
            _put(dataset, places)
        after = dataset_by_id(actor, dataset_id)
        _record(actor, "dataset.update", dataset, before=before, after=_standing(after))
    return after


def remove_dataset(actor: Actor, dataset_id: UUID) -> None:
    """Deletes the dataset: new jobs cannot name it, and the cost of moving data of existing ones that do becomes
    unknown.
    """
    with transaction.atomic():
        dataset = dataset_by_id(actor, dataset_id, Permission.MANAGE_TENANTS)
        before = _standing(dataset)
        Dataset.objects.filter(id=dataset.id).delete()
        _record(actor, "dataset.remove", dataset, before=before)


def _places(actor: Actor, tenant: Tenant, locations: Sequence[Location]) -> list[tuple[str, Cluster | None]]:
    """The named regions and clusters; a cluster that does not serve the tenant counts as not found."""
    errors: list[FieldError] = []
    wanted = [location.cluster for location in locations if location.cluster]
    serving = visible_clusters(actor).filter(owner__path__in=tenant.path_prefixes, name__in=wanted)
    by_name = {cluster.name: cluster for cluster in serving.order_by("-owner__depth", "-id")}
    found: list[tuple[str, Cluster | None]] = []
    for index, location in enumerate(locations):
        if location.cluster and location.cluster not in by_name:
            detail = f"{tenant.path} has no cluster of that name"
            errors.append(FieldError(f"locations[{index}].cluster", "not_found", detail))
            continue
        place = (location.region, by_name[location.cluster] if location.cluster else None)
        if place in found:
            errors.append(FieldError(f"locations[{index}]", "duplicate", "this place is already in the list"))
        found.append(place)
    if errors:
        raise Invalid(errors=errors)
    return found


def _put(dataset: Dataset, places: Sequence[tuple[str, Cluster | None]]) -> None:
    DatasetLocation.objects.bulk_create(
        DatasetLocation(dataset=dataset, region=region, cluster=cluster) for region, cluster in places
    )


def _standing(dataset: Dataset) -> dict[str, Any]:
    places = [Location(place.region, place.cluster.name if place.cluster else "") for place in dataset.locations.all()]
    return _detail(dataset.size_bytes, places)


def _detail(size_bytes: int, places: Sequence[Location]) -> dict[str, Any]:
    return {
        "size": bytes_text(size_bytes),
        "locations": [{"region": one.region} if one.region else {"cluster": one.cluster} for one in places],
    }


def _record(
    actor: Actor,
    action: str,
    dataset: Dataset,
    before: dict[str, Any] | None = None,
    after: dict[str, Any] | None = None,
) -> None:
    detail = {"name": dataset.name, "before": before, "after": after}
    record_audit(actor, action, object_kind="dataset", object_id=dataset.id, tenant_id=dataset.tenant_id, detail=detail)
    announce("cycle")
