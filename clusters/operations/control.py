"""Changes by administrators to a registered cluster, and its removal."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID

from django.db import IntegrityError, transaction
from django.db.models.functions import Now

from clusters.drivers import AuthFailed, DriverError, IdentityRefused, Unreachable
from clusters.drivers.registry import kind_of
from clusters.drivers.resolve import unsealed_credential
from clusters.engine.connection import Connection, ConnectionFields, Secret, read_authorities, read_secret
from clusters.engine.egress import read_server
from clusters.locks import lock_cluster, lock_cluster_for_removal
from clusters.models import Cluster, ClusterCredential, ClusterPrometheus, Flavor, Network, Node, Storage
from clusters.queries.connections import driver_of
from clusters.queries.visible import cluster_by_id, require_at_owner
from foundation.outbox import announce
from foundation.problems import Conflict, Invalid, NotFound
from tenancy.operations import record_audit
from tenancy.queries import Actor

from .health import record_auth_failure, record_contact, record_event, record_findings, record_silence
from .probing import Probe, ProbeRefused, access_findings, as_problem, probe_registered, probe_renewed
from .registration import probe_connection, read_any_connection, store_credential

Wish = Cluster.Wish


@dataclass(frozen=True, slots=True)
class Changes:
    """The changes; None leaves a value as it is. `access` carries a new credential, new authorities, or both; a
    `kubeconfig` replaces both.
    """

    region: str | None = None
    provider: str | None = None
    labels: Mapping[str, str] | None = None
    access: ConnectionFields = field(default_factory=ConnectionFields)
    kubeconfig: str = field(default="", repr=False)

    @property
    def touches_access(self) -> bool:
        """Whether the change affects access to the cluster, so that it must be probed first."""
        access = self.access
        given = (access.ca_pem, access.token, access.client_certificate_pem, access.client_key_pem, self.kubeconfig)
        return any(given)

    @property
    def plain(self) -> dict[str, Any]:
        """The changed columns, without credentials."""
        given = {"region": self.region, "provider": self.provider, "labels": self.labels}
        return {name: value for name, value in given.items() if value is not None}


def update_cluster(actor: Actor, cluster_id: UUID, changes: Changes) -> Cluster:
    """The cluster after the change. A new credential is probed first, outside any transaction, and must reach the same
    cluster.
    """
    cluster = cluster_by_id(actor, cluster_id)
    require_at_owner(actor, cluster)
    connection, probe = _new_connection(cluster, changes) if changes.touches_access else (None, None)
    columns = changes.plain | ({"ca_pem": connection.ca_pem} if connection else {})
    with transaction.atomic():
        locked = _locked(cluster_id)
        Cluster.objects.filter(id=locked.id).update(updated_at=Now(), **columns)
        if connection is not None:
            store_credential(cluster_id, connection.secret)
            record_event(cluster_id, "cluster.credential_changed", f"Credential changed by {actor.name}.")
        record_audit(
            actor,
            "cluster.update",
            object_kind="cluster",
            object_id=cluster_id,
            tenant_id=cluster.owner_id,
            detail={"fields": sorted(changes.plain) + (["credential"] if connection else [])},
        )
        announce("cycle", "observe")
    if probe is not None:
        record_contact(cluster_id)
        record_findings(cluster_id, "access", access_findings(probe))
    return cluster_by_id(actor, cluster_id)


def _new_connection(cluster: Cluster, changes: Changes) -> tuple[Connection, Probe]:
    """The new connection and its probe. The server does not change: a cluster at another address is another cluster."""
    if not kind_of(cluster.server).has_credential:
        raise Conflict(f"A {cluster.driver} cluster has no credential.", code="state_conflict")
    connection = _read(cluster, changes)
    probe = probe_connection(cluster.id, cluster.name, connection, probe_renewed)
    if probe.identity != cluster.identity:
        raise ProbeRefused(
            "Another cluster answers at this address (its kube-system uid differs).", code="identity_changed"
        )
    return connection, probe


def _read(cluster: Cluster, changes: Changes) -> Connection:
    """The new connection. A kubeconfig of another server is refused before its credential is sent anywhere: the
    registered server may be a member that should not see it.
    """
    access, server = changes.access, read_server(cluster.server)
    if not changes.kubeconfig:
        authorities = read_authorities(access.ca_pem) or cluster.ca_pem
        return Connection(server=server, ca_pem=authorities, secret=_new_secret(cluster, access))
    connection = read_any_connection(access, changes.kubeconfig)
    if connection.server != server:
        detail = f"it is for {connection.server.url}, but this cluster is registered as {server.url}"
        raise Invalid.field("kubeconfig", "another_server", detail)
    return connection


def _new_secret(cluster: Cluster, access: ConnectionFields) -> Secret:
    if replace(access, ca_pem="", server="") != ConnectionFields():
        return read_secret(access)
    try:
        credential = unsealed_credential(cluster.id)
    except (AuthFailed, Unreachable) as error:
        raise as_problem(error) from None
    return Secret(credential.kind, credential.secret)


def probe_cluster(actor: Actor, cluster_id: UUID) -> Cluster:
    """The cluster after a probe of its reachability, identity, rights and clock, with its health updated."""
    cluster = cluster_by_id(actor, cluster_id)
    require_at_owner(actor, cluster)
    try:
        probe = probe_registered(driver_of(cluster_id))
    except AuthFailed as error:
        record_auth_failure(cluster_id, error.reason)
    except IdentityRefused as error:
        record_silence(cluster_id, f"Another server answers at this address: {error.reason}.", code="identity_changed")
    except DriverError as error:
        record_silence(cluster_id, error.reason)
    else:
        _record_probe(cluster, probe)
    record_audit(actor, "cluster.probe", object_kind="cluster", object_id=cluster_id, tenant_id=cluster.owner_id)
    return cluster_by_id(actor, cluster_id)


def _record_probe(cluster: Cluster, probe: Probe) -> None:
    if probe.identity and probe.identity != cluster.identity:
        record_silence(
            cluster.id,
            "Another cluster answers at this address (its kube-system uid differs).",
            code="identity_changed",
        )
        return
    record_contact(
        cluster.id,
        clock_skew_ms=probe.clock_skew_ms,
        kubernetes_version=probe.kubernetes_version,
        has_kueue=probe.has_kueue,
    )
    record_findings(cluster.id, "access", access_findings(probe))


def cordon_cluster(actor: Actor, cluster_id: UUID) -> Cluster:
    """The cluster, which accepts no new work; running work continues."""
    return _wish(actor, cluster_id, Wish.CORDONED, "cluster.cordon")


def uncordon_cluster(actor: Actor, cluster_id: UUID) -> Cluster:
    """The cluster, which accepts work again."""
    return _wish(actor, cluster_id, Wish.OPEN, "cluster.uncordon")


def drain_cluster(actor: Actor, cluster_id: UUID) -> Cluster:
    """The cluster, which accepts no new work and is to be emptied."""
    return _wish(actor, cluster_id, Wish.DRAINING, "cluster.drain")


def _wish(actor: Actor, cluster_id: UUID, wish: str, action: str) -> Cluster:
    cluster = cluster_by_id(actor, cluster_id)
    require_at_owner(actor, cluster)
    with transaction.atomic():
        changed = Cluster.objects.filter(id=cluster_id).exclude(wish=wish).update(wish=wish, updated_at=Now())
        if changed:
            record_audit(actor, action, object_kind="cluster", object_id=cluster_id, tenant_id=cluster.owner_id)
            record_event(cluster_id, action, f"By {actor.name}.")
            announce("cycle")
    return cluster_by_id(actor, cluster_id)


def remove_cluster(actor: Actor, cluster_id: UUID) -> None:
    """Removes the cluster: its credential, nodes, flavors, storages and networks are deleted; its row remains for the history of past work.

    Raises Conflict `cluster_in_use` while live work on it still needs it (the rooms above report this with a trigger on
    `removed_at`).
    """
    cluster = cluster_by_id(actor, cluster_id)
    require_at_owner(actor, cluster)
    with transaction.atomic():
        if lock_cluster_for_removal(cluster_id) is None:
            raise NotFound
        try:
            with transaction.atomic():
                Cluster.objects.filter(id=cluster_id).update(removed_at=Now(), updated_at=Now())
        except IntegrityError as error:
            raise Conflict(
                "This cluster still has live attempts. Drain it, wait until they have ended, then remove it.",
                code="cluster_in_use",
            ) from error
        ClusterCredential.objects.filter(cluster_id=cluster_id).delete()
        ClusterPrometheus.objects.filter(cluster_id=cluster_id).delete()
        Node.objects.filter(cluster_id=cluster_id).delete()
        Flavor.objects.filter(cluster_id=cluster_id).delete()
        Storage.objects.filter(cluster_id=cluster_id).delete()
        Network.objects.filter(cluster_id=cluster_id).delete()
        record_audit(
            actor,
            "cluster.remove",
            object_kind="cluster",
            object_id=cluster_id,
            tenant_id=cluster.owner_id,
            detail={"name": cluster.name, "identity": cluster.identity},
        )
        announce("cycle", "observe")


def _locked(cluster_id: UUID) -> Cluster:
    cluster = lock_cluster(cluster_id)
    if cluster is None:
        raise NotFound
    return cluster
