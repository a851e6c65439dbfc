"""Compares rows with clusters in both directions: it removes leftovers and zombies, and detects vanished objects. It
never reads objects without our install label, and every deletion names the uid that was seen.
"""

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple
from uuid import UUID

from django.conf import settings
from django.db import connection, transaction
from django.db.models.functions import Now

import clusters.operations
import clusters.queries
from clusters.drivers import ClusterDriver, DriverError, JobSeen
from clusters.drivers.connections import run
from clusters.engine.health import TOO_MANY_VANISHED, Reason, orphans_finding, unknown_runs_finding, vanished_finding
from clusters.models import Cluster
from federation.engine.lifecycle import KEPT_ATTEMPTS, AttemptState
from federation.engine.names import LABEL_ATTEMPT, LABEL_JOB, id_in
from federation.locks import lock_with_jobs
from federation.models import ATTEMPT_LIFECYCLE, Attempt, ClusterUpkeep, Job
from federation.queries.attested import Word, word_on_vanished
from federation.queries.due_clusters import DueCluster
from federation.queries.released_objects import ReleasedObject, released_objects
from federation.queries.standstill import answered_for_at, circumstances
from foundation.clock import database_now
from foundation.host import host
from foundation.threads import put_session_aside
from foundation.transactions import retried
from foundation.turns import Turn, endless_turn
from placement.values.reason_codes import ReasonCode

from . import transitions
from .attestation import end_as_lost
from .endings import end_attempts
from .evidence import object_of, require_same_cluster
from .histories import watch_history
from .left_preparations import separated
from .observation import Observations, record_observations, what_vanished
from .restoration import made_at, take_in
from .rounds import Brought, Rounds
from .upkeep import ask_for_reconciliation, give_up_comparison, postpone_comparison

logger = logging.getLogger(__name__)
LIST_SECONDS = 60.0
PERIOD_SECONDS = 60.0
CLAIM_SECONDS = 3 * LIST_SECONDS
MOST_ORPHANS = 20
MOST_ORPHANS_SHARE = 0.05
MOST_VANISHED = 3
MOST_VANISHED_SHARE = 0.05


@dataclass(frozen=True, slots=True)
class _Row:
    attempt_id: UUID
    cluster_id: UUID
    state: AttemptState
    uids: frozenset[str]
    ended: frozenset[str]
    """The uids of its objects whose outcome is recorded."""
    finished_at: datetime | None
    settled_at: datetime | None
    released_at: datetime | None


def reconcile_clusters() -> int:
    """The number of clusters compared: all that can be listed, due or not."""
    ask_for_reconciliation()
    return compare_clusters()


def compare_clusters(turn: Turn | None = None) -> int:
    """The number of due clusters compared. A cluster that cannot be listed waits for the next time."""
    watch_history()
    return ROUNDS.go(turn or endless_turn())


DUE = """
SELECT cluster.id, coalesce(upkeep.slow_compare_until > now(), false)
  FROM clusters_cluster AS cluster
  LEFT JOIN federation_clusterupkeep AS upkeep ON upkeep.cluster_id = cluster.id
 WHERE cluster.silent_since IS NULL AND cluster.removed_at IS NULL AND coalesce(upkeep.compare_due_at <= now(), true)
"""
CLAIM = """
INSERT INTO federation_clusterupkeep AS upkeep (cluster_id, compare_due_at, compare_claimed_until)
VALUES (%s, now() + make_interval(secs => %s), now() + make_interval(secs => %s))
    ON CONFLICT (cluster_id) DO UPDATE
   SET compare_due_at = excluded.compare_due_at, compare_claimed_until = excluded.compare_claimed_until
 WHERE upkeep.compare_due_at <= now()
"""


def _due_clusters() -> list[DueCluster]:
    with connection.cursor() as cursor:
        cursor.execute(DUE)
        return [DueCluster._make(row) for row in cursor.fetchall()]


def _is_claimed(cluster_id: UUID) -> bool:
    return ClusterUpkeep.objects.filter(cluster_id=cluster_id, compare_claimed_until__gt=Now()).exists()


