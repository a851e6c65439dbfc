"""Reads the pods of ended attempts from their clusters again, if the watch left something open.

A cluster's answer counts only if it is the registered cluster: the same pass checks its identity, and requests the pods
by the uid of their Job. All clusters are asked concurrently, each within its own bounds, so that one that hangs does
not delay the others.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from uuid import UUID

from django.db.models import DateTimeField, DurationField, ExpressionWrapper, F, Func, Value
from django.db.models.functions import Greatest, Least, Now

import clusters.queries
from clusters.drivers import ClusterDriver, DriverError, NotThere, PodSeen
from clusters.drivers.connections import run
from clusters.models import Cluster
from federation.models import Attempt, PodRun, RemoteObject
from federation.queries.metering import Unsettled

from .evidence import pods_of, require_same_cluster
from .observation import Observations, record_observations
from .setting_aside import in_parts

log = logging.getLogger(__name__)
LOOK_SECONDS = 5.0
"""The time limit per cluster for all requests of a round; the answers received until then count."""
AT_ONCE = 8
SOON, LATE = timedelta(seconds=2), timedelta(minutes=5)
"""The bounds of the delay until an attempt is checked again, which is a quarter of the time since its end."""

Told = dict[UUID, list[PodSeen]]


@dataclass(frozen=True, slots=True)
class _Asked:
    """An attempt on its cluster, and its objects there: namespace, name and uid."""

    attempt_id: UUID
    objects: Sequence[tuple[str, str, str]]


@dataclass(frozen=True, slots=True)
class _Place:
    """A cluster with the attempts to ask about."""

    cluster_id: UUID
    identity: str
    driver: ClusterDriver
    asked: Sequence[_Asked]


def look_at_pods(unsettled: Sequence[Unsettled]) -> list[UUID]:
    """The attempts whose pods their cluster reported now; the reports are recorded."""
    if not unsettled:
        return []
    _look_later([one.attempt_id for one in unsettled])
    places = _places(unsettled)
    try:
        told = run(_ask(places), timeout_seconds=LOOK_SECONDS * 3) if places else []
    except DriverError as error:
        log.warning("the pods of ended attempts could not be requested from any cluster: %s", error.reason)
        return []
    return [id_ for place, pods in zip(places, told, strict=True) for id_ in _write_down_each(place.cluster_id, pods)]


def _look_later(attempt_ids: Sequence[UUID]) -> None:
    """Schedules the next check, with growing pauses. It is written before any request, so that a crash causes no
    immediate retry.
    """
    age = Func(F("finished_at"), template="(now() - %(expressions)s) / 4", output_field=DurationField())
    pause = Least(Greatest(age, Value(SOON)), Value(LATE), output_field=DurationField())
    later = ExpressionWrapper(Now() + pause, output_field=DateTimeField())
    Attempt.objects.filter(id__in=attempt_ids).update(settle_at=later)


def _places(unsettled: Sequence[Unsettled]) -> list[_Place]:
    objects: dict[UUID, list[tuple[str, str, str]]] = defaultdict(list)
    rows = RemoteObject.objects.filter(attempt_id__in=[one.attempt_id for one in unsettled]).exclude(uid="")
    for attempt_id, *place in rows.values_list("attempt_id", "attempt__namespace", "name", "uid"):
        objects[attempt_id].append((place[0], place[1], place[2]))
    by_cluster: dict[UUID, list[_Asked]] = defaultdict(list)
    for one in unsettled:
        by_cluster[one.cluster_id].append(_Asked(one.attempt_id, objects[one.attempt_id]))
    identities = dict(Cluster.everything.filter(id__in=by_cluster).values_list("id", "identity"))
    places = []
    for cluster_id, asked in by_cluster.items():
        try:
            driver = clusters.queries.driver_of(cluster_id)
        except DriverError as error:
            log.info(
                "cluster %s does not return the pods of %d ended attempts: %s", cluster_id, len(asked), error.reason
            )
        else:
            places.append(_Place(cluster_id, identities[cluster_id], driver, asked))
    return places


async def _ask(places: Sequence[_Place]) -> list[Told]:
    return await asyncio.gather(*(_ask_one(place) for place in places))


async def _ask_one(place: _Place) -> Told:
    """What the cluster reported in time. It has an attempt with all its pods, or not at all."""
    told: Told = {}
    turns = asyncio.Semaphore(AT_ONCE)

    async def ask(asked: _Asked) -> None:
        async with turns:
            told[asked.attempt_id] = await _list_pods(place.driver, asked.objects)

    try:
        async with asyncio.timeout(LOOK_SECONDS):
            await require_same_cluster(place.driver, place.identity)
            outcomes = await asyncio.gather(*(ask(asked) for asked in place.asked), return_exceptions=True)
        failures = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
    except (DriverError, TimeoutError) as error:
        failures = [error]
    if failures:
        why = failures[0].reason if isinstance(failures[0], DriverError) else type(failures[0]).__name__
        log.info(
            "cluster %s returned the pods of %d of %d ended attempts: %s",
            place.cluster_id,
            len(told),
            len(place.asked),
            why,
        )
    return told


async def _list_pods(driver: ClusterDriver, objects: Sequence[tuple[str, str, str]]) -> list[PodSeen]:
    found: list[PodSeen] = []
    for namespace, name, uid in objects:
        try:
            found += await pods_of(driver, namespace, name, uid)
        except NotThere:
            continue
    return found


def _write_down_each(cluster_id: UUID, told: Told) -> list[UUID]:
    done: list[UUID] = []

    def write_down(attempt_ids: Sequence[UUID]) -> int:
        _write_down(cluster_id, {id_: told[id_] for id_ in attempt_ids})
        done.extend(attempt_ids)
        return len(attempt_ids)

    in_parts("look", sorted(told), write_down, attempts_of=list)
    return done


def _write_down(cluster_id: UUID, told: Mapping[UUID, Sequence[PodSeen]]) -> None:
    """Records the current pods: missing ones are gone, and running ones were seen running now."""
    pods = [pod for of_attempt in told.values() for pod in of_attempt]
    there = {pod.uid for pod in pods}
    open_pods = PodRun.objects.filter(attempt_id__in=told, finished_at=None, is_gone=False)
    gone = sorted(set(open_pods.values_list("uid", flat=True)) - there)
    record_observations(cluster_id, Observations(pods=pods, gone_pods=gone, vanished_pods=gone))
    open_pods.filter(uid__in=there).update(observed_at=Now())
    Attempt.objects.filter(id__in=told).update(pods_told_at=Now())
