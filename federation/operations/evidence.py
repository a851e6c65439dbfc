"""What a cluster reports of one object on request: the evidence that is required to end an attempt.

Absence from a list, unseen pods, and a refused or lost reply are not evidence. Before an attempt is ended, recalled or
deleted for such a reason, the gateway requests the object itself by its uid, and checks the cluster's identity.
"""

from collections.abc import Sequence
from enum import StrEnum

from clusters.drivers import Ambiguous, ClusterDriver, JobSeen, NotThere, PodSeen

_ENDED = frozenset({"Succeeded", "Failed"})


class Standing(StrEnum):
    """What became of an object."""

    SUSPENDED = "suspended"
    """It exists as it was created: nothing of it has run."""
    RELEASED = "released"
    """It exists and was unsuspended: it may run, or has run. If others have suspended it since, they decide when it goes on."""
    GONE = "gone"
    """The registered cluster has no such object."""


async def standing_of(driver: ClusterDriver, identity: str, namespace: str, name: str, uid: str) -> Standing:
    """The state of the object with this uid. Raises DriverError if the cluster does not answer, or
    another one answers.
    """
    seen = await object_of(driver, identity, namespace, name, uid)
    if seen is None:
        return Standing.GONE
    return Standing.SUSPENDED if seen.is_as_created else Standing.RELEASED


async def object_of(driver: ClusterDriver, identity: str, namespace: str, name: str, uid: str) -> JobSeen | None:
    """The object with this uid, whatever labels it still has; None if the registered cluster has no such object. Raises
    DriverError if the cluster does not answer, or another one answers.
    """
    seen = await object_named(driver, namespace, name, uid)
    if seen is None:
        await require_same_cluster(driver, identity)
    return seen


async def object_named(driver: ClusterDriver, namespace: str, name: str, uid: str) -> JobSeen | None:
    """The object, if the cluster at the address has it, with this uid unless that is empty. None is no evidence
    before `require_same_cluster`.
    """
    try:
        seen = await driver.get_job(namespace, name)
    except NotThere:
        return None
    return seen if uid in ("", seen.uid) else None


async def require_same_cluster(driver: ClusterDriver, identity: str) -> None:
    """Raises Ambiguous if a cluster other than the registered one answers at this address."""
    if await driver.identity() != identity:
        raise Ambiguous("another cluster answers at this address, so missing objects prove nothing")


async def pods_of(driver: ClusterDriver, namespace: str, name: str, uid: str) -> Sequence[PodSeen]:
    """All pods of the Job with this uid. Raises DriverError if they cannot be read."""
    return [pod for pod in await driver.list_pods(namespace, name) if pod.owner == uid]


async def started_pods(driver: ClusterDriver, namespace: str, name: str, uid: str) -> Sequence[PodSeen]:
    """The started pods of the Job with this uid. Raises DriverError if they cannot be read."""
    return [pod for pod in await pods_of(driver, namespace, name, uid) if pod.started_at is not None]


async def unended_pods(driver: ClusterDriver, namespace: str, name: str, uid: str) -> Sequence[PodSeen]:
    """The pods of the Job with this uid that have not ended; they may outlive a Job that others delete. Raises
    DriverError if they cannot be read.
    """
    return [pod for pod in await pods_of(driver, namespace, name, uid) if pod.phase not in _ENDED]
