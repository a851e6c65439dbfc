"""What preemption reads: who may replace whom, what is claimed, and how much may be stopped now."""

import json
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from fractions import Fraction
from itertools import groupby
from typing import Any, NamedTuple
from uuid import UUID

from django.conf import settings
from django.db import connection
from django.db.models import F

from federation.models import IS_LIVE, PriorityClass
from federation.queries.attested import LACKS_MANY
from federation.queries.in_use import ALL, InUse
from federation.queries.kept_places import load_kept_places
from federation.queries.queue import requests_again
from federation.queries.releases import nodes_of
from placement.preemption.loans import reclaiming_tenants
from placement.values.model import Snapshot
from placement.values.preemption import (
    CORES_PER_GPU,
    Allowance,
    HeldPods,
    Leaving,
    RoomClaim,
    RunningJob,
    organisation_of,
)
from quotas.models import BORROWED_AT_MOST, QuotaLimit

MOST_PREEMPTORS = 1000
OVERDRAWN = F("cap") - F("nominal") - BORROWED_AT_MOST
"""What a limit that was reduced below its use holds beyond it."""

CLAIMS = """
SELECT preemption.id, preemption.beneficiary_id, preemption.cluster_id, cluster.name, preemption.nodes::text,
       preemption.deadline_at, count(*), count(attempt.finished_at), count(victim.loan), preemption.amounts::text
  FROM federation_preemption AS preemption
  JOIN clusters_cluster AS cluster ON cluster.id = preemption.cluster_id
  JOIN federation_preemptionvictim AS victim ON victim.preemption_id = preemption.id
  JOIN federation_attempt AS attempt ON attempt.id = victim.attempt_id
 WHERE preemption.ended_at IS NULL AND preemption.deadline_at > %s
 GROUP BY preemption.id, cluster.name ORDER BY preemption.id
"""
SHRUNK = """
SELECT preemption.id, victim.job_id, attempt.cluster_id, cluster.name, victim.nodes::text, preemption.deadline_at, victim.amounts::text,
       tenant.path, hold.cluster_name, hold.amounts::text, 'shrunk'
  FROM federation_preemptionvictim AS victim
  JOIN federation_preemption AS preemption ON preemption.id = victim.preemption_id
  JOIN federation_attempt AS attempt ON attempt.id = victim.attempt_id
  JOIN federation_job AS job ON job.id = victim.job_id
  JOIN clusters_cluster AS cluster ON cluster.id = attempt.cluster_id
  LEFT JOIN quotas_hold AS hold ON hold.holder_id = attempt.id AND attempt.finished_at IS NULL
  LEFT JOIN tenancy_tenant AS tenant ON tenant.id = hold.tenant_id
 WHERE victim.nodes <> '[]' AND preemption.deadline_at > %s
   AND job.state NOT IN ('cancelling', 'cancelled', 'suspended') AND job.suspend_requested_at IS NULL
   AND (attempt.finished_at IS NULL OR job.state = 'queued' AND job.attempts_made = attempt.number)
 ORDER BY 1, 2
"""
MOVING = """
SELECT attempt.id, move.job_id, move.expected_id, cluster.name, move.nodes::text, move.kept_until, move.amounts::text,
       tenant.path, hold.cluster_name, hold.amounts::text, CASE move.cause WHEN 'growth' THEN 'grows' ELSE 'moves' END
  FROM federation_move AS move
  JOIN federation_attempt AS attempt ON attempt.id = move.attempt_id
  JOIN federation_job AS job ON job.id = move.job_id
  JOIN clusters_cluster AS cluster ON cluster.id = move.expected_id
  LEFT JOIN quotas_hold AS hold ON hold.holder_id = attempt.id AND attempt.finished_at IS NULL
  LEFT JOIN tenancy_tenant AS tenant ON tenant.id = hold.tenant_id
 WHERE move.kept_until > %s
   AND job.state NOT IN ('cancelling', 'cancelled', 'suspended') AND job.suspend_requested_at IS NULL
   AND (attempt.finished_at IS NULL OR job.state = 'queued' AND job.attempts_made = attempt.number)
 ORDER BY 1
"""
ELASTIC = "SELECT id FROM federation_job WHERE id = ANY(%s) AND spec ? 'elastic'"
PREEMPTORS = """
SELECT id FROM federation_job
 WHERE state = 'queued' AND priority_class_id = ANY(%s) ORDER BY priority DESC, id LIMIT %s
"""
_RUNNING = f"""
SELECT attempt.id, job.id, tenant.path, job.priority, attempt.cluster_id, cluster.name, attempt.started_at,
       (job.spec->>'checkpoint_seconds')::int,
       (SELECT checkpoint.written_at FROM federation_checkpoint AS checkpoint
         WHERE checkpoint.attempt_id = attempt.id ORDER BY checkpoint.sequence DESC LIMIT 1),
       class.shield_seconds, hold.amounts::text,
       (SELECT count(*) FROM federation_preemptionvictim AS earlier WHERE earlier.job_id = job.id),
       (job.spec->>'estimated_seconds')::int,
       ARRAY(SELECT other.job_id FROM federation_preemption AS made
               JOIN federation_preemptionvictim AS other ON other.preemption_id = made.id
              WHERE made.beneficiary_id = job.id),
       object.flavor, object.gpu_units, object.cpu_millicores, object.memory_mib, object.resources::text,
       object.assumed_nodes::text,
       (SELECT array_agg(pod.node) FROM federation_podrun AS pod
         WHERE pod.attempt_id = attempt.id AND pod.position = object.position AND pod.node <> ''
           AND pod.finished_at IS NULL AND NOT pod.is_gone),
       coalesce(hold.within_id::text, ''), hold.class_name
  FROM federation_attempt AS attempt
  JOIN federation_job AS job ON job.id = attempt.job_id
  JOIN tenancy_tenant AS tenant ON tenant.id = job.tenant_id
  JOIN clusters_cluster AS cluster ON cluster.id = attempt.cluster_id
  JOIN quotas_hold AS hold ON hold.holder_id = attempt.id AND hold.state = 'pending'
  JOIN federation_remoteobject AS object ON object.attempt_id = attempt.id AND object.outcome = ''
  JOIN federation_priorityclass AS class
    ON class.id = job.priority_class_id OR job.priority_class_id IS NULL AND class.name = job.spec->>'priority_class'
 WHERE attempt.state = 'running' AND attempt.stop_requested_at IS NULL AND attempt.started_at IS NOT NULL
   AND job.state = 'running' AND job.suspend_requested_at IS NULL AND NOT {LACKS_MANY}
"""
_IN_ORDER = "ORDER BY attempt.id, object.position"
RUNNING = f"{_RUNNING} AND split_part(tenant.path, '/', 1) = ANY(%s) AND (job.priority < %s OR %s) {_IN_ORDER}"
RUN_OF_JOB = f"{_RUNNING} AND job.id = %s {_IN_ORDER}"
LEAVING = """
SELECT tenant.path, hold.cluster_name, hold.amounts::text
  FROM federation_attempt AS attempt
  JOIN quotas_hold AS hold ON hold.holder_id = attempt.id AND hold.state = 'pending'
  JOIN tenancy_tenant AS tenant ON tenant.id = hold.tenant_id
 WHERE attempt.finished_at IS NULL AND attempt.stop_requested_at IS NOT NULL
 ORDER BY attempt.id
"""
SPENT = """
SELECT preemption.organisation, sum(victim.gpu_milli)
  FROM federation_preemption AS preemption
  JOIN federation_preemptionvictim AS victim ON victim.preemption_id = preemption.id
 WHERE preemption.created_at > now() - interval '1 hour' AND preemption.organisation = ANY(%s)
 GROUP BY preemption.organisation
"""
HELD = f"""
SELECT split_part(tenant.path, '/', 1),
       sum(coalesce(nullif((hold.amounts->>'gpu')::bigint, 0), (hold.amounts->>'cpu')::bigint / %s, 0))
  FROM federation_attempt AS attempt
  JOIN quotas_hold AS hold ON hold.holder_id = attempt.id AND hold.state = 'pending'
  JOIN tenancy_tenant AS tenant ON tenant.id = hold.tenant_id
 WHERE attempt.state {IS_LIVE} AND split_part(tenant.path, '/', 1) = ANY(%s)
 GROUP BY 1
"""


