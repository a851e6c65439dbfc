"""The only lock takers of this room. One order everywhere: advisory, jobs by id, attempts by id, then quotas.locks'
tenants, holds and limits. A transaction that writes several rows locks them all first, because an UPDATE locks in any
order.
"""

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple
from uuid import UUID

from django.db import connection
from django.db.models import Q

from billing.locks import rewrite_price_book
from foundation.host import host
from foundation.rows import columns_of
from quotas.locks import lock_pending_below, stop_endings, stop_takers_at
from tenancy.locks import hold_tree
from tenancy.models import Tenant

from .models import DISPATCH_IS_OPEN, IS_LIVE, Attempt, DataWait, Job, PodRun, PrepullPolicy, Progress, StageIn

CLAIM_SECONDS = 20
"""Longer than a round of calls. A worker that dies delays its attempts by this time; a late worker is fenced."""


@dataclass(frozen=True, slots=True)
class Claim:
    """Attempts that only the holder of `token` may write until the claim expires (by the database's clock)."""

    token: int
    attempt_ids: tuple[UUID, ...]


_UNCLAIMED = f"""
SELECT id FROM federation_attempt
 WHERE cluster_id = %(cluster)s
   AND (claim_expires_at IS NULL OR claim_expires_at < now())
   AND state {IS_LIVE}
   AND {DISPATCH_IS_OPEN}
"""
_DUE = f"""{_UNCLAIMED}
   AND next_action_at <= now()
"""
_TAKE = """
, claim AS MATERIALIZED (
    SELECT nextval('federation_claim_token') AS token
)
UPDATE federation_attempt AS attempt
   SET claim_token = claim.token, claim_expires_at = now() + make_interval(secs => %(seconds)s)
"""
_FOR_A_CALL = """,
       tries = attempt.tries + 1,
       sent_at = CASE WHEN attempt.stop_requested_at IS NULL THEN coalesce(attempt.sent_at, now()) ELSE attempt.sent_at END
"""
_TAKEN = """
  FROM due, claim
 WHERE attempt.id = due.id
RETURNING attempt.id, attempt.claim_token
"""
CLAIM_DUE = f"""
WITH due AS ({_DUE} ORDER BY next_action_at, id LIMIT %(limit)s FOR NO KEY UPDATE SKIP LOCKED) {_TAKE}{_FOR_A_CALL}{_TAKEN}
"""
CLAIM_PROBES = f"""
WITH due AS ({_DUE} ORDER BY md5(id || %(salt)s) LIMIT %(limit)s FOR NO KEY UPDATE SKIP LOCKED) {_TAKE}{_FOR_A_CALL}{_TAKEN}
"""
CLAIM_LEFT_WAITING = f"""
WITH due AS ({_UNCLAIMED}
   AND next_action_at IS NOT NULL AND state = 'reserved' AND stop_requested_at IS NULL
   AND reserved_at < now() - make_interval(secs => %(waited)s)
 ORDER BY id LIMIT %(limit)s FOR NO KEY UPDATE SKIP LOCKED) {_TAKE}{_TAKEN}
"""


def claim_due_attempts(cluster_id: UUID, limit: int) -> Claim:
    """Takes up to `limit` attempts of one cluster with a pending visit, those that waited longest first; others' claims are
    skipped, not awaited.

    `sent_at` is written here, before any create can leave: from then on an object may exist.
    """
    with connection.cursor() as cursor:
        cursor.execute(CLAIM_DUE, _asked(cluster_id, limit))
        return _claim_of(cursor.fetchall())


def claim_probes(cluster_id: UUID, limit: int) -> Claim:
    """Like `claim_due_attempts`, but takes any of them: the same few would not show whether the cluster answers others."""
    with connection.cursor() as cursor:
        cursor.execute(CLAIM_PROBES, {**_asked(cluster_id, limit), "salt": str(host().chance().random())})
        return _claim_of(cursor.fetchall())


def _asked(cluster_id: UUID, limit: int) -> dict[str, Any]:
    return {"cluster": cluster_id, "limit": limit, "seconds": CLAIM_SECONDS}


def _claim_of(rows: Sequence[tuple[UUID, int]]) -> Claim:
    return Claim(rows[0][1] if rows else 0, tuple(row[0] for row in rows))


def claim_left_waiting(cluster_id: UUID, seconds: float, limit: int) -> Claim:
    """Takes unclaimed creations that were placed there at least this long ago. `sent_at` is not written: the claim is
    for giving them up without a call.
    """
    with connection.cursor() as cursor:
        cursor.execute(CLAIM_LEFT_WAITING, {**_asked(cluster_id, limit), "waited": seconds})
        return _claim_of(cursor.fetchall())


def lock_job(job_id: UUID) -> Job | None:
    """The job, locked until the transaction ends; None if there is none."""
    return Job.objects.select_for_update(no_key=True).filter(id=job_id).first()


def lock_free_jobs(job_ids: Collection[UUID]) -> list[UUID]:
    """Those of the jobs that no other transaction has locked, locked in id order."""
    rows = Job.objects.select_for_update(no_key=True, skip_locked=True).filter(id__in=list(job_ids))
    return list(rows.order_by("id").values_list("id", flat=True))


