"""Sets and removes the Prometheus of a cluster, which says what its GPUs did."""

import re
from dataclasses import dataclass, field
from uuid import UUID

from django.db import transaction
from django.db.models.functions import Now

from clusters.drivers import DriverError
from clusters.drivers.hook_servers import hook_address
from clusters.drivers.resolve import key_ring
from clusters.engine.hook_servers import HookServer, read_hook_url
from clusters.engine.sealing import Sealed, seal_bound, unseal_bound
from clusters.engine.telemetry import token_binding
from clusters.models import Cluster, ClusterPrometheus
from clusters.queries.telemetry import prometheus_of
from foundation.problems import FieldError, Invalid, NotFound
from tenancy.operations import record_audit
from tenancy.queries import Actor

from .declared import managed_cluster

MOST_TOKEN = 4096
TOKEN = "a bearer token: letters, digits and -._~+/, with = at its end"  # noqa: S105 - says what one is
_TOKEN = re.compile(r"[A-Za-z0-9\-._~+/]+=*")


@dataclass(frozen=True, slots=True)
class WantedPrometheus:
    """A Prometheus. `token`: empty for none; None keeps the one that is stored, if the URL stays on the same server."""

    url: str
    token: str | None = field(default=None, repr=False)


def set_prometheus(actor: Actor, cluster_id: UUID, wanted: WantedPrometheus) -> ClusterPrometheus:
    """The Prometheus of the cluster from now on. Its name is resolved and judged now, and again for each hour that is asked for.

    A stored token is kept only for the same scheme, host and port: who changes the URL cannot have it sent elsewhere. Raises
    NotFound and NotAllowedHere (cluster), Invalid.
    """
    cluster = managed_cluster(actor, cluster_id)
    server = _checked(wanted)
    with transaction.atomic():
        known = ClusterPrometheus.objects.filter(cluster=cluster).first()
        columns = {"url": wanted.url, "set_by_name": actor.name, "changed_at": Now()}
        if wanted.token is not None or known is None or read_hook_url(known.url).shown != server.shown:
            columns |= _sealed_token(cluster_id, wanted.token or "")
        ClusterPrometheus.objects.update_or_create(cluster=cluster, defaults=columns)
        made = ClusterPrometheus.objects.get(cluster=cluster)
        _record(actor, "prometheus.set", cluster, made)
    return made


def remove_prometheus(actor: Actor, cluster_id: UUID) -> None:
    """Forgets the Prometheus of the cluster with its token. What was measured stays. Raises NotFound, NotAllowedHere."""
    cluster = managed_cluster(actor, cluster_id)
    with transaction.atomic():
        known = prometheus_of(cluster)
        if known is None or not ClusterPrometheus.objects.filter(cluster=cluster).delete()[0]:
            raise NotFound
        _record(actor, "prometheus.remove", cluster, known)


def opened_token(cluster_id: UUID, key_id: str, sealed: bytes | None) -> str:
    """The bearer token; empty if there is none. Raises CannotUnseal."""
    return (
        "" if sealed is None else unseal_bound(key_ring(), token_binding(cluster_id), Sealed(key_id, sealed)).decode()
    )


def _sealed_token(cluster_id: UUID, token: str) -> dict[str, object]:
    if not token:
        return {"key_id": "", "sealed": None}
    sealed = seal_bound(key_ring(), token_binding(cluster_id), token.encode())
    return {"key_id": sealed.key_id, "sealed": sealed.box}


def _checked(wanted: WantedPrometheus) -> HookServer:
    errors = []
    if wanted.token and (len(wanted.token) > MOST_TOKEN or not _TOKEN.fullmatch(wanted.token)):
        errors.append(FieldError("token", "bad_format", TOKEN))
    try:
        server = read_hook_url(wanted.url)
    except ValueError as error:
        raise Invalid(errors=[FieldError("url", "bad_url", str(error)), *errors]) from None
    if errors:
        raise Invalid(errors=errors)
    try:
        hook_address(server)
    except DriverError as error:
        raise Invalid.field("url", "address_not_allowed", error.reason) from None
    return server


def _record(actor: Actor, action: str, cluster: Cluster, row: ClusterPrometheus) -> None:
    detail = {"cluster": cluster.name, "url": row.url, "has_token": row.sealed is not None}
    record_audit(actor, action, object_kind="cluster", object_id=cluster.id, tenant_id=cluster.owner_id, detail=detail)