class _Row(NamedTuple):
    """The columns of RUNNING: one for each object of an attempt."""

    attempt_id: UUID
    job_id: UUID
    tenant_path: str
    priority: int
    cluster_id: UUID
    cluster: str
    started_at: datetime
    checkpoint_seconds: int | None
    saved_at: datetime | None
    shield_seconds: int
    amounts: str
    times_preempted: int
    estimated_seconds: int | None
    replaced: Sequence[UUID]
    flavor: str
    units: int
    cpu_millicores: int
    memory_mib: int
    resources: str
    assumed: str
    seen: Sequence[str] | None
    reservation: str
    class_name: str


def with_preemption(snapshot: Snapshot, in_use: InUse = ALL) -> Snapshot:
    """The snapshot with its claims, and with what may be stopped if some queued job may replace running ones, or if its
    tenant reclaims quota.
    """
    snapshot = replace(snapshot, claims=load_claims(snapshot.now)) if in_use.claims else snapshot
    if not settings.PREEMPTION_MOST_VICTIMS:
        return snapshot
    preemptors = _preemptors({job.id for job in snapshot.queue}) if in_use.preempting_classes else ()
    reclaiming = {organisation_of(path) for path in reclaiming_tenants(snapshot.limits)} & _borrowing(snapshot)
    by_id = {job.id: job for job in snapshot.queue} if preemptors else {}
    waiting = {organisation_of(job.tenant_path) for job in snapshot.queue} if reclaiming else set()
    organisations = sorted(
        {organisation_of(by_id[job_id].tenant_path) for job_id in preemptors} | (reclaiming & waiting)
    )
    if not organisations:
        return snapshot
    most = max((by_id[job_id].priority for job_id in preemptors), default=0)
    running = load_running(organisations, most, is_reclaiming=bool(reclaiming & waiting))
    if not running:
        return snapshot
    return replace(
        snapshot,
        preemptors=preemptors,
        running=running,
        shrinking=requests_again(snapshot.now, found) if (found := _elastic(running)) else (),
        leaving=_leaving() if reclaiming else (),
        allowance=load_allowance(organisations),
        overdrawn=load_overdrawn(),
    )


