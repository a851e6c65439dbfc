"""The only row locks of this room. Order everywhere: job, then attempt, then quota limits (taken by quotas.locks)."""

from collections.abc import Collection
from dataclasses import dataclass
from uuid import UUID

from django.db import connection

from .models import LIVE_ATTEMPT_STATES, Attempt, Job

CLAIM_SECONDS = 20
"""Longer than a round of calls may take. A worker that dies delays its attempts by so much; one that is late is fenced."""


@dataclass(frozen=True, slots=True)
class Claim:
    """Attempts that only the holder of `token` may write until the claim expires (by the database's clock)."""

    token: int
    attempt_ids: tuple[UUID, ...]


CLAIM_DUE = """
WITH due AS (
    SELECT id FROM federation_attempt
     WHERE cluster_id = %(cluster)s
       AND next_action_at <= now()
       AND (claim_expires_at IS NULL OR claim_expires_at < now())
       AND state = ANY(%(live)s)
     ORDER BY next_action_at, id
     LIMIT %(limit)s
       FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE federation_attempt AS attempt
   SET claim_token = %(token)s,
       claim_expires_at = now() + make_interval(secs => %(seconds)s),
       tries = attempt.tries + 1,
       sent_at = CASE WHEN attempt.stop_requested_at IS NULL THEN coalesce(attempt.sent_at, now()) ELSE attempt.sent_at END
  FROM due
 WHERE attempt.id = due.id
RETURNING attempt.id
"""


def claim_due_attempts(cluster_id: UUID, limit: int) -> Claim:
    """Takes up to `limit` attempts of one cluster that are due for a visit; others' claims are skipped, not awaited.

    `sent_at` is written here, before any create can leave: from then on an object may exist.
    """
    with connection.cursor() as cursor:
        cursor.execute("SELECT nextval('federation_claim_token')")
        token: int = cursor.fetchone()[0]
        cursor.execute(
            CLAIM_DUE,
            {
                "cluster": cluster_id,
                "limit": limit,
                "token": token,
                "live": LIVE_ATTEMPT_STATES,
                "seconds": CLAIM_SECONDS,
            },
        )
        return Claim(token, tuple(row[0] for row in cursor.fetchall()))


def lock_job(job_id: UUID) -> Job | None:
    """The job, locked until the transaction ends; None if there is none."""
    return Job.objects.select_for_update(no_key=True).filter(id=job_id).first()


def lock_queued_jobs(job_ids: Collection[UUID]) -> dict[UUID, Job]:
    """Those of the jobs that still wait, locked in id order; jobs that someone else holds are skipped."""
    rows = Job.objects.select_for_update(no_key=True, skip_locked=True, of=("self",)).filter(
        id__in=job_ids, state="queued"
    )
    return {job.id: job for job in rows.order_by("id").select_related("tenant").defer("explanation")}


def lock_attempts(attempt_ids: Collection[UUID]) -> dict[UUID, Attempt]:
    """The attempts, locked in id order."""
    rows = Attempt.objects.select_for_update(no_key=True).filter(id__in=attempt_ids)
    return {attempt.id: attempt for attempt in rows.order_by("id")}


def lock_jobs_of(attempt_ids: Collection[UUID]) -> dict[UUID, Job]:
    """The jobs of these attempts, locked in id order (before the attempts themselves: job, then attempt)."""
    owners = Attempt.objects.filter(id__in=attempt_ids).values_list("job_id", flat=True)
    rows = Job.objects.select_for_update(no_key=True).filter(id__in=list(owners))
    return {job.id: job for job in rows.order_by("id")}
