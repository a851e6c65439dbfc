"""Attempts of which only a part runs, because others took the room of their other pods: their users see which pods wait for
what, and those that wait for too long are placed again. They would keep their devices until their deadline, and a gang
does nothing without all of its pods.
"""

from collections.abc import Mapping
from datetime import datetime
from uuid import UUID

from django.db import connection, transaction
from django.db.models.functions import Now

from federation.engine import in_part
from federation.locks import lock_free_jobs, lock_with_jobs
from federation.models import Attempt
from federation.queries.in_part import Incomplete, incomplete_attempts
from foundation.clock import database_now
from foundation.transactions import retried
from placement.values.reason_codes import ReasonCode

from . import transitions

EXPLAIN_PARTS = f"""
UPDATE federation_job AS job
   SET reason_code = CASE said.words WHEN '' THEN '' ELSE '{ReasonCode.RUNS_IN_PART.value}' END, reason_message = said.words,
       reason_at = now()
  FROM unnest(%s::uuid[], %s::text[]) AS said(id, words)
 WHERE job.id = said.id AND job.state = 'running' AND job.suspend_requested_at IS NULL
   AND job.reason_code IN ('', '{ReasonCode.RUNS_IN_PART.value}') AND job.reason_message <> said.words
"""


def attend_to_parts() -> int:
    """The number of attempts recalled because too few of their pods got a node within 15 minutes. Jobs whose pods wait, for however
    long, show it; those that are whole again do not.

    Dispatch checks the pods before it removes anything. If they refute the recall, the cluster is not asked again for as long.
    """
    attempts = incomplete_attempts()
    if not attempts:
        return 0
    now = database_now()
    words = ((one, in_part.told(one.parts, now)) for one in attempts)
    _explain({one.job_id: told for one, told in words if told != one.shown})
    return sum(_recall(one, now) for one in attempts if _is_overdue(one, now))


def _is_overdue(one: Incomplete, now: datetime) -> bool:
    was_asked = one.asked_at is not None and one.asked_at > now - in_part.PATIENCE
    return not was_asked and in_part.is_overdue(one.parts, now)


@retried
def _recall(one: Incomplete, now: datetime) -> int:
    with transaction.atomic():
        found = lock_with_jobs([one.attempt_id])
        asked = transitions.ask_to_stop(found, in_part.why_in_part(one.parts, now), in_part.told_of_end(one.parts))
        if asked:
            Attempt.objects.filter(id=one.attempt_id).update(in_part_asked_at=Now())
        return asked


def _explain(words: Mapping[UUID, str]) -> None:
    """A job that is locked is left to the next sweep."""
    if not words:
        return
    with transaction.atomic(), connection.cursor() as cursor:
        free = lock_free_jobs(words)
        cursor.execute(EXPLAIN_PARTS, [free, [words[id_] for id_ in free]])
