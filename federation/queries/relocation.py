"""What the gateway's own moves read: runs that would soon be stopped where they are, and where they would continue."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import groupby
from typing import Any, NamedTuple
from uuid import UUID

from django.db import connection

from clusters.queries.notices import clusters_with_notice
from federation.engine.relocation import (
    DRAINED_WITHIN,
    SPOT_NOTICE,
    TERMINATION_TAINTS,
    Cause,
    MovableRun,
    Notice,
)
from federation.models import LIVE_ATTEMPT_STATES
from federation.queries.attested import LACKS_MANY
from federation.queries.preemption import load_overdrawn
from federation.queries.queue import QUEUE_DEPTH, request_to_move
from federation.queries.quotes import load_state, put_in
from foundation.clock import database_now
from placement.answers.quotes import Quoter
from placement.fleet.fleet import FleetIndex
from placement.values.decisions import Placement, Wait
from placement.values.model import JobRequest, Snapshot
from placement.values.preemption import RunningJob

AHEAD = timedelta(days=1)
"""Maintenance windows that begin later stop nothing soon."""
MOST_RUNS = 1000

RUNS = f"""
SELECT attempt.id, job.id, attempt.cluster_id, attempt.started_at,
       attempt.started_at + make_interval(secs => coalesce(job.spec->>'estimated_seconds', job.spec->>'deadline_seconds', '0')::float8),
       saved.at, saved.count, (job.spec->>'checkpoint_seconds')::int,
       (SELECT count(*) FROM federation_move AS move
         WHERE move.job_id = job.id AND move.cause <> 'user' AND move.created_at > now() - interval '1 day'),
       (SELECT max(created_at) FROM federation_move AS move WHERE move.job_id = job.id),
       notice.cause, notice.at, now()
  FROM federation_attempt AS attempt
  JOIN federation_job AS job ON job.id = attempt.job_id
  JOIN clusters_cluster AS cluster ON cluster.id = attempt.cluster_id
 CROSS JOIN LATERAL (SELECT max(written_at) AS at, count(*) AS count
                       FROM federation_checkpoint WHERE attempt_id = attempt.id) AS saved
 CROSS JOIN LATERAL (
    SELECT 'drain' AS cause, now() + %(drained)s AS at WHERE cluster.wish = 'draining'
     UNION ALL
    SELECT 'maintenance', planned.starts_at
      FROM clusters_maintenancewindow AS planned
     WHERE planned.cluster_id = attempt.cluster_id AND planned.drain AND planned.cancelled_at IS NULL
       AND planned.starts_at > now() AND planned.starts_at < now() + %(ahead)s
       AND planned.id IN (SELECT window_id FROM federation_windows_met(attempt.id, planned.starts_at, NULL))
     UNION ALL
    SELECT 'spot', now() + %(spot)s
     WHERE EXISTS (SELECT FROM federation_podrun AS pod
                     JOIN clusters_node AS node ON node.cluster_id = attempt.cluster_id AND node.name = pod.node
                    CROSS JOIN LATERAL jsonb_array_elements(node.taints) AS taint
                    WHERE pod.attempt_id = attempt.id AND pod.finished_at IS NULL AND NOT pod.is_gone
                      AND taint->>'key' = ANY(%(taints)s))
 ) AS notice
 WHERE attempt.cluster_id = ANY(%(clusters)s) AND attempt.state = 'running' AND attempt.stop_requested_at IS NULL
   AND NOT {LACKS_MANY} AND attempt.started_at IS NOT NULL AND (%(only)s::uuid IS NULL OR attempt.id = %(only)s)
   AND job.state = 'running' AND job.suspend_requested_at IS NULL AND job.spec->>'moves' IN ('when_needed', 'when_cheaper')
   AND (saved.count > 0 OR job.spec->>'checkpoint_seconds' IS NOT NULL)
 ORDER BY attempt.id, notice.at LIMIT %(most)s
"""
RUNNING = """
SELECT cluster_id, count(*) FROM federation_attempt WHERE cluster_id = ANY(%s) AND state = ANY(%s) GROUP BY cluster_id
"""
LEAVING = """
SELECT attempt.cluster_id, count(*)
  FROM federation_move AS move JOIN federation_attempt AS attempt ON attempt.id = move.attempt_id
 WHERE attempt.cluster_id = ANY(%s) AND attempt.state = ANY(%s) AND move.cause <> 'user' GROUP BY attempt.cluster_id
