"""Clusters over HTTP: translate, make one call, translate back."""

from typing import Any
from uuid import UUID

from drf_spectacular.utils import OpenApiResponse, extend_schema
from rest_framework import status
from rest_framework.request import Request
from rest_framework.response import Response

from clusters.operations import (
    clear_avoided_node,
    cordon_cluster,
    drain_cluster,
    examine,
    probe_cluster,
    register_cluster,
    remove_cluster,
    uncordon_cluster,
    update_cluster,
)
from clusters.queries import cluster_by_id, flavor_summary, in_state, visible_clusters
from foundation.clock import now
from foundation.schema import page_shape
from tenancy.api.views import ApiView

from .shapes import (
    AvoidedNodeShown,
    ClusterEventShown,
    ClusterPatch,
    ClusterRegistration,
    ClusterShown,
    FlavorShown,
    NodeShown,
    changes_of,
    show_avoided,
    show_cluster,
    show_clusters,
    show_event,
    show_flavor,
    show_node,
    wanted_of,
)

NEWEST_OR_OLDEST = {"created": "id", "-created": "-id"}
ROUTE = "clusters"
# Both requests may carry a kubeconfig; one far too long is refused by name (422) up to here and by size (413) beyond.
MAX_KUBECONFIG_BYTES = 8 * 1024 * 1024


class _NotAnsweredYet(Exception):
    """No response exists yet under this Idempotency-Key."""


class ClustersView(ApiView):
    """`/clusters`."""

    filters = ("name", "state", "region", "tenant")
    paged = True
    max_body_bytes = MAX_KUBECONFIG_BYTES

    @extend_schema(
        operation_id="clusters_list",
        responses=page_shape(ClusterShown),
    )
    def get(self, request: Request) -> Response:
        """Lists the clusters that serve a tenant that you may see."""
        rows = visible_clusters(self.actor)
        for word, column in (("name", "name"), ("region", "region"), ("tenant", "owner__path")):
            if word in self.query:
                rows = rows.filter(**{column: self.query[word]})
        if "state" in self.query:
            rows = in_state(rows, self.query["state"])
        page = self.page(rows, orders=NEWEST_OR_OLDEST, render=lambda cluster: cluster)
        page.data["items"] = show_clusters(page.data["items"])
        return page

    @extend_schema(
        operation_id="clusters_register",
        request=ClusterRegistration,
        responses={201: ClusterShown},
    )
    def post(self, request: Request) -> Response:
        """Probes a cluster and registers it. If the probe fails, nothing is stored."""
        wanted = wanted_of(self.read(ClusterRegistration))
        try:
            # A repeated request gets its first response without another probe, even if the cluster has been removed
            # since.
            return self.created(request, None, ROUTE, self._not_answered_yet)
        except _NotAnsweredYet:
            examined = examine(self.actor, wanted)

        def register() -> tuple[int, dict[str, Any]]:
            return status.HTTP_201_CREATED, show_cluster(register_cluster(self.actor, examined))

        return self.created(request, None, ROUTE, register)

    @staticmethod
    def _not_answered_yet() -> tuple[int, dict[str, Any]]:
        raise _NotAnsweredYet


class ClusterView(ApiView):
    """`/clusters/{id}`."""

    max_body_bytes = MAX_KUBECONFIG_BYTES

    @extend_schema(operation_id="clusters_read", responses=ClusterShown)
    def get(self, request: Request, cluster_id: UUID) -> Response:
        """Returns a cluster."""
        return Response(show_cluster(cluster_by_id(self.actor, cluster_id)))

    @extend_schema(operation_id="clusters_update", request=ClusterPatch, responses=ClusterShown)
    def patch(self, request: Request, cluster_id: UUID) -> Response:
        """Changes region, provider or labels, or replaces the credential."""
        changes = changes_of(self.read(ClusterPatch, partial=True))
        return Response(show_cluster(update_cluster(self.actor, cluster_id, changes)))

    @extend_schema(operation_id="clusters_remove", responses={204: OpenApiResponse(description="Removed.")})
    def delete(self, request: Request, cluster_id: UUID) -> Response:
        """Removes the cluster. Refused (409 `cluster_in_use`) while it has live attempts."""
        remove_cluster(self.actor, cluster_id)
        return Response(status=status.HTTP_204_NO_CONTENT)


