"""Network attachments of a cluster over HTTP: translate, make one call, translate back."""

from typing import Any
from uuid import UUID

from django.core.validators import RegexValidator
from drf_spectacular.utils import OpenApiResponse, extend_schema
from rest_framework import serializers, status
from rest_framework.request import Request
from rest_framework.response import Response

from clusters.models import Network
from clusters.operations.networks import (
    NetworkChanges,
    WantedNetwork,
    create_network,
    remove_network,
    update_network,
)
from clusters.queries.networks import network_by_id, visible_networks
from foundation.plain_json import instant
from foundation.schema import page_shape
from foundation.shapes import Instant, StrictShape, Text
from tenancy.api.views import ApiView
from tenancy.models import NAME_PATTERN

from .storages import DNS_LABEL

KINDS = ["multus"]
ORDERS = {"name": "name", "-name": "-name"}


class NetworkPatch(StrictShape):
    """The fields to change; omitted fields keep their values."""

    definition = Text(
        required=False,
        max_length=63,
        validators=[RegexValidator(NAME_PATTERN, DNS_LABEL)],
        help_text="The name of the NetworkAttachmentDefinition.",
    )
    namespace = Text(
        required=False,
        allow_blank=True,
        max_length=63,
        validators=[RegexValidator(rf"{NAME_PATTERN}|^\Z", DNS_LABEL)],
        help_text="Its namespace. Empty: the namespace of each tenant that uses it has a definition of this name.",
    )
    tenant = Text(
        required=False,
        max_length=1100,
        help_text="Path. Jobs of this tenant and of every tenant below it may use it; by default, the cluster's owner.",
    )


class NetworkCreate(NetworkPatch):
    """A network attachment of the cluster, and who may use it."""

    name = Text(max_length=63, validators=[RegexValidator(NAME_PATTERN, DNS_LABEL)])
    kind = serializers.ChoiceField(required=False, choices=KINDS)

    def get_fields(self) -> dict[str, Any]:
        """The definition is needed."""
        found = super().get_fields()
        found["definition"].required = True
        return found


class NetworkShown(serializers.Serializer[Any]):
    """A network attachment."""

    id = serializers.UUIDField()
    cluster = serializers.CharField()
    tenant = serializers.CharField()
    name = serializers.CharField()
    kind = serializers.ChoiceField(choices=KINDS)
    definition = serializers.CharField()
    namespace = serializers.CharField()
    created_at = Instant()
    changed_at = Instant()


class NetworksView(ApiView):
    """`/clusters/{id}/networks`."""

    paged = True

    @extend_schema(operation_id="networks_list", responses=page_shape(NetworkShown))
    def get(self, request: Request, cluster_id: UUID) -> Response:
        """Lists the network attachments of the cluster that serve a tenant that you may see."""
        return self.page(visible_networks(self.actor, cluster_id), orders=ORDERS, render=show_network)

    @extend_schema(operation_id="networks_create", request=NetworkCreate, responses={201: NetworkShown})
    def post(self, request: Request, cluster_id: UUID) -> Response:
        """Declares a network attachment that jobs may use. The gateway does not create it and does not verify that it exists."""
        body = self.read(NetworkCreate)
        body.pop("kind", None)
        wanted = WantedNetwork(**body)

        def produce() -> tuple[int, dict[str, Any]]:
            return status.HTTP_201_CREATED, show_network(create_network(self.actor, cluster_id, wanted))

        return self.created(request, None, f"networks of {cluster_id}", produce)


class NetworkView(ApiView):
    """`/clusters/{id}/networks/{id}`."""

    @extend_schema(operation_id="networks_read", responses=NetworkShown)
    def get(self, request: Request, cluster_id: UUID, network_id: UUID) -> Response:
        """Returns a network attachment."""
        return Response(show_network(network_by_id(self.actor, cluster_id, network_id)))

    @extend_schema(operation_id="networks_update", request=NetworkPatch, responses=NetworkShown)
    def patch(self, request: Request, cluster_id: UUID, network_id: UUID) -> Response:
        """Changes a network attachment for later placements. Attempts that were placed with it keep what they got."""
        changes = NetworkChanges(**self.read(NetworkPatch, partial=True))
        return Response(show_network(update_network(self.actor, cluster_id, network_id, changes)))

    @extend_schema(operation_id="networks_delete", responses={204: OpenApiResponse(description="Removed.")})
    def delete(self, request: Request, cluster_id: UUID, network_id: UUID) -> Response:
        """Removes a network attachment: no later placement uses it."""
        remove_network(self.actor, cluster_id, network_id)
        return Response(status=status.HTTP_204_NO_CONTENT)


def show_network(network: Network) -> dict[str, Any]:
    """A network attachment as the API shows it."""
    return {
        "id": str(network.id),
        "cluster": network.cluster.name,
        "tenant": network.tenant.path,
        "name": network.name,
        "kind": network.kind,
        "definition": network.definition,
        "namespace": network.namespace,
        "created_at": instant(network.created_at),
        "changed_at": instant(network.changed_at),
    }