def _borrowing(snapshot: Snapshot) -> set[str]:
    """The organisations in which some limit holds more than its nominal amount."""
    over = (one for one in snapshot.limits if one.nominal is not None and one.held > one.nominal)
    return {organisation_of(one.tenant_path) for one in over}


def load_claims(now: datetime) -> tuple[RoomClaim, ...]:
    """The nodes that are kept at this time for jobs for which others are being stopped, for those of these that go on with
    fewer pods, for jobs that are moved to go on with more, to cheaper places or in time, and for jobs that start again where
    they failed. Four queries.
    """
    with connection.cursor() as cursor:
        cursor.execute(CLAIMS, [now])
        rows = cursor.fetchall()
        cursor.execute(SHRUNK, [now])
        stopped = cursor.fetchall()
        cursor.execute(MOVING, [now])
        stopped += cursor.fetchall()
    return (*(_of_stopped(_Stopped(*row)) for row in stopped), *_of_waiting(rows), *load_kept_places(now))


def _of_waiting(rows: Iterable[tuple[Any, ...]]) -> tuple[RoomClaim, ...]:
    return tuple(
        RoomClaim(
            row_id,
            job_id,
            cluster_id,
            cluster,
            tuple(json.loads(nodes)),
            until_at,
            victims,
            ended,
            borrowers,
            json.loads(amounts),
        )
        for row_id, job_id, cluster_id, cluster, nodes, until_at, victims, ended, borrowers, amounts in rows
    )


class _Stopped(NamedTuple):
    """The columns of SHRUNK and MOVING."""

    id: UUID
    job_id: UUID
    cluster_id: UUID
    cluster: str
    nodes: str
    until_at: datetime
    amounts: str
    path: str | None
    held_on: str | None
    held: str | None
    kind: str


def _of_stopped(row: _Stopped) -> RoomClaim:
    leaving = None
    if row.path is not None and row.held_on is not None and row.held is not None:
        leaving = Leaving(row.path, row.held_on, json.loads(row.held))
    place = row.id, row.job_id, row.cluster_id, row.cluster, tuple(json.loads(row.nodes)), row.until_at
    return RoomClaim(*place, 0, amounts=json.loads(row.amounts), kind=row.kind, leaving=leaving)


def _elastic(running: Sequence[RunningJob]) -> list[UUID]:
    """Those of the running jobs that are elastic."""
    with connection.cursor() as cursor:
        cursor.execute(ELASTIC, [[run.job_id for run in running]])
        return [job_id for (job_id,) in cursor.fetchall()]


