"""Declares which network attachments of a cluster jobs may use. The gateway creates none: it trusts the administrator's input."""

from dataclasses import asdict, dataclass
from typing import Any
from uuid import UUID

from django.db import IntegrityError, transaction
from django.db.models.functions import Now

from clusters.locks import lock_network
from clusters.models import Cluster, Network
from clusters.queries.networks import network_by_id
from clusters.queries.visible import served_tenant
from foundation.problems import Conflict, NotFound
from tenancy.queries import Actor

from .declared import managed_cluster, record_declaration

SHOWN = ("kind", "definition", "namespace")


@dataclass(frozen=True, slots=True)
class WantedNetwork:
    """A network to declare; without a tenant, it serves the owner of the cluster."""

    name: str
    definition: str
    namespace: str = ""
    tenant: str = ""


@dataclass(frozen=True, slots=True)
class NetworkChanges:
    """The changes; None leaves a value as it is. A network keeps its name."""

    definition: str | None = None
    namespace: str | None = None
    tenant: str | None = None


def create_network(actor: Actor, cluster_id: UUID, wanted: WantedNetwork) -> Network:
    """The new network. The actor must manage the cluster.

    Raises NotFound and NotAllowedHere (cluster), Invalid (`not_found` for a tenant that the cluster does not serve),
    Conflict `network_exists`.
    """
    cluster = managed_cluster(actor, cluster_id)
    columns = {**asdict(wanted), "tenant": served_tenant(actor, cluster, wanted.tenant)}
    try:
        with transaction.atomic():
            network = Network.objects.create(cluster=cluster, **columns)
            record_declaration(actor, "network.create", network, after=_standing(network))
    except IntegrityError as error:
        if "network_name_is_unique_on_its_cluster" in str(error):
            raise Conflict(f"{cluster.name} already has a network {wanted.name}.", code="network_exists") from None
        raise
    return network_by_id(actor, cluster_id, network.id)


def update_network(actor: Actor, cluster_id: UUID, network_id: UUID, changes: NetworkChanges) -> Network:
    """The network after the change, which applies to later placements. Raises as `create_network` does."""
    cluster = managed_cluster(actor, cluster_id)
    columns = {name: value for name, value in asdict(changes).items() if value is not None}
    if changes.tenant is not None:
        columns["tenant"] = served_tenant(actor, cluster, changes.tenant)
    with transaction.atomic():
        network = _locked(cluster, network_id)
        before = _standing(network)
        Network.objects.filter(id=network_id).update(changed_at=Now(), **columns)
        after = network_by_id(actor, cluster_id, network_id)
        record_declaration(actor, "network.update", network, before=before, after=_standing(after))
    return after


def remove_network(actor: Actor, cluster_id: UUID, network_id: UUID) -> None:
    """Deletes the network: no later placement uses it. Attempts that were placed with it keep it."""
    cluster = managed_cluster(actor, cluster_id)
    with transaction.atomic():
        network = _locked(cluster, network_id)
        Network.objects.filter(id=network_id).delete()
        record_declaration(actor, "network.remove", network, before=_standing(network))


def _locked(cluster: Cluster, network_id: UUID) -> Network:
    network = lock_network(cluster.id, network_id)
    if network is None:
        raise NotFound
    return network


def _standing(network: Network) -> dict[str, Any]:
    return {"tenant": network.tenant.path, **{name: getattr(network, name) for name in SHOWN}}
