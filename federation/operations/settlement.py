"""Settling ended attempts: what ran becomes usage, the hold ends, both once."""

from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from uuid import UUID

from django.db import connection, transaction
from django.db.models.functions import Now

import billing.operations
import quotas.operations
from billing.operations import ObservedRun
from clusters.drivers import DriverError
from federation.locks import lock_with_jobs
from federation.models import Attempt
from federation.queries.metering import Metered, running_runs, runs_of, unsettled_attempts
from foundation import clock
from foundation.transactions import retried

from .relook import look_at_pods

BATCH = 500
CERTAIN_AFTER = timedelta(minutes=2)
"""What was metered cannot be taken back, and the news that a pod has ended may be on its way."""
PATIENCE = timedelta(minutes=10)
"""How long to wait for pods whose end nobody has seen, before their last sighting is taken as their end (estimated)."""


def settle_attempts() -> int:
    """The number of attempts settled now.

    An attempt is settled when every pod that started has been seen to end. Pods with an open end are looked up on
    their cluster first; if the cluster stays silent, they are settled later as estimated, up to their last sighting.
    """
    due = unsettled_attempts(BATCH)
    ready = [metered for metered in due if metered.is_complete]
    ready += [metered for metered in due if not metered.is_complete and _look_again(metered)]
    if ready:
        _settle([metered.attempt_id for metered in ready])
    return len(ready)


def _look_again(metered: Metered) -> bool:
    """Whether the attempt can be settled after a fresh look at its pods, or because patience has run out."""
    with suppress(DriverError):
        look_at_pods(metered.attempt_id)
    fresh = unsettled_attempts(1, only=metered.attempt_id)
    return any(row.is_complete for row in fresh) or clock.now() - metered.finished_at > PATIENCE


@retried
def _settle(attempt_ids: Sequence[UUID]) -> None:
    with transaction.atomic():
        attempts = lock_with_jobs(attempt_ids)
        open_ids = [attempt.id for attempt in attempts.values() if attempt.settled_at is None]
        runs = runs_of(open_ids)
        billing.operations.record_runs(runs)
        ran = {run.run_id for run in runs}
        _fill_in_starts(open_ids)
        quotas.operations.end_holds({id_: "posted" if id_ in ran else "voided" for id_ in open_ids})
        Attempt.objects.filter(id__in=open_ids).update(settled_at=Now())


FILL_IN_STARTS = """
WITH first AS (
    SELECT attempt_id, min(started_at) AS at FROM federation_podrun
     WHERE attempt_id = ANY(%s) AND started_at IS NOT NULL GROUP BY attempt_id
), attempts AS (
    UPDATE federation_attempt AS attempt SET started_at = first.at FROM first
     WHERE attempt.id = first.attempt_id AND attempt.started_at IS NULL RETURNING attempt.job_id, first.at
)
UPDATE federation_job AS job SET started_at = attempts.at FROM attempts
 WHERE job.id = attempts.job_id AND job.started_at IS NULL AND job.finished_at IS NOT NULL
"""


def _fill_in_starts(attempt_ids: Sequence[UUID]) -> None:
    """A pod may be seen for the first time after its Job was seen to have ended: when it began is known only now."""
    with connection.cursor() as cursor:
        cursor.execute(FILL_IN_STARTS, [list(attempt_ids)])


def accrue_running() -> int:
    """The number of running pods whose usage was brought up to date, so that reports do not wait for long jobs."""
    runs: Sequence[ObservedRun] = running_runs(_whole_second(clock.now() - CERTAIN_AFTER))
    with transaction.atomic():
        billing.operations.record_runs(runs)
    return len(runs)


def _whole_second(at: datetime) -> datetime:
    return at.replace(microsecond=0)
