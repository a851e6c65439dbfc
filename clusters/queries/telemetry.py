"""Queries on the Prometheus of clusters."""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from clusters.models import Cluster, ClusterPrometheus
from foundation.problems import NotFound
from tenancy.queries import Actor

from .visible import cluster_by_id, require_at_owner


@dataclass(frozen=True, slots=True)
class PrometheusShown:
    """A Prometheus as its cluster's page shows it, without its token."""

    url: str
    has_token: bool
    set_by: str
    changed_at: datetime


def prometheus_of(cluster: Cluster) -> ClusterPrometheus | None:
    """The Prometheus of a cluster that the caller may manage."""
    return ClusterPrometheus.objects.filter(cluster=cluster).first()


def prometheus_by_cluster(actor: Actor, cluster_id: UUID) -> ClusterPrometheus:
    """The Prometheus of a cluster. Raises NotFound, and NotAllowedHere if the actor does not manage the cluster."""
    cluster = cluster_by_id(actor, cluster_id)
    require_at_owner(actor, cluster)
    found = prometheus_of(cluster)
    if found is None:
        raise NotFound
    return found


def shown_prometheus(cluster_id: UUID) -> PrometheusShown | None:
    """For the page of a cluster that the viewer manages."""
    row = ClusterPrometheus.objects.filter(cluster_id=cluster_id).first()
    if row is None:
        return None
    return PrometheusShown(row.url, row.sealed is not None, row.set_by_name, row.changed_at)
