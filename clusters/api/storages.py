"""Storages of a cluster over HTTP: translate, make one call, translate back."""

from typing import Any
from uuid import UUID

from django.core.validators import RegexValidator
from drf_spectacular.utils import OpenApiResponse, extend_schema
from rest_framework import serializers, status
from rest_framework.request import Request
from rest_framework.response import Response

from clusters.engine.object_stores import MOST_BUCKET, MOST_ENDPOINT, MOST_REGION
from clusters.engine.storages import CLAIM, CLAIM_PATTERN, MOST_PREFIX, PREFIX, Kind, Mode, is_prefix
from clusters.engine.volumes import MOST_CLASS, MOST_IMAGE, MOST_SIZE_TEXT
from clusters.models import Storage
from clusters.operations.storages import (
    StorageChanges,
    WantedStorage,
    create_storage,
    remove_storage,
    update_storage,
)
from clusters.queries.storages import storage_by_id, visible_storages
from foundation.plain_json import instant
from foundation.schema import page_shape
from foundation.shapes import Instant, StrictShape, Text
from tenancy.api.views import ApiView
from tenancy.models import NAME_PATTERN

KINDS = [each.value for each in Kind]
MODES = [each.value for each in Mode]
ORDERS = {"name": "name", "-name": "-name"}
DNS_LABEL = "lower-case letters, digits and '-', starting and ending with a letter or digit"


class StoragePatch(StrictShape):
    """The fields to change; omitted fields keep their values."""

    claim = Text(
        required=False,
        max_length=253,
        validators=[RegexValidator(CLAIM_PATTERN, CLAIM)],
        help_text="The PersistentVolumeClaim, which has this name in the namespace of each tenant that mounts it.",
    )
    tenant = Text(
        required=False,
        max_length=1100,
        help_text="Path. Jobs of this tenant and of every tenant below it may mount it; by default, the cluster's owner.",
    )
    mode = serializers.ChoiceField(
        required=False, choices=MODES, help_text="By default `read_only`; always `read_write` for a `storage_class`."
    )
    prefix = Text(
        required=False,
        allow_blank=True,
        max_length=MOST_PREFIX,
        help_text="The part of the volume or bucket that a job gets; `{tenant}` stands for its tenant's id. Empty: all of it.",
    )
    endpoint = Text(
        required=False,
        max_length=MOST_ENDPOINT,
        help_text="Of an object store: `https://host[:port]`, by the S3 protocol. Copies connect to it, the gateway does not.",
    )
    region = Text(required=False, max_length=MOST_REGION, help_text="Of an object store; by default, `us-east-1`.")
    bucket = Text(required=False, max_length=MOST_BUCKET, help_text="Of an object store.")
    secret = Text(
        required=False,
        max_length=63,
        help_text="Of an object store: name of the `access_key` secret, which is looked up for the tenant of each dataset.",
    )
    storage_class = Text(
        required=False,
        max_length=MOST_CLASS,
        help_text="The StorageClass of which each pod gets a new, empty volume, which is deleted with the pod.",
    )
    size = Text(
        required=False,
        max_length=MOST_SIZE_TEXT,
        help_text="Of a storage class: the largest volume that a pod may ask for, such as `500Gi`.",
    )
    image = Text(
        required=False,
        max_length=MOST_IMAGE,
        help_text="An image with its registry and its digest, whose files jobs may read: `registry.example/data@sha256:…`.",
    )

    def validate_prefix(self, text: str) -> str:
        """Leads nowhere else."""
        if not is_prefix(text):
            raise serializers.ValidationError(PREFIX, "bad_format")
        return text


class StorageCreate(StoragePatch):
    """A claim, a StorageClass or an image and who may mount it, or a bucket and who may copy datasets from it."""

    name = Text(max_length=63, validators=[RegexValidator(NAME_PATTERN, DNS_LABEL)])
    kind = serializers.ChoiceField(
        required=False,
        choices=KINDS,
        help_text="By default `claim`, which needs a `claim`. An `object_store` needs `endpoint`, `bucket` and `secret`, "
        "a `storage_class` needs `storage_class` and `size`, and an `image` needs `image`.",
    )


