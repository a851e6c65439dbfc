"""Finds this process' open driver for a cluster's id. One small query per call; names are resolved again
periodically.
"""

from uuid import UUID

from clusters.drivers import ClusterDriver
from clusters.drivers.address import ClusterAddress
from clusters.drivers.connections import driver_for
from clusters.drivers.resolve import address_of, registration_of
from foundation.caches import cached

LOOK_UP_AGAIN_SECONDS = 300.0
MOST_KEPT = 10_000


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
    return _address(registration_of(cluster_id))


_address = cached("cluster_id", most=MOST_KEPT, seconds=LOOK_UP_AGAIN_SECONDS)(address_of)
