"""Finds this process' open driver for a cluster's id. One small query per call; names are resolved again
periodically.
"""

import threading
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from clusters.drivers import ClusterDriver, Unreachable
from clusters.drivers.address import ClusterAddress, Credential
from clusters.drivers.connections import driver_for
from clusters.drivers.registry import kind_of
from clusters.drivers.resolve import address_of
from clusters.models import Cluster
from foundation.clock import monotonic

LOOK_UP_AGAIN_SECONDS = 300.0


@dataclass(frozen=True, slots=True)
class _Known:
    facts: tuple[Any, ...]
    address: ClusterAddress
    found_at: float


_known: dict[UUID, _Known] = {}
_lock = threading.Lock()


def driver_of(cluster_id: UUID) -> ClusterDriver:
    """The open driver of a registered cluster in this process, for coroutines passed to
    `clusters.drivers.connections.run`.

    A changed address or credential creates a new driver. Raises Unreachable (not registered, cannot be resolved,
    address refused) or AuthFailed (no credential that can be opened). Call it outside transactions and outside any
    event loop.
    """
    return driver_for(address_of_registered(cluster_id))


def address_of_registered(cluster_id: UUID) -> ClusterAddress:
    """The address from which a driver of the cluster is built, for callers that keep their own drivers
    (`connections.open_driver`).
    """
    facts = (
        Cluster.objects.filter(id=cluster_id).values_list("server", "ca_pem", "name", "credential__updated_at").first()
    )
    if facts is None:
        raise Unreachable("the cluster is not registered")
    known = _known.get(cluster_id)
    if known is not None and known.facts == facts and monotonic() - known.found_at < LOOK_UP_AGAIN_SECONDS:
        return known.address
    server, _, name, _ = facts
    if kind_of(server).has_credential:
        address = address_of(cluster_id)
    else:
        address = ClusterAddress(cluster_id, name, server, "", 0, "", Credential("token", b""))
    with _lock:
        _known[cluster_id] = _Known(facts, address, monotonic())
    return address