def _compare(cluster: DueCluster) -> Brought:
    """Compares one cluster. A new list that arrives meanwhile makes the cluster due again."""
    cluster_id = cluster.id
    with connection.cursor() as cursor:
        cursor.execute(CLAIM, [cluster_id, _next_in_seconds(), CLAIM_SECONDS])
        if not cursor.rowcount:
            return Brought(0, is_answering=True)
    try:
        is_compared = _reconcile(cluster)
    except Exception as error:
        give_up_comparison(cluster_id)
        if not isinstance(error, DriverError):
            raise
        logger.warning("cluster %s could not be compared: %s", cluster_id, error.reason)
        return Brought(0, is_answering=False)
    if is_compared:
        ClusterUpkeep.objects.filter(cluster_id=cluster_id).update(compare_claimed_until=None, compared_at=Now())
    else:
        postpone_comparison(cluster_id)
    return Brought(int(is_compared), is_answering=True)


def _next_in_seconds() -> float:
    """At most a period: clusters that were compared together, as after a restart, soon are not any more."""
    return PERIOD_SECONDS * host().chance().uniform(0.6, 1)


ROUNDS = Rounds("compare", "reconcile", _due_clusters, _compare, _is_claimed)


def _reconcile(cluster: DueCluster) -> bool:
    """Whether the cluster was compared: not while a standstill has to begin or has just begun, nor if one began meanwhile."""
    cluster_id, listed_at, then = cluster.id, database_now(), circumstances()
    if then.is_changed or then.is_settling:
        return False
    driver = clusters.queries.driver_of(cluster_id)
    compared = _compared(cluster_id)
    if cluster.is_slow:
        put_session_aside()
    seen, left = separated(run(_list(driver, compared.identity), timeout_seconds=LIST_SECONDS))
    rows = _rows(seen)
    if not then.is_still(circumstances()):
        return False
    if then.standstill_id is not None:
        gone = _gone_in_standstill(compared, driver, seen, listed_at)
        if (inert := take_in(then, cluster_id, seen, len(gone))) is None:
            return False
        run(_delete_all(driver, inert), timeout_seconds=LIST_SECONDS)
        record_observations(cluster_id, Observations(jobs=seen))
        return not inert or then.needs_operator
    if news := [job for job in seen if _is_news(job, rows)]:
        record_observations(cluster_id, Observations(jobs=news))
    vanished = _notice_vanished(compared, driver, seen, listed_at)
    unwanted, unknown = _unwanted(cluster_id, seen, rows, listed_at)
    # before the deletions, which may take longer than the cluster answers: a brake that is not recorded holds nothing
    clusters.operations.record_comparison(cluster_id, [*vanished, *unknown])
    run(_delete_all(driver, [*unwanted, *left]), timeout_seconds=LIST_SECONDS)
    _confirm_removed(cluster_id, seen, listed_at)
    return True


def _gone_in_standstill(
    cluster: "_Compared", driver: ClusterDriver, seen: Sequence[JobSeen], listed_at: datetime
) -> list[UUID]:
    """The attempts whose released object is gone, as the cluster confirms: nothing ends for it in a standstill."""
    uids = {job.uid for job in seen}
    absent = [row for row in released_objects(cluster.id, listed_at) if row.uid not in uids]
    asked = run(_ask(driver, cluster.identity, absent), timeout_seconds=LIST_SECONDS) if absent else []
    return [row.attempt_id for row, found in asked if found is None]


class _Compared(NamedTuple):
    """A cluster that is compared; `lacks_many`: an earlier comparison found so, and no later one the contrary."""

    id: UUID
    identity: str
    lacks_many: bool


def _compared(cluster_id: UUID) -> _Compared:
    identity, reasons = Cluster.objects.values_list("identity", "reasons").get(id=cluster_id)
    return _Compared(cluster_id, identity, any(reason["code"] == TOO_MANY_VANISHED for reason in reasons))


async def _list(driver: ClusterDriver, identity: str) -> Sequence[JobSeen]:
    """All our Jobs there. Raises Ambiguous if another cluster answers: its missing objects say nothing about ours."""
    await require_same_cluster(driver, identity)
    return await driver.list_jobs()


