"""Queries on network attachments, for the administrators who declare them and the jobs that use them."""

from collections.abc import Collection
from uuid import UUID

from django.db.models import Exists, OuterRef, Q, QuerySet, Value
from django.db.models.functions import Concat

from clusters.engine.declared import by_name
from clusters.engine.networks import KnownNetwork, Networks
from clusters.models import Network
from foundation.problems import NotFound
from tenancy.queries import Actor, visible_tenants

from .visible import cluster_by_id


def visible_networks(actor: Actor, cluster_id: UUID) -> QuerySet[Network]:
    """The networks of a cluster that serve a tenant that the actor may see. NotFound for a cluster that the actor may
    not see.
    """
    cluster = cluster_by_id(actor, cluster_id)
    at_or_below = Q(path=OuterRef("tenant__path")) | Q(path__startswith=Concat(OuterRef("tenant__path"), Value("/")))
    found = Network.objects.filter(Exists(visible_tenants(actor).filter(at_or_below)), cluster=cluster)
    return found.select_related("cluster__owner", "tenant")


def network_by_id(actor: Actor, cluster_id: UUID, network_id: UUID) -> Network:
    """The network; NotFound if it does not exist on this cluster or the actor may not see it."""
    network = visible_networks(actor, cluster_id).filter(id=network_id).first()
    if network is None:
        raise NotFound
    return network


def known_networks(names: Collection[str]) -> Networks:
    """The networks of these names on all registered clusters. No query without names."""
    if not names:
        return {}
    rows = Network.objects.filter(name__in=list(names), cluster__removed_at__isnull=True)
    return by_name(
        KnownNetwork(row.cluster_id, row.cluster.owner.path, row.tenant.path, row.name, row.definition, row.namespace)
        for row in rows.select_related("cluster__owner", "tenant").order_by("id")
    )