class ClusterProbeView(ApiView):
    """`/clusters/{id}/probe`."""

    @extend_schema(operation_id="clusters_probe", request=None, responses=ClusterShown)
    def post(self, request: Request, cluster_id: UUID) -> Response:
        """Probes the cluster now: reachability, identity, rights, clock."""
        return Response(show_cluster(probe_cluster(self.actor, cluster_id)))


class ClusterCordonView(ApiView):
    """`/clusters/{id}/cordon`."""

    @extend_schema(operation_id="clusters_cordon", request=None, responses=ClusterShown)
    def post(self, request: Request, cluster_id: UUID) -> Response:
        """Stops new work on the cluster; running jobs continue."""
        return Response(show_cluster(cordon_cluster(self.actor, cluster_id)))


class ClusterUncordonView(ApiView):
    """`/clusters/{id}/uncordon`."""

    @extend_schema(operation_id="clusters_uncordon", request=None, responses=ClusterShown)
    def post(self, request: Request, cluster_id: UUID) -> Response:
        """Allows new work on the cluster again."""
        return Response(show_cluster(uncordon_cluster(self.actor, cluster_id)))


class ClusterDrainView(ApiView):
    """`/clusters/{id}/drain`."""

    @extend_schema(operation_id="clusters_drain", request=None, responses=ClusterShown)
    def post(self, request: Request, cluster_id: UUID) -> Response:
        """Stops new work on the cluster and takes back jobs that have not started; running jobs continue."""
        return Response(show_cluster(drain_cluster(self.actor, cluster_id)))


class ClusterNodesView(ApiView):
    """`/clusters/{id}/nodes`."""

    paged = True

    @extend_schema(operation_id="clusters_nodes", responses=page_shape(NodeShown))
    def get(self, request: Request, cluster_id: UUID) -> Response:
        """Lists the cluster's nodes as last observed."""
        nodes = cluster_by_id(self.actor, cluster_id).nodes.all()
        return self.page(nodes, orders={"name": "name", "-name": "-name"}, render=show_node)


class AvoidedNodesView(ApiView):
    """`/clusters/{id}/avoided-nodes`."""

    paged = True

    @extend_schema(operation_id="clusters_avoided_nodes", responses=page_shape(AvoidedNodeShown))
    def get(self, request: Request, cluster_id: UUID) -> Response:
        """Lists the nodes that jobs avoid or avoided because they made jobs fail, newest first."""
        rows = cluster_by_id(self.actor, cluster_id).avoided_nodes.all()
        return self.page(rows, orders={"-began": "-id", "began": "id"}, render=show_avoided)


class ClearAvoidedNodeView(ApiView):
    """`/clusters/{id}/avoided-nodes/{id}/clear`."""

    @extend_schema(operation_id="clusters_clear_avoided_node", request=None, responses=AvoidedNodeShown)
    def post(self, request: Request, cluster_id: UUID, avoided_id: UUID) -> Response:
        """Makes jobs use the node again. Idempotent."""
        return Response(show_avoided(clear_avoided_node(self.actor, cluster_id, avoided_id)))


class ClusterFlavorsView(ApiView):
    """`/clusters/{id}/flavors`."""

    paged = True

    @extend_schema(operation_id="clusters_flavors", responses=page_shape(FlavorShown))
    def get(self, request: Request, cluster_id: UUID) -> Response:
        """Lists the flavors that the cluster's nodes offer."""
        cluster = cluster_by_id(self.actor, cluster_id)
        known = {flavor.id: flavor for flavor in flavor_summary([cluster], now())[cluster.id]}
        return self.page(
            cluster.flavors.filter(id__in=known),
            orders={"name": "name", "-name": "-name"},
            render=lambda flavor: show_flavor(known[flavor.id]),
        )


class ClusterEventsView(ApiView):
    """`/clusters/{id}/events`."""

    paged = True

    @extend_schema(operation_id="clusters_events", responses=page_shape(ClusterEventShown))
    def get(self, request: Request, cluster_id: UUID) -> Response:
        """Lists the cluster's events, newest first."""
        events = cluster_by_id(self.actor, cluster_id).events.all()
        return self.page(events, orders={"-at": "-id", "at": "id"}, render=show_event)