def _rows(seen: Sequence[JobSeen]) -> Mapping[UUID, _Row]:
    ids = {id_ for job in seen if (id_ := id_in(job.labels, LABEL_ATTEMPT))}
    found = Attempt.objects.filter(id__any_of=list(ids)).prefetch_related("remote_objects")
    return {
        a.id: _Row(
            a.id,
            a.cluster_id,
            AttemptState(a.state),
            frozenset(o.uid for o in a.remote_objects.all()),
            frozenset(o.uid for o in a.remote_objects.all() if o.outcome),
            a.finished_at,
            a.settled_at,
            a.released_at,
        )
        for a in found
    }


def _is_news(job: JobSeen, rows: Mapping[UUID, _Row]) -> bool:
    """Whether something may have to be recorded: Jobs are listed for as long as they are kept after their end."""
    row = rows.get(id_in(job.labels, LABEL_ATTEMPT) or UUID(int=0))
    return row is None or row.finished_at is None or not (job.uid in row.ended or not job.outcome)


def _unwanted(
    cluster_id: UUID, seen: Sequence[JobSeen], rows: Mapping[UUID, _Row], at: datetime
) -> tuple[list[JobSeen], list[Reason]]:
    """The objects to delete: those of ended attempts after their retention, zombies, and orphans that do not run (unless
    suspiciously many). Also why others are left alone.
    """
    leftovers, orphans = [], []
    running = _unknown_runs(cluster_id, seen, rows)
    for job in seen:
        row = rows.get(id_in(job.labels, LABEL_ATTEMPT) or UUID(int=0))
        if job.is_terminating or (row is None and job.uid in running):
            continue
        if row is None or row.cluster_id != cluster_id:
            orphans.append(job)
        elif _is_leftover(job, row, at):
            leftovers.append(job)
    found = [unknown_runs_finding(len(running))] if running else []
    if len(orphans) > max(MOST_ORPHANS, MOST_ORPHANS_SHARE * len(seen)):
        return leftovers, [*found, orphans_finding(len(orphans), len(seen))]
    return leftovers + orphans, found


def _unknown_runs(cluster_id: UUID, seen: Sequence[JobSeen], rows: Mapping[UUID, _Row]) -> set[str]:
    """Uids of running objects of unknown attempts. They exist if the database lost commits, and are left to people.

    Deleted are only those of unknown jobs that an operator has answered for: they were made before dispatch was opened
    after a standstill in which this cluster was compared.
    """
    strange = [
        job
        for job in seen
        if not (job.suspended or job.outcome or job.is_terminating) and id_in(job.labels, LABEL_ATTEMPT) not in rows
    ]
    if not strange:
        return set()
    job_ids = {id_ for job in strange if (id_ := id_in(job.labels, LABEL_JOB))}
    known = set(Job.objects.filter(id__in=job_ids).values_list("id", flat=True))
    answered_at = answered_for_at(cluster_id)
    return {
        job.uid
        for job in strange
        if id_in(job.labels, LABEL_JOB) in known
        or answered_at is None
        or made_at(id_in(job.labels, LABEL_ATTEMPT) or UUID(int=0), answered_at) >= answered_at
    }


def _is_leftover(job: JobSeen, row: _Row, at: datetime) -> bool:
    if row.state not in ATTEMPT_LIFECYCLE.terminal:
        return False
    if row.state not in KEPT_ATTEMPTS or (
        job.uid in row.uids and not job.outcome and not job.suspended and _is_old(row, at, 60)
    ):
        return True
    return row.settled_at is not None and _is_old(row, at, settings.KEEP_FINISHED_SECONDS)


def _is_old(row: _Row, at: datetime, seconds: int) -> bool:
    return row.finished_at is not None and at - row.finished_at > timedelta(seconds=seconds)


async def _delete_all(driver: ClusterDriver, jobs: Sequence[JobSeen]) -> None:
    async def delete(job: JobSeen) -> None:
        try:
            await driver.delete_job(job.namespace, job.name, job.uid)
        except DriverError as error:
            logger.info("%s/%s was not deleted: %s", job.namespace, job.name, error.reason)

    await asyncio.gather(*(delete(job) for job in jobs))