class QueuedJob(NamedTuple):
    """A waiting job, with what placing it needs."""

    id: UUID
    tenant_id: UUID
    tenant_path: str
    attempts_made: int
    spec: str
    """The spec as PostgreSQL formats it: equal for equal specs."""


LOCK_QUEUED = f"""
SELECT job.id, job.tenant_id, tenant.path, job.attempts_made, job.spec::text
  FROM federation_job AS job
  JOIN tenancy_tenant AS tenant ON tenant.id = job.tenant_id
 WHERE job.id = ANY(%s) AND job.state = 'queued'
   AND {DISPATCH_IS_OPEN}
 ORDER BY job.id
   FOR NO KEY UPDATE OF job SKIP LOCKED
"""


def lock_queued_jobs(job_ids: Collection[UUID]) -> dict[UUID, QueuedJob]:
    """The jobs that still wait, locked in id order; jobs locked by another transaction are skipped."""
    with connection.cursor() as cursor:
        cursor.execute(LOCK_QUEUED, [list(job_ids)])
        return {job.id: job for job in map(QueuedJob._make, cursor.fetchall())}


def lock_attempts(attempt_ids: Collection[UUID]) -> dict[UUID, Attempt]:
    """The attempts, locked in id order."""
    rows = Attempt.objects.select_for_update(no_key=True).filter(id__any_of=list(attempt_ids))
    return {attempt.id: attempt for attempt in rows.order_by("id")}


LOCK_JOBS_OF = f"""
SELECT {", ".join(columns_of(Job))} FROM federation_job
 WHERE id = ANY(ARRAY(SELECT job_id FROM federation_attempt WHERE id = ANY(%s)))
 ORDER BY id FOR NO KEY UPDATE
"""
"""The array is computed once. With a join instead, a job that changes during the wait for its lock could be missing."""


def lock_to_settle(attempt_ids: Collection[UUID]) -> dict[UUID, Attempt]:
    """The attempts with their jobs and all their pods, so that no other transaction records a pod of them until this
    one ends. Pods come first, in the same order as for writers of pods.
    """
    pods = PodRun.objects.select_for_update(no_key=True).filter(attempt_id__any_of=attempt_ids)
    list(pods.order_by("id").values_list("id", flat=True))
    lock_jobs_of(attempt_ids)
    rows = Attempt.objects.select_for_update().filter(id__any_of=attempt_ids)
    return {attempt.id: attempt for attempt in rows.order_by("id")}


LOCK_OPEN = """
SELECT id, settled_at IS NOT NULL FROM federation_attempt WHERE id = ANY(%s) ORDER BY id FOR KEY SHARE
"""


def keep_from_being_settled(attempt_ids: Collection[UUID]) -> list[UUID]:
    """Blocks only settlement of these attempts until the transaction ends; returns those that are already settled."""
    if not attempt_ids:
        return []
    with connection.cursor() as cursor:
        cursor.execute(LOCK_OPEN, [list(attempt_ids)])
        return [id_ for id_, is_settled in cursor.fetchall() if is_settled]


def lock_jobs_of(attempt_ids: Collection[UUID]) -> dict[UUID, Job]:
    """The jobs of these attempts, locked in id order (before the attempts themselves: job, then attempt)."""
    return {job.id: job for job in Job.objects.raw(LOCK_JOBS_OF, [list(attempt_ids)])}


def lock_with_jobs(attempt_ids: Collection[UUID]) -> dict[UUID, Attempt]:
    """The attempts, locked after their jobs, each kind in id order."""
    ids = list(attempt_ids)
    if not ids:
        return {}
    lock_jobs_of(ids)
    return lock_attempts(ids)


def lock_jobs_and_attempts(
    job_ids: Collection[UUID], attempt_ids: Collection[UUID]
) -> tuple[dict[UUID, Job], dict[UUID, Attempt]]:
    """The jobs, and attempts of some of them, each kind locked in id order."""
    rows = Job.objects.select_for_update(no_key=True).filter(id__in=list(job_ids))
    return {job.id: job for job in rows.order_by("id")}, lock_attempts(attempt_ids)


def lock_progress(attempt_id: UUID, states: Collection[str]) -> Progress | None:
    """The progress row of an attempt in one of these states, locked until the transaction ends. It is the last lock: no
    transaction that holds it takes another one.
    """
    rows = Progress.objects.select_for_update(of=("self",), no_key=True)
    return rows.filter(attempt_id=attempt_id, attempt__state__in=list(states)).first()


DECLARED_ARTIFACTS = """
SELECT coalesce(job.spec -> 'artifacts', '[]'::jsonb) AS declared
  FROM federation_attempt AS attempt
  JOIN federation_job AS job ON job.id = attempt.job_id
 WHERE attempt.id = %(attempt)s AND attempt.state = ANY(%(states)s)
   FOR SHARE OF attempt
"""


