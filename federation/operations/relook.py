"""A fresh look at an attempt's pods on its cluster, when the watch has left something open."""

from uuid import UUID

import clusters.queries
from clusters.drivers import ClusterDriver, NotThere, PodSeen
from clusters.drivers.connections import run
from federation.models import PodRun, RemoteObject

from .observation import Observations, record_observations

LOOK_SECONDS = 15.0


def look_at_pods(attempt_id: UUID) -> None:
    """Records what the cluster says now of the attempt's pods. Raises DriverError if it cannot be asked."""
    places = list(
        RemoteObject.objects.filter(attempt_id=attempt_id)
        .exclude(uid="")
        .values_list("attempt__cluster_id", "attempt__namespace", "name")
    )
    if not places:
        return
    cluster_id = places[0][0]
    driver = clusters.queries.driver_of(cluster_id)
    pods = run(_list_pods(driver, [(namespace, name) for _, namespace, name in places]), timeout_seconds=LOOK_SECONDS)
    known = PodRun.objects.filter(attempt_id=attempt_id, finished_at=None, is_gone=False).values_list("uid", flat=True)
    gone = set(known) - {pod.uid for pod in pods}
    record_observations(cluster_id, Observations(pods=pods, gone_pods=sorted(gone)))


async def _list_pods(driver: ClusterDriver, places: list[tuple[str, str]]) -> list[PodSeen]:
    found: list[PodSeen] = []
    for namespace, name in places:
        try:
            found += await driver.list_pods(namespace, name)
        except NotThere:
            continue
    return found
