"""Stops that wait for a checkpoint: which must take effect now, and what a job waits for. Read-only."""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from django.db import connection

from federation.engine.intake.reading import Faults, Fields
from federation.engine.lifecycle import JobState
from federation.models import IS_LIVE, Job
from federation.models.jobs import LONGEST_WAIT
from federation.queries.submissions import field_errors
from foundation.problems import Invalid

WAIT = "wait_for_checkpoint_seconds"
MOST_WAIT_SECONDS = int(LONGEST_WAIT.total_seconds())
REPORTED_SINCE = """
coalesce((SELECT saved.reported_at FROM federation_checkpoint AS saved
           WHERE saved.attempt_id = attempt.id ORDER BY saved.sequence DESC, saved.id DESC LIMIT 1) > job.stop_wished_at, false)
"""
"""Of the newest one, from which the next attempt goes on: one that is older, and whose report came late, saves no work."""
DUE = f"""
SELECT job.id,
       CASE WHEN attempt.id IS NULL OR attempt.stop_requested_at IS NOT NULL THEN 'stopped'
            WHEN {REPORTED_SINCE} THEN 'reported'
            WHEN job.stop_latest_at <= statement_timestamp() THEN 'over' END AS cause
  FROM federation_job AS job
  LEFT JOIN federation_attempt AS attempt ON attempt.job_id = job.id AND attempt.state {IS_LIVE}
 WHERE job.stop_latest_at IS NOT NULL AND (%(only)s::uuid IS NULL OR job.id = %(only)s)
   AND (attempt.id IS NULL OR attempt.stop_requested_at IS NOT NULL OR job.stop_latest_at <= statement_timestamp() OR {REPORTED_SINCE})
 ORDER BY job.stop_latest_at, job.id LIMIT %(most)s
"""
WANTED = f"""
SELECT FROM federation_attempt AS attempt
  JOIN federation_job AS job ON job.id = attempt.job_id
 WHERE attempt.id = %s AND attempt.state {IS_LIVE} AND attempt.stop_requested_at IS NULL
   AND job.stop_latest_at > statement_timestamp() AND NOT {REPORTED_SINCE}
"""
MOST_DUE = 20
"""For each due move, placement tries where the job would continue."""


@dataclass(frozen=True, slots=True)
class PendingStop:
    """What a job does at its next checkpoint, `suspend` or `move`; who wished it and when; and until when it waits at most."""

    then: str
    by: str
    requested_at: datetime
    until: datetime


def read_wait(body: object) -> int:
    """How long the suspension of this body waits for a checkpoint, in seconds. Invalid with every field at fault."""
    faults = Faults()
    seconds = wait_in(Fields({} if body is None else body, "", faults, frozenset({WAIT})))
    if faults.found:
        raise Invalid(errors=field_errors(faults.found))
    return seconds


def wait_in(fields: Fields) -> int:
    """The wait that the body names, in seconds; 0 without one."""
    return fields.whole(WAIT, 0, MOST_WAIT_SECONDS) or 0


def need_reports(job: Job, wait_seconds: int) -> None:
    """Raises Invalid if a stop of the job would wait for what it never reports."""
    if wait_seconds and job.spec.get("reports") is not True:
        words = "the job does not report checkpoints (`reports` in its spec), so there is none to wait for"
        raise Invalid.field(WAIT, "not_allowed", words)


def pending_stop(job: Job) -> PendingStop | None:
    """The stop of the job that waits for a checkpoint; None without one."""
    wish, since, until = job.stop_wish, job.stop_wished_at, job.stop_latest_at
    if wish is None or since is None or until is None:
        return None
    return PendingStop(wish["then"], wish["by"], since, until)


def shown_stop(job_id: UUID) -> tuple[PendingStop | None, bool]:
    """What a job waits for, and whether a stop of it can wait. For a job that the viewer may see."""
    job = Job.objects.get(id=job_id)
    return pending_stop(job), job.state == JobState.RUNNING and job.spec.get("reports") is True


def due_stops(only: UUID | None = None) -> dict[UUID, str]:
    """The jobs whose wait has ended, those that had to stop first before others, or this one, and why: `reported` a checkpoint since,
    `over` (time), or `stopped` for another reason already. By the database's clock.
    """
    with connection.cursor() as cursor:
        cursor.execute(DUE, {"only": only, "most": MOST_DUE})
        return dict(cursor.fetchall())


def is_checkpoint_wanted(attempt_id: UUID) -> bool:
    """Whether a stop waits for a checkpoint of this attempt."""
    with connection.cursor() as cursor:
        cursor.execute(WANTED, [attempt_id])
        return cursor.fetchone() is not None


def is_stop_pending(attempt_id: UUID) -> bool:
    """Whether a stop of this attempt's job waits for a checkpoint, or for the round that carries it out."""
    return Job.objects.filter(attempts=attempt_id, stop_wish__isnull=False).exists()
