"""What consolidation reads: running jobs that may move so that a larger one fits, and the places that plans keep."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
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
from foundation import clock
from foundation.caches import reset_with
from placement.fleet.policies import PolicyBook
from placement.values.consolidation import Consolidating, Movable, MovedForOthers
from placement.values.model import JobRequest, Snapshot
from placement.values.preemption import Leaving, RoomClaim, RunningJob, organisation_of
from placement.values.sizes import running_size

MOST_MOVABLE = 2000
HIGHEST = 2**31 - 1
PLAN_REST = timedelta(minutes=30)
"""How long no new plan is made for a job that did not start in time after an earlier one."""

PLAN_CLAIMS = """
SELECT plan.id, plan.beneficiary_id, plan.cluster_id, cluster.name, plan.nodes::text, plan.deadline_at, moves.made, moves.ended,
       plan.amounts::text, round(plan.lost_gpu_seconds)::int, 'consolidation' AS kind, '' AS path, '' AS origin, NULL AS held
  FROM federation_consolidation AS plan
  JOIN clusters_cluster AS cluster ON cluster.id = plan.cluster_id
 CROSS JOIN LATERAL (SELECT count(*) AS made, count(attempt.finished_at) AS ended
                       FROM federation_move AS move JOIN federation_attempt AS attempt ON attempt.id = move.attempt_id
                      WHERE move.consolidation_id = plan.id) AS moves
 WHERE plan.ended_at IS NULL AND plan.deadline_at > %(now)s
 UNION ALL
SELECT plan.id, move.job_id, move.expected_id, cluster.name, move.nodes::text, plan.deadline_at, 0, 0, move.amounts::text, 0,
       'moved', tenant.path, hold.cluster_name, hold.amounts::text
  FROM federation_consolidation AS plan
  JOIN federation_move AS move ON move.consolidation_id = plan.id
  JOIN federation_attempt AS attempt ON attempt.id = move.attempt_id
  JOIN federation_job AS job ON job.id = move.job_id
  JOIN clusters_cluster AS cluster ON cluster.id = move.expected_id
  LEFT JOIN quotas_hold AS hold ON hold.holder_id = attempt.id AND attempt.finished_at IS NULL
  LEFT JOIN tenancy_tenant AS tenant ON tenant.id = hold.tenant_id
 WHERE plan.deadline_at > %(now)s AND job.state NOT IN ('cancelling', 'cancelled', 'suspended') AND job.suspend_requested_at IS NULL
   AND (attempt.finished_at IS NULL OR job.state = 'queued' AND job.attempts_made = attempt.number)
 ORDER BY 1, 11, 2
"""
MOVABLE = """
SELECT attempt.id, job.created_by_id, coalesce(job.spec->>'moves', 'never') <> 'never',
       job.spec->>'checkpoint_seconds' IS NOT NULL, newest.flavors::text, moved.today, moved.last_at
  FROM federation_attempt AS attempt
  JOIN federation_job AS job ON job.id = attempt.job_id
  LEFT JOIN LATERAL (
    SELECT checkpoint.flavors FROM federation_checkpoint AS checkpoint
      JOIN federation_attempt AS its ON its.id = checkpoint.attempt_id
     WHERE its.job_id = job.id ORDER BY its.number DESC, checkpoint.sequence DESC LIMIT 1) AS newest ON true
 CROSS JOIN LATERAL (
    SELECT count(*) FILTER (WHERE cause <> 'user' AND created_at > now() - interval '1 day') AS today, max(created_at) AS last_at
      FROM federation_move AS move WHERE move.job_id = job.id) AS moved
 WHERE attempt.id = ANY(%s) AND job.stop_wish IS NULL
"""
BUSY = "SELECT cluster_id FROM federation_consolidation WHERE ended_at IS NULL"
MOVED_LATELY = """
SELECT attempt.cluster_id, count(*)
  FROM federation_consolidation AS plan
  JOIN federation_move AS move ON move.consolidation_id = plan.id
  JOIN federation_attempt AS attempt ON attempt.id = move.attempt_id
 WHERE plan.deadline_at > now() - interval '1 hour' AND move.created_at > now() - interval '1 hour' GROUP BY attempt.cluster_id
"""
MOVED_FOR_OTHERS = """
SELECT job.created_by_id, tenant.path,
       count(*) FILTER (WHERE larger.created_by_id <> job.created_by_id), count(*) FILTER (WHERE larger.tenant_id <> job.tenant_id)
  FROM federation_consolidation AS plan
  JOIN federation_move AS move ON move.consolidation_id = plan.id
  JOIN federation_job AS job ON job.id = move.job_id
  JOIN federation_job AS larger ON larger.id = plan.beneficiary_id
  JOIN tenancy_tenant AS tenant ON tenant.id = job.tenant_id
 WHERE plan.deadline_at > now() - interval '1 day' AND move.created_at > now() - interval '1 day'
 GROUP BY job.created_by_id, tenant.path
"""
RESTING = """
SELECT beneficiary_id FROM federation_consolidation
 WHERE deadline_at > now() - make_interval(secs => %(rest)s) AND created_at > now() - make_interval(secs => %(rest)s)
    OR ended_at IS NULL