class StorageShown(serializers.Serializer[Any]):
    """A storage."""

    id = serializers.UUIDField()
    cluster = serializers.CharField()
    tenant = serializers.CharField()
    name = serializers.CharField()
    kind = serializers.ChoiceField(choices=KINDS)
    claim = serializers.CharField(help_text="Empty for another kind, as is what belongs to the other kinds.")
    endpoint = serializers.CharField()
    region = serializers.CharField()
    bucket = serializers.CharField()
    secret = serializers.CharField(help_text="The name of the secret; never its value.")
    storage_class = serializers.CharField()
    size = serializers.CharField(help_text="The largest volume that a pod may ask for.")
    image = serializers.CharField()
    mode = serializers.ChoiceField(choices=MODES)
    prefix = serializers.CharField()
    created_at = Instant()
    changed_at = Instant()


class StoragesView(ApiView):
    """`/clusters/{id}/storages`."""

    paged = True

    @extend_schema(operation_id="storages_list", responses=page_shape(StorageShown))
    def get(self, request: Request, cluster_id: UUID) -> Response:
        """Lists the storages of the cluster that serve a tenant that you may see."""
        return self.page(visible_storages(self.actor, cluster_id), orders=ORDERS, render=show_storage)

    @extend_schema(operation_id="storages_create", request=StorageCreate, responses={201: StorageShown})
    def post(self, request: Request, cluster_id: UUID) -> Response:
        """Declares what jobs may mount, or a bucket from which datasets may be copied. The gateway creates none of it, and
        does not verify that it exists.
        """
        wanted = WantedStorage(**self.read(StorageCreate))

        def produce() -> tuple[int, dict[str, Any]]:
            return status.HTTP_201_CREATED, show_storage(create_storage(self.actor, cluster_id, wanted))

        return self.created(request, None, f"storages of {cluster_id}", produce)


class StorageView(ApiView):
    """`/clusters/{id}/storages/{id}`."""

    @extend_schema(operation_id="storages_read", responses=StorageShown)
    def get(self, request: Request, cluster_id: UUID, storage_id: UUID) -> Response:
        """Returns a storage."""
        return Response(show_storage(storage_by_id(self.actor, cluster_id, storage_id)))

    @extend_schema(operation_id="storages_update", request=StoragePatch, responses=StorageShown)
    def patch(self, request: Request, cluster_id: UUID, storage_id: UUID) -> Response:
        """Changes a storage for later placements. Attempts that were placed with it keep what they got."""
        changes = StorageChanges(**self.read(StoragePatch, partial=True))
        return Response(show_storage(update_storage(self.actor, cluster_id, storage_id, changes)))

    @extend_schema(operation_id="storages_delete", responses={204: OpenApiResponse(description="Removed.")})
    def delete(self, request: Request, cluster_id: UUID, storage_id: UUID) -> Response:
        """Removes a storage: no later placement uses it. It deletes no data."""
        remove_storage(self.actor, cluster_id, storage_id)
        return Response(status=status.HTTP_204_NO_CONTENT)


def show_storage(storage: Storage) -> dict[str, Any]:
    """A storage as the API shows it."""
    return {
        "id": str(storage.id),
        "cluster": storage.cluster.name,
        "tenant": storage.tenant.path,
        "name": storage.name,
        "kind": storage.kind,
        "claim": storage.claim,
        "endpoint": storage.endpoint,
        "region": storage.region,
        "bucket": storage.bucket,
        "secret": storage.secret,
        "storage_class": storage.storage_class,
        "size": storage.size,
        "image": storage.image,
        "mode": storage.mode,
        "prefix": storage.prefix,
        "created_at": instant(storage.created_at),
        "changed_at": instant(storage.changed_at),
    }
