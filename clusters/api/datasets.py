"""Datasets over HTTP: translate, make one call, translate back."""

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from django.core.validators import RegexValidator
from drf_spectacular.utils import OpenApiResponse, extend_schema
from rest_framework import serializers, status
from rest_framework.request import Request
from rest_framework.response import Response

from clusters.engine.datasets import (
    DATASET_NAME,
    DATASET_PATTERN,
    MOST_PLACES,
    REGION,
    REGION_PATTERN,
    BadSize,
    size_of,
)
from clusters.engine.quantities import bytes_text
from clusters.models import Dataset
from clusters.operations.datasets import Location, create_dataset, remove_dataset, update_dataset
from clusters.queries.datasets import dataset_by_id, visible_datasets
from foundation.plain_json import instant
from foundation.schema import page_shape
from foundation.shapes import Instant, StrictShape, Text
from tenancy.api.views import ApiView

ORDERS = {"created": "id", "-created": "-id"}


class LocationShape(StrictShape):
    """A region, or a cluster that serves the tenant: exactly one of the two."""

    region = Text(required=False, max_length=63, validators=[RegexValidator(REGION_PATTERN, REGION)])
    cluster = Text(required=False, max_length=63, help_text="Name.")

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Exactly one of the two."""
        if len(attrs) != 1:
            raise serializers.ValidationError("give either a region or a cluster", "conflict")
        return attrs


class DatasetPatch(StrictShape):
    """The fields to change; omitted fields keep their values."""

    size = Text(required=False, max_length=32, help_text="Such as 150Gi: the amount moved if a job reads all of it.")
    locations = serializers.ListField(
        child=LocationShape(),
        required=False,
        min_length=1,
        max_length=MOST_PLACES,
        help_text="Each has a full copy.",
    )

    def validate_size(self, text: str) -> int:
        """In bytes."""
        try:
            return size_of(text)
        except BadSize as error:
            raise serializers.ValidationError(str(error), error.code) from None


class DatasetCreate(DatasetPatch):
    """The logical name of data, and its locations."""

    tenant = Text(
        max_length=1100, help_text="Path. Jobs of this tenant and of every tenant below it can use the dataset."
    )
    name = Text(max_length=120, validators=[RegexValidator(DATASET_PATTERN, DATASET_NAME)])

    def get_fields(self) -> dict[str, Any]:
        """All of them are needed."""
        found = super().get_fields()
        for field in found.values():
            field.required = True
        return found


class LocationShown(serializers.Serializer[Any]):
    """One of the two is null."""

    region = serializers.CharField(allow_null=True)
    cluster = serializers.CharField(allow_null=True)


class DatasetShown(serializers.Serializer[Any]):
    """A dataset."""

    id = serializers.UUIDField()
    tenant = serializers.CharField()
    name = serializers.CharField()
    size = serializers.CharField()
    size_bytes = serializers.IntegerField()
    locations = LocationShown(many=True)
    created_at = Instant()
    changed_at = Instant()


class DatasetsView(ApiView):
    """`/datasets`."""

    filters = ("tenant", "name")
    paged = True

    @extend_schema(operation_id="datasets_list", responses=page_shape(DatasetShown))
    def get(self, request: Request) -> Response:
        """Lists the datasets of the tenants that you may see; with `tenant`, those that its jobs can use."""
        found = visible_datasets(self.actor, tenant_path=self.query.get("tenant", ""), name=self.query.get("name", ""))
        return self.page(found, orders=ORDERS, render=show_dataset)

    @extend_schema(operation_id="datasets_create", request=DatasetCreate, responses={201: DatasetShown})
    def post(self, request: Request) -> Response:
        """Records a dataset. The gateway fetches nothing and does not verify size or locations."""
        body = self.read(DatasetCreate)

        def produce() -> tuple[int, dict[str, Any]]:
            dataset = create_dataset(
                self.actor,
                body["tenant"],
                body["name"],
                size_bytes=body["size"],
                locations=[_location(one) for one in body["locations"]],
            )
            return status.HTTP_201_CREATED, show_dataset(dataset)

        return self.created(request, None, "datasets", produce)


class DatasetView(ApiView):
    """`/datasets/{id}`."""

    @extend_schema(operation_id="datasets_read", responses=DatasetShown)
    def get(self, request: Request, dataset_id: UUID) -> Response:
        """Returns a dataset."""
        return Response(show_dataset(dataset_by_id(self.actor, dataset_id)))

    @extend_schema(operation_id="datasets_update", request=DatasetPatch, responses=DatasetShown)
    def patch(self, request: Request, dataset_id: UUID) -> Response:
        """Changes the size or the locations. The next round uses them, for queued jobs too."""
        body = self.read(DatasetPatch, partial=True)
        places = body.get("locations")
        dataset = update_dataset(
            self.actor,
            dataset_id,
            size_bytes=body.get("size"),
            locations=None if places is None else [_location(one) for one in places],
        )
        return Response(show_dataset(dataset))

    @extend_schema(operation_id="datasets_delete", responses={204: OpenApiResponse(description="Removed.")})
    def delete(self, request: Request, dataset_id: UUID) -> Response:
        """Removes a dataset: no new job may name it."""
        remove_dataset(self.actor, dataset_id)
        return Response(status=status.HTTP_204_NO_CONTENT)


def _location(body: Mapping[str, str]) -> Location:
    return Location(body.get("region", ""), body.get("cluster", ""))


def show_dataset(dataset: Dataset) -> dict[str, Any]:
    """A dataset as the API shows it."""
    return {
        "id": str(dataset.id),
        "tenant": dataset.tenant.path,
        "name": dataset.name,
        "size": bytes_text(dataset.size_bytes),
        "size_bytes": dataset.size_bytes,
        "locations": [
            {"region": place.region or None, "cluster": place.cluster.name if place.cluster else None}
            for place in dataset.locations.all()
        ],
        "created_at": instant(dataset.created_at),
        "changed_at": instant(dataset.changed_at),
    }
