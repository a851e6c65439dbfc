"""Rows against clusters, both ways: leftovers are removed, zombies too, and what vanished is noticed.

Nothing without our install label is ever looked at, and every deletion names the uid that was seen.
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from django.conf import settings
from django.db import transaction
from django.db.models.functions import Now

import clusters.operations
import clusters.queries
from clusters.drivers import ClusterDriver, DriverError, JobSeen
from clusters.drivers.connections import run
from clusters.models import Cluster
from federation.engine.lifecycle import AttemptState
from federation.engine.names import LABEL_ATTEMPT
from federation.models import ATTEMPT_LIFECYCLE, Attempt, RemoteObject
from foundation import clock
from foundation.outbox import announce

from .endings import end_attempts
from .observation import Observations, record_observations, vanished_endings

logger = logging.getLogger(__name__)
LIST_SECONDS = 60.0
MOST_ORPHANS = 20
MOST_ORPHANS_SHARE = 0.05
KEPT = {AttemptState.SUCCEEDED, AttemptState.FAILED}
"""Ends whose objects stay for a while, so that people can read logs; all others are removed at once."""


@dataclass(frozen=True, slots=True)
class _Row:
    attempt_id: UUID
    cluster_id: UUID
    state: AttemptState
    uids: frozenset[str]
    finished_at: datetime | None
    settled_at: datetime | None
    released_at: datetime | None


def ask_for_reconciliation() -> None:
    """Wakes the reconciler before its time."""
    with transaction.atomic():
        announce("reconcile")


def reconcile_clusters() -> int:
    """The number of clusters compared. A cluster that cannot be listed is left for the next round."""
    compared = 0
    for cluster_id in (
        Cluster.objects.filter(silent_since=None, removed_at=None).order_by("id").values_list("id", flat=True)
    ):
        try:
            _reconcile(cluster_id)
            compared += 1
        except DriverError as error:
            logger.warning("cluster %s could not be compared: %s", cluster_id, error.reason)
    return compared


def _reconcile(cluster_id: UUID) -> None:
    listed_at = clock.now()
    driver = clusters.queries.driver_of(cluster_id)
    seen = run(driver.list_jobs(), timeout_seconds=LIST_SECONDS)
    rows = _rows(seen)
    record_observations(cluster_id, Observations(jobs=seen))
    _notice_vanished(cluster_id, seen, listed_at)
    run(_delete_all(driver, _unwanted(cluster_id, seen, rows)), timeout_seconds=LIST_SECONDS)
    _confirm_removed(cluster_id, seen, listed_at)


def _attempt_of(job: JobSeen) -> UUID | None:
    try:
        return UUID(job.labels.get(LABEL_ATTEMPT, ""))
    except ValueError:
        return None


def _rows(seen: Sequence[JobSeen]) -> Mapping[UUID, _Row]:
    ids = {attempt_id for job in seen if (attempt_id := _attempt_of(job))}
    found = Attempt.objects.filter(id__in=ids).prefetch_related("remote_objects")
    return {
        a.id: _Row(
            a.id,
            a.cluster_id,
            AttemptState(a.state),
            frozenset(o.uid for o in a.remote_objects.all()),
            a.finished_at,
            a.settled_at,
            a.released_at,
        )
        for a in found
    }


def _unwanted(cluster_id: UUID, seen: Sequence[JobSeen], rows: Mapping[UUID, _Row]) -> list[JobSeen]:
    """What must go: objects of ended attempts whose time is up, zombies, and orphans (unless suspiciously many)."""
    leftovers, orphans = [], []
    for job in seen:
        row = rows.get(_attempt_of(job) or UUID(int=0))
        if job.is_terminating:
            continue
        if row is None or row.cluster_id != cluster_id:
            orphans.append(job)
        elif _is_leftover(job, row):
            leftovers.append(job)
    if len(orphans) > max(MOST_ORPHANS, MOST_ORPHANS_SHARE * len(seen)):
        clusters.operations.record_event(
            cluster_id,
            "too_many_orphans",
            f"{len(orphans)} of {len(seen)} objects belong to attempts this gateway does not know (an old backup?). None was deleted.",
        )
        return leftovers
    return leftovers + orphans


def _is_leftover(job: JobSeen, row: _Row) -> bool:
    if row.state not in ATTEMPT_LIFECYCLE.terminal:
        return False
    if row.state not in KEPT or (job.uid in row.uids and not job.outcome and not job.suspended and _is_old(row, 60)):
        return True
    return row.settled_at is not None and _is_old(row, settings.KEEP_FINISHED_SECONDS)


def _is_old(row: _Row, seconds: int) -> bool:
    return row.finished_at is not None and clock.now() - row.finished_at > timedelta(seconds=seconds)


async def _delete_all(driver: ClusterDriver, jobs: Sequence[JobSeen]) -> None:
    async def delete(job: JobSeen) -> None:
        try:
            await driver.delete_job(job.namespace, job.name, job.uid)
        except DriverError as error:
            logger.info("%s/%s was not deleted: %s", job.namespace, job.name, error.reason)

    await asyncio.gather(*(delete(job) for job in jobs))


def _notice_vanished(cluster_id: UUID, seen: Sequence[JobSeen], listed_at: datetime) -> None:
    """Attempts released before the list was made, and absent from it, have lost their object."""
    uids = {job.uid for job in seen}
    released = RemoteObject.objects.filter(
        attempt__cluster_id=cluster_id, attempt__finished_at=None, attempt__released_at__lt=listed_at
    ).exclude(uid="")
    absent = {attempt_id for attempt_id, uid in released.values_list("attempt_id", "uid") if uid not in uids}
    if absent:
        with transaction.atomic():
            end_attempts(vanished_endings(absent))


def _confirm_removed(cluster_id: UUID, seen: Sequence[JobSeen], listed_at: datetime) -> None:
    present = {attempt_id for job in seen if (attempt_id := _attempt_of(job))}
    Attempt.objects.filter(
        cluster_id=cluster_id, removed_at=None, settled_at__isnull=False, finished_at__lt=listed_at
    ).exclude(id__in=present).update(removed_at=Now())
