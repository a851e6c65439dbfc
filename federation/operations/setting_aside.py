"""Processes many rows together so that one bad row does not block the others: a failing part is halved until it is
alone.

The bad row is set aside visibly: on the attempt, as an event of its job, in the log and in a metric. It is retried from
time to time, and processed like all others when its cause is gone.
"""

import logging
from collections.abc import Callable, Collection, Sequence
from datetime import timedelta
from typing import TypeVar
from uuid import UUID

from django.db import OperationalError
from django.db.models import Value
from django.db.models.functions import Now

from federation.models import Attempt

from . import figures, transitions

log = logging.getLogger(__name__)
Row = TypeVar("Row", UUID, int, str)
TRIED_AGAIN_AFTER = timedelta(minutes=15)
WHAT_TO_DO = (
    "Its hold remains, and recording is retried every 15 minutes. Check its pods and meters (manage.py prove_ledger lists"
    " errors), and report this to the maintainers."
)


def in_parts(
    step: str,
    rows: Sequence[Row],
    work: Callable[[Sequence[Row]], int],
    *,
    attempts_of: Callable[[Collection[Row]], Sequence[UUID]],
) -> int:
    """The sum of the results of `work` over the rows that it could process, each part in its own transaction.

    A failure of the database itself (gone, busy, deadlock) is not caused by a row: it is raised, and everything is
    retried.
    """
    if not rows:
        return 0
    try:
        return work(rows)
    except OperationalError:
        raise
    except Exception as error:  # noqa: BLE001 - whatever it is, it must not hold up the others
        if len(rows) == 1:
            _set_aside(step, attempts_of(rows), error)
            return 0
        middle = len(rows) // 2
    return sum(in_parts(step, part, work, attempts_of=attempts_of) for part in (rows[:middle], rows[middle:]))


def _set_aside(step: str, attempt_ids: Collection[UUID], error: Exception) -> None:
    told = f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"[:300]
    figures.UNMETERED.labels(step).inc(len(attempt_ids))
    rows = Attempt.objects.filter(id__in=attempt_ids)
    new = rows.filter(settle_error="")
    words = f"Its usage cannot be recorded ({told}). {WHAT_TO_DO}"
    transitions.tell("unmetered", dict.fromkeys(new.values_list("job_id", "id"), words))
    rows.update(settle_at=Now() + TRIED_AGAIN_AFTER, settle_error=told)
    for attempt_id in attempt_ids:
        log.error("the usage of attempt %s cannot be recorded (%s): %s. %s", attempt_id, step, told, WHAT_TO_DO)


def note_healed(attempt_ids: Collection[UUID]) -> None:
    """These were metered: what prevented it is gone."""
    Attempt.objects.filter(id__in=attempt_ids).exclude(settle_error="").update(settle_error=Value(""), settle_at=None)
