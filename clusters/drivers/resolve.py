"""Resolves a registered cluster to the one address that its driver may connect to, again for every new driver."""

import socket
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as OutOfTime
from functools import lru_cache
from typing import Any, Literal, NamedTuple
from urllib.parse import urlsplit
from uuid import UUID

from django.conf import settings
from django.db import connection as database

from clusters.engine.connection import Connection
from clusters.engine.egress import Server, judge, read_server
from clusters.engine.sealing import CannotUnseal, KeyRing, Sealed, read_key_ring, unseal
from foundation.processes import demand

from .address import ClusterAddress, Credential
from .port import AuthFailed, Unreachable
from .registry import kind_of

RESOLVE_SECONDS = 3
# The system's resolver cannot be interrupted: a slow lookup occupies its own thread, and its caller only until the
# limit.
_RESOLVERS = ThreadPoolExecutor(max_workers=8, thread_name_prefix="resolver")


_REGISTRATION = """
SELECT cluster.name, cluster.server, cluster.ca_pem, credential.kind, credential.key_id, credential.sealed
  FROM clusters_cluster AS cluster LEFT JOIN clusters_clustercredential AS credential ON credential.cluster_id = cluster.id
 WHERE cluster.id = %s AND cluster.removed_at IS NULL
"""
"""In SQL, because every visit runs it."""


class Registration(NamedTuple):
    """What a driver's address is made from. A cluster without a stored credential has None for its last three."""

    cluster_id: UUID
    name: str
    server: str
    ca_pem: str
    kind: Literal["token", "certificate"]
    key_id: str
    sealed: bytes | None


class AddressRefused(Unreachable):
    """The gateway does not connect to this server's address; no request was sent."""


def resolve(host: str, port: int) -> tuple[str, ...]:
    """The addresses of a name, in the resolver's order; Unreachable if there are none or it takes too long."""
    try:
        found = _RESOLVERS.submit(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM).result(RESOLVE_SECONDS)
    except OutOfTime:
        raise Unreachable(f"the name {host} could not be resolved within {RESOLVE_SECONDS} s") from None
    except (OSError, UnicodeError):
        raise Unreachable(f"the name {host} could not be resolved") from None
    return tuple(dict.fromkeys(str(entry[4][0]) for entry in found))


def checked_address(server: Server) -> str:
    """The address to connect to; AddressRefused if the egress guard accepts none."""
    verdict = judge(resolve(server.host, server.port), server.port, allowed=settings.EGRESS_ALLOW, own=_own_servers())
    if not verdict.address:
        raise AddressRefused(f"{server.host} is refused: {verdict.why_not}")
    return verdict.address


def address_for(cluster_id: UUID, name: str, connection: Connection) -> ClusterAddress:
    """The address of a cluster that may not be registered yet, checked now."""
    return ClusterAddress(
        cluster_id=cluster_id,
        name=name,
        server=connection.server.url,
        address=checked_address(connection.server),
        port=connection.server.port,
        ca_pem=connection.ca_pem,
        credential=Credential(connection.secret.kind, connection.secret.value),
    )


def registration_of(cluster_id: UUID) -> Registration:
    """What is stored of a registered cluster's address and credential; Unreachable if it is not registered."""
    with database.cursor() as cursor:
        cursor.execute(_REGISTRATION, [cluster_id])
        row: tuple[Any, ...] | None = cursor.fetchone()
    if row is None:
        raise Unreachable("the cluster is not registered")
    name, server, ca_pem, kind, key_id, sealed = row
    return Registration(cluster_id, name, server, ca_pem, kind, key_id, None if sealed is None else bytes(sealed))


def address_of(known: Registration) -> ClusterAddress:
    """The address of a registered cluster, checked now, with its credential unsealed.

    Raises Unreachable (unresolvable, refused address) or AuthFailed (no credential that can be opened).
    """
    if not kind_of(known.server).has_credential:
        return ClusterAddress(known.cluster_id, known.name, known.server, "", 0, "", Credential("token", b""))
    credential = _unsealed(known)
    server = read_server(known.server)
    return ClusterAddress(
        cluster_id=known.cluster_id,
        name=known.name,
        server=server.url,
        address=checked_address(server),
        port=server.port,
        ca_pem=known.ca_pem,
        credential=credential,
    )


def unsealed_credential(cluster_id: UUID) -> Credential:
    """The cluster's credential; AuthFailed if it has none or the key ring cannot open it."""
    return _unsealed(registration_of(cluster_id))


def _unsealed(known: Registration) -> Credential:
    if known.sealed is None:
        raise AuthFailed("no credential is stored")
    try:
        secret = unseal(key_ring(), known.cluster_id, Sealed(known.key_id, known.sealed))
    except CannotUnseal as error:
        raise AuthFailed(f"the stored credential cannot be opened: {error}") from None
    return Credential(known.kind, secret)


def key_ring() -> KeyRing:
    """The installation's key ring; ImproperlyConfigured if this process has none."""
    demand("work with cluster credentials", "KEY_RING")
    return _read_key_ring(settings.KEY_RING)


@lru_cache(maxsize=4)
def _read_key_ring(text: str) -> KeyRing:
    return read_key_ring(text)


def _own_servers() -> frozenset[tuple[str, int]]:
    """Addresses and ports of our database and broker: a registered cluster must not give access to them.

    A process without REDIS_URL does not know the broker's address; there only the guard's closed ranges block it.
    """
    broker = urlsplit(settings.REDIS_URL)
    own: set[tuple[str, int]] = set()
    for host, port in (*_database_servers(settings.DATABASES["default"]), (broker.hostname, broker.port or 6379)):
        if host:
            own |= {(address, port) for address in _addresses_if_any(str(host), port)}
    return frozenset(own)


def _database_servers(database: Mapping[str, Any]) -> list[tuple[str, int]]:
    """Host and port of each: DATABASE_URL may name several hosts, and one port for all or one for each."""
    hosts = str(database["OPTIONS"].get("hostaddr") or database["HOST"]).split(",")
    ports = [int(port or 5432) for port in str(database["PORT"]).split(",")]
    return list(zip(hosts, ports if len(ports) == len(hosts) else ports[:1] * len(hosts), strict=True))


def _addresses_if_any(host: str, port: int) -> tuple[str, ...]:
    try:
        return resolve(host, port)
    except Unreachable:
        return ()