def _leaving() -> tuple[Leaving, ...]:
    """What attempts that are being stopped still hold."""
    with connection.cursor() as cursor:
        cursor.execute(LEAVING)
        return tuple(Leaving(path, cluster, json.loads(amounts)) for path, cluster, amounts in cursor.fetchall())


def _preemptors(queued: Collection[UUID]) -> tuple[UUID, ...]:
    """Those of the queued jobs that may replace running ones, the most urgent first. One query on a small table if no
    class lets them.
    """
    classes = list(PriorityClass.objects.filter(preempts="lower").values_list("id", flat=True))
    if not classes:
        return ()
    with connection.cursor() as cursor:
        cursor.execute(PREEMPTORS, [classes, MOST_PREEMPTORS])
        return tuple(job_id for (job_id,) in cursor.fetchall() if job_id in queued)


def load_running(organisations: Collection[str], below: int, *, is_reclaiming: bool = False) -> tuple[RunningJob, ...]:
    """The running jobs of these organisations whose priority is lower, or all if quota is reclaimed, without those that are
    being stopped. Jobs on clusters that are known to be silent are `unknown`, and not among them; nor are those on clusters
    that lack too many objects.
    """
    with connection.cursor() as cursor:
        cursor.execute(RUNNING, [list(organisations), below, is_reclaiming])
        rows = [_Row(*row) for row in cursor.fetchall()]
    return tuple(_running(list(own)) for _, own in groupby(rows, key=lambda row: row.attempt_id))


def load_run(job_id: UUID) -> RunningJob | None:
    """The run of a job; None if it does not run, is being stopped, or is on a cluster that is known to be silent or to lack
    too many objects.
    """
    with connection.cursor() as cursor:
        cursor.execute(RUN_OF_JOB, [job_id])
        rows = [_Row(*row) for row in cursor.fetchall()]
    return _running(rows) if rows else None


def load_overdrawn() -> dict[UUID, int]:
    """By limit that was reduced below its use, what is held beyond it."""
    return dict(QuotaLimit.objects.annotate(over=OVERDRAWN).filter(over__gt=0).values_list("id", "over"))


def _running(rows: Sequence[_Row]) -> RunningJob:
    first = rows[0]
    return RunningJob(
        attempt_id=first.attempt_id,
        job_id=first.job_id,
        tenant_path=first.tenant_path,
        priority=first.priority,
        cluster_id=first.cluster_id,
        cluster=first.cluster,
        pods=tuple(_pods(row) for row in rows),
        amounts=json.loads(first.amounts),
        started_at=first.started_at,
        shield_until=first.started_at + timedelta(seconds=first.shield_seconds),
        times_preempted=first.times_preempted,
        checkpoint_seconds=first.checkpoint_seconds,
        saved_at=first.saved_at,
        estimated_seconds=first.estimated_seconds,
        replaced=frozenset(first.replaced),
        reservation=first.reservation,
        class_name=first.class_name,
    )


def _pods(row: _Row) -> HeldPods:
    nodes, others = nodes_of(row.seen, row.assumed), tuple(sorted(json.loads(row.resources).items()))
    return HeldPods(row.flavor, row.units, row.cpu_millicores, row.memory_mib, nodes, others)


def load_allowance(organisations: Sequence[str]) -> Allowance:
    """What the brake leaves now."""
    with connection.cursor() as cursor:
        cursor.execute(SPENT, [list(organisations)])
        spent = {name: int(milli) for name, milli in cursor.fetchall()}
    if not spent:
        return Allowance(settings.PREEMPTION_MOST_VICTIMS)
    shares = hourly_shares(spent)
    left = {name: max(0, shares.get(name, 0) - milli) for name, milli in spent.items()}
    return Allowance(settings.PREEMPTION_MOST_VICTIMS, left)


def hourly_shares(organisations: Iterable[str]) -> dict[str, int]:
    """By organisation, how much of what it holds may be stopped in an hour, in thousandths of a GPU."""
    share = Fraction(settings.PREEMPTION_HOURLY_SHARE)
    with connection.cursor() as cursor:
        cursor.execute(HELD, [CORES_PER_GPU, list(organisations)])
        return {name: int(share * int(milli)) for name, milli in cursor.fetchall()}
