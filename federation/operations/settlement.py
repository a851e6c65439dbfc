"""Settles ended attempts: their runs become usage and their hold ends, both once, as soon as nothing of them runs any
more.

An attempt that may have run is settled when its pods are known: each was seen to have ended, and either their number is
the requested one, or the cluster, asked after the end, reported no others. For a cluster that does not answer,
settlement waits for `PATIENCE`; then the last sightings count, as estimated. A pod that appears later reopens its
attempt (`reopening`).
"""

from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import Literal
from uuid import UUID

from django.db import connection, transaction
from django.db.models import Value
from django.db.models.functions import Coalesce, Now

import billing.operations
import quotas.operations
from federation.locks import lock_to_settle
from federation.models import Attempt
from federation.queries.metering import running_pods, runs_of, runs_so_far, unsettled_attempts, weighed_again
from foundation import clock
from foundation.transactions import retried

from .failures import note_lost_work
from .lost_work import record_lost_work
from .relook import look_at_pods
from .setting_aside import in_parts, note_healed
from .true_ends import correct_ends_of
from .unseen import write_down_unseen

BATCH = 500
CERTAIN_AFTER = timedelta(minutes=2)
"""Running usage is metered with this delay: the report of a pod's end may be under way, and would take back what was metered
beyond it."""


def settle_attempts() -> int:
    """The number of attempts settled now. An attempt that cannot be settled, or a cluster that hangs, does not delay
    others.
    """
    due = unsettled_attempts(BATCH)
    settled = _settle([one.attempt_id for one in due if one.is_known])
    told = look_at_pods([one for one in due if not (one.is_known or one.is_silent)])
    overdue = {one.attempt_id for one in due if one.is_overdue}
    return settled + _settle(sorted(overdue.union(told)))


def _settle(attempt_ids: Sequence[UUID]) -> int:
    return in_parts("settle", list(attempt_ids), _settle_together, attempts_of=list)


@retried
def _settle_together(attempt_ids: Sequence[UUID]) -> int:
    """Checks the attempts again under the locks, because their pods may have changed since, and settles them."""
    with transaction.atomic():
        lock_to_settle(attempt_ids)
        standing = weighed_again(attempt_ids)
        known = [one.attempt_id for one in standing if one.is_known]
        guessed = [one.attempt_id for one in standing if one.is_overdue]
        write_down_unseen([*known, *guessed])
        lost_from = note_lost_work([*known, *guessed])
        runs = [replace(run, redone_from=lost_from.get(run.run_id)) for run in runs_of([*known, *guessed])]
        billing.operations.record_runs(runs)
        correct_ends_of([*known, *guessed])
        record_lost_work([*known, *guessed])
        ran = {run.run_id for run in runs}
        _fill_in_starts([*known, *guessed])
        endings = {id_: _ending(ran, id_) for id_ in (*known, *guessed)}
        billing.operations.end_budget_holds(endings)
        quotas.operations.end_holds(endings)
        done = Attempt.objects.filter(settled_at=None)
        done.filter(id__in=known).update(
            settled_at=Now(), pods_told_at=Coalesce("pods_told_at", Now()), settle_at=None, settle_error=Value("")
        )
        done.filter(id__in=guessed).update(settled_at=Now(), settle_at=None, settle_error=Value(""))
    return len(known) + len(guessed)


def _ending(ran: Collection[UUID], attempt_id: UUID) -> Literal["posted", "voided"]:
    return "posted" if attempt_id in ran else "voided"


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
    """Fills in the starts of attempts: a pod may be seen for the first time after its Job was seen to have ended."""
    with connection.cursor() as cursor:
        cursor.execute(FILL_IN_STARTS, [list(attempt_ids)])


def accrue_running() -> int:
    """The number of running pods whose usage was updated, so that reports do not wait for long jobs."""
    until = (clock.database_now() - CERTAIN_AFTER).replace(microsecond=0)
    pods = running_pods(until)
    work = partial(_accrue_together, until)
    updated = sum(
        in_parts("accrue", pods[first : first + BATCH], work, attempts_of=_attempts_of)
        for first in range(0, len(pods), BATCH)
    )
    billing.operations.adjust_budget_holds()
    return updated


def _accrue_together(until: datetime, pod_ids: Sequence[int]) -> int:
    with transaction.atomic():
        runs = runs_so_far(pod_ids, until)
        billing.operations.record_runs(runs)
        note_healed({run.run_id for run in runs})
    return len(runs)


def _attempts_of(pod_ids: Collection[int]) -> list[UUID]:
    return list(Attempt.objects.filter(pods__in=pod_ids).values_list("id", flat=True))
