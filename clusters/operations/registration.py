"""Registers a cluster: reads the input, checks its address, probes it with no transaction open, then stores
it in one.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from uuid import UUID

from django.conf import settings
from django.db import IntegrityError, transaction

from clusters.drivers import DriverError
from clusters.drivers.address import ClusterAddress
from clusters.drivers.resolve import address_for, key_ring
from clusters.drivers.simulated import SCHEME, found_cluster, path_of
from clusters.drivers.simulated.objects import Node as SimulatedNode
from clusters.engine.connection import Connection, ConnectionFields, Secret, read_connection
from clusters.engine.expiry import expiry_of
from clusters.engine.kubeconfig import read_kubeconfig
from clusters.engine.sealing import seal
from clusters.models import Cluster, ClusterCredential
from clusters.queries.visible import owners_for_registration
from foundation.clock import now
from foundation.ids import new_id
from foundation.outbox import announce
from foundation.problems import Conflict, FieldError, Invalid, PermissionDenied
from tenancy.engine.roles import Permission
from tenancy.models import Tenant
from tenancy.operations import record_audit
from tenancy.queries import SYSTEM, Actor, tenant_by_path, visible_tenants

from .health import record_event
from .probing import Probe, as_problem, probe_new


@dataclass(frozen=True, slots=True)
class Wanted:
    """The input of a registration. `kubeconfig` replaces every field of `fields`; `tenant` is a path, or empty for the
    one organisation where the actor may manage clusters.
    """

    name: str
    tenant: str = ""
    fields: ConnectionFields = field(default_factory=ConnectionFields)
    kubeconfig: str = field(default="", repr=False)
    region: str = ""
    provider: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Examined:
    """A registration that passed all checks; nothing is stored yet."""

    cluster_id: UUID
    owner: Tenant
    wanted: Wanted
    connection: Connection
    probe: Probe


def examine(actor: Actor, wanted: Wanted) -> Examined:
    """Reads, checks and probes a cluster to be registered. Writes nothing; call it with no transaction open.

    Raises Invalid (fields, address), ProbeRefused (unreachable, tls_failed, not_authorized, missing_permission,
    excess_permission, unproven_permission, clock_skew), Conflict (name taken), PermissionDenied or NotFound (tenant).
    """
    owner = owner_for_registration(actor, wanted.tenant)
    connection = read_any_connection(wanted.fields, wanted.kubeconfig)
    _require_free_name(owner, wanted.name)
    cluster_id = new_id()
    return Examined(cluster_id, owner, wanted, connection, probe_connection(cluster_id, wanted.name, connection))


def register_cluster(actor: Actor, examined: Examined) -> Cluster:
    """The new cluster with its sealed credential, audit entry and announcement, in one transaction.

    Raises Conflict: `cluster_already_registered` (same kube-system uid), `cluster_name_taken`.
    """
    wanted = examined.wanted
    with transaction.atomic():
        cluster = _create(
            Cluster(
                id=examined.cluster_id,
                owner=examined.owner,
                name=wanted.name,
                server=examined.connection.server.url,
                ca_pem=examined.connection.ca_pem,
                region=wanted.region,
                provider=wanted.provider,
                labels=dict(wanted.labels),
                identity=examined.probe.identity,
                kubernetes_version=examined.probe.kubernetes_version[:40],
                has_kueue=examined.probe.has_kueue,
                clock_skew_ms=examined.probe.clock_skew_ms,
                last_seen_at=now(),
            )
        )
        store_credential(cluster.id, examined.connection.secret)
        cluster.refresh_from_db(fields=["credential_expires_at"])
        _tell_registered(actor, cluster)
    return cluster


def register_simulated(
    owner: Tenant,
    name: str,
    *,
    region: str = "",
    provider: str = "",
    labels: Mapping[str, str] | None = None,
    nodes: Sequence[SimulatedNode] = (),
) -> Cluster:
    """A simulated cluster, created with these nodes, for the demo and for tests. No API endpoint calls this."""
    server = f"{SCHEME}://{name}"
    identity = found_cluster(path_of(settings.HOME, server), nodes)
    with transaction.atomic():
        cluster = _create(
            Cluster(
                owner=owner,
                name=name,
                driver=SCHEME,
                server=server,
                region=region,
                provider=provider,
                labels=dict(labels or {}),
                identity=identity,
                kubernetes_version="simulated",
                last_seen_at=now(),
            )
        )
        _tell_registered(SYSTEM, cluster)
    return cluster


def owner_for_registration(actor: Actor, path: str) -> Tenant:
    """The tenant at `path`, or the one organisation where the actor may manage clusters."""
    if path:
        return tenant_by_path(actor, path, Permission.MANAGE_CLUSTERS)
    organisations = owners_for_registration(actor)
    if len(organisations) == 1:
        return organisations[0]
    if not organisations and not visible_tenants(actor, Permission.MANAGE_CLUSTERS).exists():
        raise PermissionDenied("This needs the permission manage_clusters at a tenant.")
    raise Invalid.field(
        "tenant", "required", "give the tenant that owns the cluster, as a path such as acme or acme/research"
    )


def read_any_connection(fields: ConnectionFields, kubeconfig: str) -> Connection:
    """The connection given as separate fields or as a kubeconfig, never both."""
    if not kubeconfig:
        return read_connection(fields)
    also = [name for name in ConnectionFields.__dataclass_fields__ if getattr(fields, name)]
    if also:
        raise Invalid(errors=[FieldError(name, "given_twice", "the kubeconfig already has this") for name in also])
    return read_kubeconfig(kubeconfig)


def probe_connection(
    cluster_id: UUID, name: str, connection: Connection, probe: Callable[[ClusterAddress], Probe] = probe_new
) -> Probe:
    """The probe of a connection, after its address is checked and pinned."""
    try:
        address = address_for(cluster_id, name, connection)
    except DriverError as error:
        raise as_problem(error) from None
    return probe(address)


def store_credential(cluster_id: UUID, secret: Secret) -> None:
    """Seals the credential for this cluster only and replaces any earlier one."""
    sealed = seal(key_ring(), cluster_id, secret.value)
    ClusterCredential.objects.update_or_create(
        cluster_id=cluster_id, defaults={"kind": secret.kind, "key_id": sealed.key_id, "sealed": sealed.box}
    )
    Cluster.objects.filter(id=cluster_id).update(credential_expires_at=expiry_of(secret))


def _require_free_name(owner: Tenant, name: str) -> None:
    """Specs name clusters, so a name is unique within an organisation."""
    organisation = owner.path_prefixes[0]
    taken = Cluster.objects.filter(name=name)
    if (
        taken.filter(owner__path=organisation).exists()
        or taken.filter(owner__path__startswith=f"{organisation}/").exists()
    ):
        raise Conflict(f"A cluster named {name} already exists in {organisation}.", code="cluster_name_taken")


def _create(cluster: Cluster) -> Cluster:
    _require_free_name(cluster.owner, cluster.name)
    try:
        with transaction.atomic():
            cluster.save(force_insert=True)
    except IntegrityError as error:
        raise _refusal(error, cluster) from error
    return cluster


def _refusal(error: IntegrityError, cluster: Cluster) -> Exception:
    match getattr(getattr(error.__cause__, "diag", None), "constraint_name", ""):
        case "a_cluster_is_registered_once":
            return Conflict(
                "This cluster is already registered (same kube-system uid).", code="cluster_already_registered"
            )
        case "cluster_name_is_unique_for_its_owner":
            return Conflict(
                f"A cluster named {cluster.name} already exists in {cluster.owner.path}.", code="cluster_name_taken"
            )
        case _:
            return error


def _tell_registered(actor: Actor, cluster: Cluster) -> None:
    record_audit(
        actor,
        "cluster.register",
        object_kind="cluster",
        object_id=cluster.id,
        tenant_id=cluster.owner_id,
        detail={"name": cluster.name, "server": cluster.server, "identity": cluster.identity, "driver": cluster.driver},
    )
    record_event(cluster.id, "cluster.registered", f"Registered by {actor.name}.")
    announce("cycle", "observe")