def keep_from_ending(attempt_id: UUID, states: Collection[str]) -> list[dict[str, Any]] | None:
    """The artifacts that the job of an attempt in one of these states declares; None if it is in another. The attempt does not end
    until the transaction does: an end sees what was announced before it, and nothing is announced after it. Before
    `lock_progress`.
    """
    with connection.cursor() as cursor:
        cursor.execute(DECLARED_ARTIFACTS, {"attempt": attempt_id, "states": list(states)})
        found = cursor.fetchone()
    return None if found is None else list(json.loads(found[0]))


def keep_attempts(attempt_ids: Collection[UUID]) -> None:
    """Locks the attempts in id order and reads nothing, so it can run in a pipeline before several
    statements on them.
    """
    with connection.cursor() as cursor:
        cursor.execute(KEEP_ATTEMPTS, [list(attempt_ids)])


KEEP_ATTEMPTS = "SELECT FROM federation_attempt WHERE id = ANY(%s) ORDER BY id FOR NO KEY UPDATE"


RESERVATIONS_LOCK = 0x53575952  # "SWYR"


def read_reservations() -> None:
    """Prevents changes of reservations until commit; any number of readers may do so at the same time. Take it before
    any row.
    """
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock_shared(%s)", [RESERVATIONS_LOCK])


def rewrite_reservations() -> None:
    """Makes this transaction the only one that makes or changes reservations, or places jobs. Likewise."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(%s)", [RESERVATIONS_LOCK])


STANDSTILL_LOCK = 0x53575948  # "SWYH"


def rewrite_standstill() -> None:
    """Makes this transaction the only one that begins or ends a standstill, or accepts a history. Take it before any row."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(%s)", [STANDSTILL_LOCK])


PRIORITY_CLASSES_LOCK = 0x5357594C  # "SWYL"


def rewrite_priority_classes() -> None:
    """Makes this transaction the only one that changes priority classes. Take it before any row."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(%s)", [PRIORITY_CLASSES_LOCK])


def hold_for_tree(
    limited: Collection[str], roots: Collection[str], kinds: Collection[str], *, counts_all: bool = False
) -> None:
    """Makes this transaction the only one that changes the tenant tree, and blocks takers of quota at these tenants.

    Takes what the operations of `kinds` take, in the order that all transactions use: advisory locks, tenants by id, then
    pending holds. `limited` are the tenants whose limits change, `roots` the tenants above them. With `counts_all`, no hold begins or
    ends anywhere: holds that end lock limits of classes before the table of holds, which a new limit of all tenants locks.
    """
    hold_tree()
    if "priority_class" in kinds or "class_limit" in kinds:
        rewrite_priority_classes()
    if "budget" in kinds:
        rewrite_price_book()
    stopped = Q(path__any_of=sorted(limited))
    if "priority_class" in kinds:
        stopped |= Q(parent=None)  # a class may get its first limit (quotas.locks.stop_all_takers)
    if limited or "priority_class" in kinds:
        stop_takers_at(*Tenant.objects.filter(stopped).values_list("id", flat=True))
    if counts_all:
        stop_endings()
    elif limited:
        lock_pending_below(*roots)


KEPT_ROOM_LOCK = 0x5357594B  # "SWYK"


def rewrite_kept_room() -> None:
    """Makes this transaction the only one that changes what is kept for jobs that wait. Take it before any row.

    One cycle runs at a time, but one that has lost its connection to the database does not know yet that another began.
    """
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(%s)", [KEPT_ROOM_LOCK])


FAILURE_RULES_LOCK = 0x53575946  # "SWYF"


def rewrite_failure_rules() -> None:
    """Makes this transaction the only one that changes failure rules. Take it before any row."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(%s)", [FAILURE_RULES_LOCK])


def lock_prepull_policy(policy_id: UUID) -> PrepullPolicy | None:
    """The policy's row with its cluster and tenant, locked against other writers; None if there is none. Its pulls are written
    only by transactions that hold it, or by guarded updates of one row.
    """
    rows = PrepullPolicy.objects.filter(id=policy_id).select_related("cluster", "tenant")
    return rows.select_for_update(of=("self",), no_key=True).first()


def lock_stage_in(stage_in_id: int) -> StageIn | None:
    """The copy's row with its plan, locked against other writers; None if there is none."""
    related = ("plan__dataset__tenant", "plan__cluster__owner", "plan__source__tenant", "plan__target__tenant")
    rows = StageIn.objects.filter(pk=stage_in_id).select_related(*related)
    return rows.select_for_update(of=("self",), no_key=True).first()


def lock_data_waits(job_id: UUID | None = None) -> list[DataWait]:
    """The waits for data that have not ended, of all jobs or of one, with their jobs and clusters. The jobs are locked first, in id
    order, then the waits.
    """
    live = DataWait.objects.filter(ended_at=None)
    live = live if job_id is None else live.filter(job=job_id)
    job_ids = list(live.values_list("job_id", flat=True))
    list(Job.objects.filter(id__any_of=job_ids).select_for_update(no_key=True).order_by("id").values_list("id"))
    rows = DataWait.objects.filter(ended_at=None, job__in=job_ids).select_related("job", "cluster")
    return list(rows.select_for_update(of=("self",), no_key=True).order_by("id"))
