"""What a cluster says of one object when it is asked for it: the evidence without which nothing is ended.

Absence is no evidence. A list without an object, pods that were never seen, a refused or lost reply: before an attempt is ended,
asked back or deleted for such a reason, the very object is asked for by its uid, and the cluster for who it is.
"""

from collections.abc import Sequence
from enum import StrEnum

from clusters.drivers import Ambiguous, ClusterDriver, NotThere, PodSeen


class Standing(StrEnum):
    """What became of an object."""

    SUSPENDED = "suspended"
    """It is there and nothing of it runs."""
    RELEASED = "released"
    """It is there and was unsuspended: it may run, or has."""
    GONE = "gone"
    """The cluster that we registered has no such object."""


async def standing_of(driver: ClusterDriver, identity: str, namespace: str, name: str, uid: str) -> Standing:
    """What the cluster says of the object with this uid. Raises DriverError where it does not answer, or another answers."""
    try:
        seen = await driver.get_job(namespace, name)
    except NotThere:
        seen = None
    if seen is not None and seen.uid == uid:
        return Standing.SUSPENDED if seen.suspended else Standing.RELEASED
    await require_same_cluster(driver, identity)
    return Standing.GONE


async def require_same_cluster(driver: ClusterDriver, identity: str) -> None:
    """Raises Ambiguous when another cluster than the registered one answers at this address."""
    if await driver.identity() != identity:
        raise Ambiguous("another cluster answers at this address, so missing objects prove nothing")


async def pods_of(driver: ClusterDriver, namespace: str, name: str, uid: str) -> Sequence[PodSeen]:
    """All pods of the Job with this uid. Raises DriverError where they cannot be looked at."""
    return [pod for pod in await driver.list_pods(namespace, name) if pod.owner == uid]


async def started_pods(driver: ClusterDriver, namespace: str, name: str, uid: str) -> Sequence[PodSeen]:
    """The pods of the Job with this uid that have started. Raises DriverError where they cannot be looked at."""
    return [pod for pod in await pods_of(driver, namespace, name, uid) if pod.started_at is not None]
