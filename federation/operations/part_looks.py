"""Asks the cluster before an attempt that started in part ends: its watch may be behind. Asynchronous, without a database."""

from collections.abc import Sequence

from clusters.drivers import ClusterDriver, PodSeen
from federation.queries.claimed_attempts import ClaimedAttempt

from .evidence import object_named, pods_of


async def pods_unless_in_part(driver: ClusterDriver, attempt: ClaimedAttempt) -> Sequence[PodSeen] | None:
    """The attempt's pods, if each of its objects is whole, may become so, or is suspended or over, which others decide; None if the
    pods that were known to wait still have no node, or if an object is gone or is being deleted. Raises DriverError if
    the cluster does not answer.
    """
    found: list[PodSeen] = []
    is_in_part = False
    for item in attempt.objects:
        job = await object_named(driver, attempt.namespace, item.name, item.uid)
        if job is None or job.is_terminating:
            return None
        pods = await pods_of(driver, attempt.namespace, item.name, item.uid)
        found += pods
        overdue = attempt.overdue.get(item.position)
        if overdue is not None and not job.suspended and not job.outcome:
            is_in_part |= overdue.is_confirmed(pods, job.parallelism)
    return None if is_in_part else found
