"""What earlier runs of jobs have done and saved."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from uuid import UUID

from django.db import connection

from placement.values.model import JobRequest

WORKED = """
SELECT attempt.job_id,
       sum(greatest(0, ran.seconds - coalesce(attempt.lost_seconds, ran.unsaved, (job.spec->>'checkpoint_seconds')::int, ran.seconds))
           / attempt.pace)::bigint
  FROM federation_attempt AS attempt
  JOIN federation_job AS job ON job.id = attempt.job_id
 CROSS JOIN LATERAL (
    SELECT extract(epoch FROM attempt.finished_at - attempt.started_at) AS seconds,
           extract(epoch FROM attempt.finished_at - max(checkpoint.written_at)) AS unsaved
      FROM federation_checkpoint AS checkpoint WHERE checkpoint.attempt_id = attempt.id) AS ran
 WHERE attempt.job_id = ANY(%s) AND attempt.finished_at IS NOT NULL AND attempt.started_at IS NOT NULL
 GROUP BY attempt.job_id
"""


def worked_seconds(job_ids: Collection[UUID]) -> Mapping[UUID, int]:
    """By job, the seconds of work at a pace of 1 that its runs that have ended did and saved."""
    if not job_ids:
        return {}
    with connection.cursor() as cursor:
        cursor.execute(WORKED, [list(job_ids)])
        return dict(cursor.fetchall())


def with_worked(requests: Sequence[JobRequest], tried: Collection[UUID]) -> tuple[JobRequest, ...]:
    """The requests, with the work of earlier runs of those that have a deadline. No query without any."""
    known = set(tried)
    done = worked_seconds([one.id for one in requests if one.finish_within_seconds is not None and one.id in known])
    return tuple(replace(one, worked_seconds=done[one.id]) if done.get(one.id) else one for one in requests)