def _notice_vanished(
    cluster: _Compared, driver: ClusterDriver, seen: Sequence[JobSeen], listed_at: datetime
) -> list[Reason]:
    """Ends attempts that were released before the list, are absent from it, and whose object the cluster says is gone.

    If suspiciously many are absent (a control plane restored from a backup), or all of several are gone, it ends none
    without an attestation, and returns why. While that stands against the cluster, whatever else is released there, none
    ends without one, nor is any stopped there unless a user asks for it.
    """
    uids = {job.uid for job in seen}
    rows = released_objects(cluster.id, listed_at)
    absent = [row for row in rows if row.uid not in uids]
    word: Word | None = None
    if _are_too_many(absent, rows):
        word = word_on_vanished(cluster.id)
        if word is None:
            return [vanished_finding(len(absent), len(rows))]
    asked = run(_ask(driver, cluster.identity, _covered(absent, word)), timeout_seconds=LIST_SECONDS)
    if unlisted := [seen for _, seen in asked if seen is not None]:
        # Another client took our label away: no list or watch shows them any more.
        record_observations(cluster.id, Observations(jobs=unlisted))
    gone = [row for row, seen in asked if seen is None]
    if word is None and gone and (cluster.lacks_many or _are_all_of_several(gone, rows)):
        word = word_on_vanished(cluster.id)
        if word is None:
            return [vanished_finding(len(gone), len(rows))]
    ending = _covered(gone, word)
    if ending:
        _end_vanished(cluster.id, ending, rows, word)
    left = [row for row in absent if word is not None and row.released_at >= word.at]
    ended = set(ending)
    others = [row for row in rows if row not in ended]
    is_left = _are_too_many(left, others) or _are_all_of_several(left, others)
    return [vanished_finding(len(left), len(others))] if is_left else []


def _are_too_many(absent: Sequence[ReleasedObject], rows: Sequence[ReleasedObject]) -> bool:
    """Whether a control plane probably forgot them; the objects of one run are deleted together by its users too."""
    return len(absent) > max(MOST_VANISHED, MOST_VANISHED_SHARE * len(rows)) and len(_attempts(absent)) > 1


def _are_all_of_several(absent: Sequence[ReleasedObject], rows: Sequence[ReleasedObject]) -> bool:
    return len(_attempts(absent)) > 1 and _attempts(absent) == _attempts(rows)


def _attempts(rows: Iterable[ReleasedObject]) -> set[UUID]:
    return {row.attempt_id for row in rows}


def _covered(rows: Sequence[ReleasedObject], word: Word | None) -> Sequence[ReleasedObject]:
    """Those that an attestation is about; all if there is none."""
    return rows if word is None else [row for row in rows if row.released_at < word.at]


@retried
def _end_vanished(
    cluster_id: UUID, gone: Sequence[ReleasedObject], rows: Sequence[ReleasedObject], word: Word | None
) -> None:
    """Ends them for their deleted object, or as lost if an attestation covers all that is left of them."""
    ids = _attempts(gone)
    with transaction.atomic():
        attempts = lock_with_jobs(ids)
        if word is None:
            vanished = what_vanished(ids)
            end_attempts(vanished.endings)
            transitions.stop_the_rest(vanished.broken)
            return
        deleted = set(gone)
        broken = ids & _attempts(row for row in rows if row not in deleted)
        whole = [one for one in attempts.values() if one.id not in broken and one.finished_at is None]
        end_as_lost(whole, Cluster.objects.get(id=cluster_id), ReasonCode.RUN_DEAD, word.message)
        transitions.stop_the_rest(broken)


async def _ask(
    driver: ClusterDriver, identity: str, absent: Sequence[ReleasedObject]
) -> list[tuple[ReleasedObject, JobSeen | None]]:
    """What each of them is, requested by its uid; None if, as the cluster confirms, it does not exist."""
    found = await asyncio.gather(*(object_of(driver, identity, row.namespace, row.name, row.uid) for row in absent))
    return list(zip(absent, found, strict=True))


def _confirm_removed(cluster_id: UUID, seen: Sequence[JobSeen], listed_at: datetime) -> None:
    present = {id_ for job in seen if (id_ := id_in(job.labels, LABEL_ATTEMPT))}
    Attempt.objects.filter(
        cluster_id=cluster_id, removed_at=None, settled_at__isnull=False, finished_at__lt=listed_at
    ).exclude(id__in=present).update(removed_at=Now())
