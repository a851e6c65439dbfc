"""The Prometheus of a cluster over HTTP: its token can only be written."""

from typing import Any
from uuid import UUID

from drf_spectacular.utils import OpenApiResponse, extend_schema
from rest_framework import serializers, status
from rest_framework.request import Request
from rest_framework.response import Response

from clusters.engine.egress import MAX_URL_LENGTH
from clusters.models import ClusterPrometheus
from clusters.operations.telemetry import WantedPrometheus, remove_prometheus, set_prometheus
from clusters.queries.telemetry import prometheus_by_cluster
from foundation.plain_json import instant
from foundation.shapes import Instant, StrictShape, Text
from tenancy.api.views import ApiView

from .secrets import Hidden


class PrometheusPut(StrictShape):
    """The Prometheus of a cluster."""

    url = Text(max_length=MAX_URL_LENGTH, help_text="https://host[:port][/path], without /api/v1.")
    token = Hidden(
        required=False,
        allow_null=True,
        help_text="A bearer token. Null: none. Without it, the stored one stays if scheme, host and port do.",
    )


class PrometheusShown(serializers.Serializer[Any]):
    """The Prometheus of a cluster, without its token."""

    url = serializers.CharField()
    has_token = serializers.BooleanField()
    set_by = serializers.CharField()
    changed_at = Instant()


class PrometheusView(ApiView):
    """`/clusters/{id}/prometheus`."""

    @extend_schema(operation_id="prometheus_read", responses=PrometheusShown)
    def get(self, request: Request, cluster_id: UUID) -> Response:
        """Returns where the gateway reads the utilisation of the cluster's GPUs."""
        return Response(show_prometheus(prometheus_by_cluster(self.actor, cluster_id)))

    @extend_schema(operation_id="prometheus_put", request=PrometheusPut, responses=PrometheusShown)
    def put(self, request: Request, cluster_id: UUID) -> Response:
        """Sets the Prometheus of the cluster. Repeating it is harmless."""
        body = self.read(PrometheusPut)
        token = (body["token"] or "") if "token" in body else None
        return Response(show_prometheus(set_prometheus(self.actor, cluster_id, WantedPrometheus(body["url"], token))))

    @extend_schema(operation_id="prometheus_delete", responses={204: OpenApiResponse(description="Removed.")})
    def delete(self, request: Request, cluster_id: UUID) -> Response:
        """Removes the Prometheus with its token. What was measured stays."""
        remove_prometheus(self.actor, cluster_id)
        return Response(status=status.HTTP_204_NO_CONTENT)


def show_prometheus(row: ClusterPrometheus) -> dict[str, Any]:
    """A Prometheus as the API shows it."""
    return {
        "url": row.url,
        "has_token": row.sealed is not None,
        "set_by": row.set_by_name,
        "changed_at": instant(row.changed_at),
    }