"""
PENDING = """
SELECT job_id, cluster_id FROM federation_attempt WHERE state = ANY(%s) AND stop_reason = 'migrated' ORDER BY id LIMIT %s
"""


class _Row(NamedTuple):
    """The columns of RUNS: one for each notice of a run."""

    attempt_id: UUID
    job_id: UUID
    cluster_id: UUID
    started_at: datetime
    ends_at: datetime
    saved_at: datetime | None
    checkpoints: int
    checkpoint_seconds: int | None
    moves_today: int
    last_moved_at: datetime | None
    cause: str
    at: datetime
    now: datetime


@dataclass(frozen=True, slots=True)
class Threatened:
    """Runs with notices at the database's time, and of each of their clusters the number of live attempts, and of those that
    the gateway already moves away.
    """

    now: datetime
    runs: tuple[MovableRun, ...]
    running: Mapping[UUID, int]
    leaving: Mapping[UUID, int]


def threatened_runs(only: UUID | None = None) -> Threatened | None:
    """The runs, or that of the attempt `only`, of jobs that the gateway may move, and that would soon be stopped where they are;
    None if there are none. One query while no cluster, window or node announces that.
    """
    clusters = clusters_with_notice(AHEAD, TERMINATION_TAINTS)
    if not clusters:
        return None
    asked: dict[str, Any] = {
        "drained": DRAINED_WITHIN,
        "ahead": AHEAD,
        "spot": SPOT_NOTICE,
        "taints": list(TERMINATION_TAINTS),
        "clusters": clusters,
        "only": only,
        "most": MOST_RUNS,
    }
    with connection.cursor() as cursor:
        cursor.execute(RUNS, asked)
        rows = [_Row(*row) for row in cursor.fetchall()]
        if not rows:
            return None
        cursor.execute(RUNNING, [clusters, LIVE_ATTEMPT_STATES])
        running = dict(cursor.fetchall())
        cursor.execute(LEAVING, [clusters, LIVE_ATTEMPT_STATES])
        leaving = dict(cursor.fetchall())
    grouped = groupby(rows, key=lambda row: row.attempt_id)
    return Threatened(rows[0].now, tuple(_run(list(own)) for _, own in grouped), running, leaving)


def _run(rows: Sequence[_Row]) -> MovableRun:
    first = rows[0]
    return MovableRun(
        attempt_id=first.attempt_id,
        job_id=first.job_id,
        cluster_id=first.cluster_id,
        started_at=first.started_at,
        ends_at=first.ends_at,
        saved_at=first.saved_at,
        checkpoint_seconds=first.checkpoint_seconds or _seen_interval(first),
        notices=tuple(Notice(Cause(row.cause), row.at) for row in rows),
        moves_today=first.moves_today,
        last_moved_at=first.last_moved_at,
    )


def _seen_interval(row: _Row) -> int:
    """The mean time between the checkpoints that it reported."""
    assert row.saved_at is not None
    return max(1, int((row.saved_at - row.started_at).total_seconds()) // row.checkpoints)


class Destinations:
    """Where jobs would continue, as the next round would decide. Jobs that are being moved count as ahead in the queue, so that
    none gets room that another one was promised.
    """

    def __init__(self) -> None:
        with connection.cursor() as cursor:
            cursor.execute(PENDING, [LIVE_ATTEMPT_STATES, MOST_RUNS])
            pending = cursor.fetchall()
        self.loaded_at = database_now()
        moved = [request_to_move(self.loaded_at, job_id, cluster_id) for job_id, cluster_id in pending]
        self._snapshot = load_state(moved)
        self._overdrawn = load_overdrawn()
        self._index = FleetIndex()

    @property
    def snapshot(self) -> Snapshot:
        """What they are decided on."""
        return self._snapshot

    def place(self, run: RunningJob, user_id: UUID, request: JobRequest | None = None) -> Placement | Wait:
        """The place of the job if its run had ended now: on another cluster, or with this request. A place that was returned is
        taken from then on.
        """
        job = request or request_to_move(self._snapshot.now, run.job_id, run.cluster_id)
        quoter = Quoter(self._snapshot, self._index, depth=QUEUE_DEPTH)
        outcome = quoter.move(job, replace(run, user=user_id), self._overdrawn)
        if isinstance(outcome, Placement):
            self._snapshot = _with(self._snapshot, job)
        return outcome


def _with(snapshot: Snapshot, job: JobRequest) -> Snapshot:
    return replace(snapshot, queue=put_in(snapshot.queue, [job]))