"""


SHORT = 0.2
"""After a search in vain that took less than this, in seconds, the next round searches again."""
TIMES = 10
"""After a longer one, none follows for this many times what it took."""


class Searches:
    """What this process remembers of its last search, if that was in vain. So long searches take a tenth of its time at most."""

    def __init__(self) -> None:
        self._until, self._began = 0.0, 0.0
        self._why_not: Mapping[UUID, str] = {}

    @property
    def are_resting(self) -> bool:
        """Whether no search follows yet."""
        return clock.monotonic() < self._until

    @property
    def why_not(self) -> Mapping[UUID, str]:
        """What the last search said of jobs, while no other follows."""
        return self._why_not if self.are_resting else {}

    def begin(self) -> None:
        """A search begins, with what it reads."""
        self._began = clock.monotonic()

    def end(self, why_not: Mapping[UUID, str], *, in_vain: bool) -> None:
        """It has ended."""
        now = clock.monotonic()
        took = now - self._began
        self._until = now + TIMES * took if in_vain and took >= SHORT else 0.0
        self._why_not = why_not

    def forget(self) -> None:
        """Makes the next round search."""
        self._until, self._why_not = 0.0, {}


searches = Searches()
reset_with(searches.forget)


class _Row(NamedTuple):
    """The columns of MOVABLE."""

    attempt_id: UUID
    user_id: UUID
    is_willing: bool
    has_interval: bool
    flavors: str | None
    """Where its newest checkpoint can be resumed, as JSON; None if it has reported none."""
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
            leaving=None if held is None else Leaving(path, origin, json.loads(held)),
        )
        for plan, job, on, cluster, nodes, until_at, moves, ended, amounts, lost, kind, path, origin, held in rows
    )  # fmt: skip


def with_consolidation(snapshot: Snapshot, in_use: InUse = ALL) -> Snapshot:
    """The snapshot with what plans keep; and with what may be moved, if some job that policies allow moves for has waited longer
    than the patience of the cycle, and no long search has just been in vain.
    """
    snapshot = with_plan_claims(snapshot, in_use)
    share = float(settings.CONSOLIDATION_SHARE)
    if not share or not settings.CONSOLIDATION_MOST_MOVES or searches.are_resting:
        return snapshot
    searches.begin()
    waiting = _waiting(snapshot)
    resting = _resting() if waiting else frozenset()
    organisations = sorted({organisation_of(job.tenant_path) for job in waiting if job.id not in resting})
    running = load_running(organisations, HIGHEST, is_reclaiming=True)[:MOST_MOVABLE] if organisations else ()
    movable = _movable(running)
    if not movable:
        return snapshot
    with connection.cursor() as cursor:
        cursor.execute(BUSY)
        busy = frozenset(cluster_id for (cluster_id,) in cursor.fetchall())
        cursor.execute(MOVED_LATELY)
        left = {on: max(0, settings.CONSOLIDATION_HOURLY_MOVES - made) for on, made in cursor.fetchall()}
    most = min(settings.CONSOLIDATION_MOST_MOVES, settings.CONSOLIDATION_HOURLY_MOVES)
    keep = settings.PREEMPTION_KEEP_SECONDS
    rules = Consolidating(share, most, movable, busy, left, resting, keep, moved_for_others())
    runs = {one.run.job_id: one.run for one in movable}
    again = [replace(running_size(job, runs[job.id]), elastic=None) for job in requests_again(snapshot.now, list(runs))]
    overdrawn = snapshot.overdrawn or load_overdrawn()
    return replace(snapshot, consolidation=rules, returning=tuple(again), overdrawn=overdrawn)


def with_plan_claims(snapshot: Snapshot, in_use: InUse = ALL) -> Snapshot:
    """The snapshot with what plans keep."""
    if in_use.consolidations and (claims := load_plan_claims(snapshot.now)):
        return replace(snapshot, claims=(*snapshot.claims, *claims))
    return snapshot


def _waiting(snapshot: Snapshot) -> list[JobRequest]:
    """The jobs for which others may move, that have waited for long, and for which nothing is kept."""
    if not any(one.consolidation not in ("", "never") for one in snapshot.policies):
        return []
    book, since = PolicyBook(snapshot.policies), snapshot.now - timedelta(seconds=snapshot.patience_seconds)
    claimed = {one.job_id for one in snapshot.claims}
    return [
        job
        for job in snapshot.queue
        if job.submitted_at is not None
        and job.submitted_at < since
        and job.awaits_on is None
        and job.id not in claimed
        and book.of(job.tenant_path).consolidation != "never"
    ]


def moved_for_others() -> MovedForOthers:
    """Whose jobs were moved within 24 hours so that jobs of others fit."""
    users, tenants = Counter[UUID](), Counter[str]()
    with connection.cursor() as cursor:
        cursor.execute(MOVED_FOR_OTHERS)
        for user_id, path, of_user, of_tenant in cursor.fetchall():
            users[user_id] += of_user
            tenants[path] += of_tenant
    return MovedForOthers(dict(users), dict(tenants))


def _resting() -> frozenset[UUID]:
    with connection.cursor() as cursor:
        cursor.execute(RESTING, {"rest": PLAN_REST.total_seconds()})
        return frozenset(job_id for (job_id,) in cursor.fetchall())


def _movable(running: Sequence[RunningJob]) -> tuple[Movable, ...]:
    if not running:
        return ()
    by_attempt = {run.attempt_id: run for run in running}
    with connection.cursor() as cursor:
        cursor.execute(MOVABLE, [list(by_attempt)])
        rows = {row.attempt_id: row for row in (_Row(*one) for one in cursor.fetchall())}
    return tuple(_as_movable(run, rows[attempt_id]) for attempt_id, run in by_attempt.items() if attempt_id in rows)


def _as_movable(run: RunningJob, row: _Row) -> Movable:
    saves = row.flavors is not None or row.has_interval
    return Movable(
        replace(run, user=row.user_id),
        is_willing=row.is_willing,
        saves_work=saves,
        flavors=tuple(sorted(json.loads(row.flavors or "[]"))),
        moves_today=row.moves_today,
        rests_until=None if row.last_moved_at is None else row.last_moved_at + REST,
    )
