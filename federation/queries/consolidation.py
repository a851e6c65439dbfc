"""What consolidation reads: running jobs that may move so that a larger one fits, and the places that plans keep."""

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import NamedTuple
from uuid import UUID

from django.conf import settings
from django.db import connection

from federation.engine.relocation import REST
from federation.queries.in_use import ALL, InUse
from federation.queries.preemption import load_overdrawn, load_running
from federation.queries.queue import requests_again
from placement.fleet.policies import PolicyBook
from placement.values.consolidation import Consolidating, Movable
from placement.values.model import Snapshot
from placement.values.preemption import RoomClaim, RunningJob, organisation_of

MOST_MOVABLE = 2000
HIGHEST = 2**31 - 1
PLAN_REST = timedelta(minutes=30)
"""How long no new plan is made for a job that did not start in time after an earlier one."""

PLAN_CLAIMS = """
SELECT plan.id, plan.beneficiary_id, plan.cluster_id, cluster.name, plan.nodes::text, plan.deadline_at, moves.made, moves.ended,
       plan.amounts::text, round(plan.lost_gpu_seconds)::int, 'consolidation' AS kind
  FROM federation_consolidation AS plan
  JOIN clusters_cluster AS cluster ON cluster.id = plan.cluster_id
 CROSS JOIN LATERAL (SELECT count(*) AS made, count(attempt.finished_at) AS ended
                       FROM federation_move AS move JOIN federation_attempt AS attempt ON attempt.id = move.attempt_id
                      WHERE move.consolidation_id = plan.id) AS moves
 WHERE plan.ended_at IS NULL AND plan.deadline_at > %(now)s
 UNION ALL
SELECT plan.id, move.job_id, move.expected_id, cluster.name, move.nodes::text, plan.deadline_at, 0, 0, move.amounts::text, 0,
       'moved'
  FROM federation_consolidation AS plan
  JOIN federation_move AS move ON move.consolidation_id = plan.id
  JOIN federation_attempt AS attempt ON attempt.id = move.attempt_id
  JOIN federation_job AS job ON job.id = move.job_id
  JOIN clusters_cluster AS cluster ON cluster.id = move.expected_id
 WHERE plan.deadline_at > %(now)s AND (attempt.finished_at IS NULL OR job.state = 'queued')
 ORDER BY 1, 11, 2
"""
MOVABLE = """
SELECT attempt.id, job.created_by_id, coalesce(job.spec->>'moves', 'never') = 'when_needed',
       job.spec->>'checkpoint_seconds' IS NOT NULL, saved.made, saved.anywhere, saved.flavors, moved.today, moved.last_at
  FROM federation_attempt AS attempt
  JOIN federation_job AS job ON job.id = attempt.job_id
 CROSS JOIN LATERAL (
    SELECT count(*) AS made, coalesce(bool_or(checkpoint.flavors = '[]'), false) AS anywhere,
           array(SELECT DISTINCT resumable.name FROM federation_checkpoint AS one
                   JOIN federation_attempt AS own ON own.id = one.attempt_id
                  CROSS JOIN LATERAL jsonb_array_elements_text(one.flavors) AS resumable(name)
                  WHERE own.job_id = job.id ORDER BY 1) AS flavors
      FROM federation_checkpoint AS checkpoint
      JOIN federation_attempt AS its ON its.id = checkpoint.attempt_id WHERE its.job_id = job.id) AS saved
 CROSS JOIN LATERAL (
    SELECT count(*) FILTER (WHERE cause <> 'user' AND created_at > now() - interval '1 day') AS today, max(created_at) AS last_at
      FROM federation_move AS move WHERE move.job_id = job.id) AS moved
 WHERE attempt.id = ANY(%s)
"""
BUSY = "SELECT cluster_id FROM federation_consolidation WHERE ended_at IS NULL"
MOVED_LATELY = """
SELECT attempt.cluster_id, count(*)
  FROM federation_move AS move JOIN federation_attempt AS attempt ON attempt.id = move.attempt_id
 WHERE move.cause = 'consolidation' AND move.created_at > now() - interval '1 hour' GROUP BY attempt.cluster_id
"""
RESTING = """
SELECT beneficiary_id FROM federation_consolidation WHERE created_at > now() - make_interval(secs => %s) OR ended_at IS NULL
"""


class _Row(NamedTuple):
    """The columns of MOVABLE."""

    attempt_id: UUID
    user_id: UUID
    is_willing: bool
    has_interval: bool
    checkpoints: int
    is_resumed_anywhere: bool
    flavors: Sequence[str]
    moves_today: int
    last_moved_at: datetime | None


def load_plan_claims(now: datetime) -> tuple[RoomClaim, ...]:
    """What plans keep at this time, for the jobs that will fit and for those that move. One query."""
    with connection.cursor() as cursor:
        cursor.execute(PLAN_CLAIMS, {"now": now})
        rows = cursor.fetchall()
    return tuple(
        RoomClaim(
            plan, job, on, cluster, tuple(json.loads(nodes)), until_at, moves, ended,
            amounts=json.loads(amounts), kind=kind, lost_seconds=lost,
        )
        for plan, job, on, cluster, nodes, until_at, moves, ended, amounts, lost, kind in rows
    )  # fmt: skip


def with_consolidation(snapshot: Snapshot, in_use: InUse = ALL) -> Snapshot:
    """The snapshot with what plans keep; and with what may be moved, if some job that policies allow moves for has waited longer
    than the patience of the cycle.
    """
    if in_use.consolidations and (claims := load_plan_claims(snapshot.now)):
        snapshot = replace(snapshot, claims=(*snapshot.claims, *claims))
    share = float(settings.CONSOLIDATION_SHARE)
    if not share or not settings.CONSOLIDATION_MOST_MOVES:
        return snapshot
    organisations = _organisations(snapshot)
    running = load_running(organisations, HIGHEST, is_reclaiming=True)[:MOST_MOVABLE] if organisations else ()
    movable = _movable(running)
    if not movable:
        return snapshot
    with connection.cursor() as cursor:
        cursor.execute(BUSY)
        busy = frozenset(cluster_id for (cluster_id,) in cursor.fetchall())
        cursor.execute(MOVED_LATELY)
        left = {on: max(0, settings.CONSOLIDATION_HOURLY_MOVES - made) for on, made in cursor.fetchall()}
        cursor.execute(RESTING, [PLAN_REST.total_seconds()])
        resting = frozenset(job_id for (job_id,) in cursor.fetchall())
    most = min(settings.CONSOLIDATION_MOST_MOVES, settings.CONSOLIDATION_HOURLY_MOVES)
    rules = Consolidating(share, most, movable, busy, left, resting)
    again = requests_again(snapshot.now, [one.run.job_id for one in movable])
    overdrawn = snapshot.overdrawn or load_overdrawn()
    return replace(snapshot, consolidation=rules, returning=again, overdrawn=overdrawn)


def _organisations(snapshot: Snapshot) -> list[str]:
    """Those with a job for which others may move, and that has waited for long."""
    if not any(one.consolidation not in ("", "never") for one in snapshot.policies):
        return []
    book, since = PolicyBook(snapshot.policies), snapshot.now - timedelta(seconds=snapshot.patience_seconds)
    found = {
        organisation_of(job.tenant_path)
        for job in snapshot.queue
        if job.submitted_at is not None
        and job.submitted_at < since
        and book.of(job.tenant_path).consolidation != "never"
    }
    return sorted(found)


def _movable(running: Sequence[RunningJob]) -> tuple[Movable, ...]:
    if not running:
        return ()
    by_attempt = {run.attempt_id: run for run in running}
    with connection.cursor() as cursor:
        cursor.execute(MOVABLE, [list(by_attempt)])
        rows = {row.attempt_id: row for row in (_Row(*one) for one in cursor.fetchall())}
    return tuple(_as_movable(run, rows[attempt_id]) for attempt_id, run in by_attempt.items() if attempt_id in rows)


def _as_movable(run: RunningJob, row: _Row) -> Movable:
    saves = bool(row.checkpoints) or row.has_interval
    return Movable(
        replace(run, user=row.user_id),
        is_willing=row.is_willing,
        saves_work=saves,
        flavors=() if row.is_resumed_anywhere or not row.checkpoints else tuple(row.flavors),
        moves_today=row.moves_today,
        rests_until=None if row.last_moved_at is None else row.last_moved_at + REST,
    )
