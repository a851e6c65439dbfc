"""Operations that run again and again, one at a time in the whole installation: "exclusive or skip".

A routine is rung (`Routine.rung_at`) when there may be something to do. A ring is answered once a run that *began*
after it has finished, so a run that was under way when the ring came does not count: whoever finishes such a run looks
once more. Nothing is lost between "busy, skipped" and "finished, gone".
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db import Error, connection

from . import advisory
from .clock import database_now, monotonic

log = logging.getLogger(__name__)
BACK_TO_BACK_SECONDS = 20.0
ERROR_LENGTH = 500


@dataclass(frozen=True, slots=True)
class _Run:
    began_at: datetime
    seconds: float
    error: str = ""


def run_exclusively(name: str, work: Callable[[], Any]) -> bool:
    """Whether `work` ran here; False when another process is at it, which then also answers what rang meanwhile.

    Runs again at once for rings that came during the run, for at most BACK_TO_BACK_SECONDS; the bell sees to the rest.
    Records when the run finished, how long it took and its error, and raises that error.
    """
    started, ran = monotonic(), False
    while True:
        run = _run_once(name, work)
        if run is None:
            return ran
        ran = True
        # Recorded after unlocking: a ring from now on finds the lock free, and one from before is seen here.
        is_rung_again = _record(name, run)
        if not is_rung_again or monotonic() - started > BACK_TO_BACK_SECONDS:
            return True


def _run_once(name: str, work: Callable[[], Any]) -> _Run | None:
    with advisory.held(advisory.Kind.ROUTINE, name) as is_ours:
        if not is_ours:
            return None
        began_at, start = database_now(), monotonic()
        try:
            work()
        except Exception as error:
            _record_failure(name, _Run(began_at, monotonic() - start, _safe(error)))
            raise
        return _Run(began_at, monotonic() - start)


def _safe(error: Exception) -> str:
    """The error's class and first line: the further lines of a database error repeat the values of a row."""
    first = (str(error).splitlines() or [""])[0]
    return f"{type(error).__name__}: {first}"[:ERROR_LENGTH]


def _record(name: str, run: _Run) -> bool:
    """Whether the routine was rung after this run began."""
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO foundation_routine AS routine (name, started_at, finished_at, seconds, error)"
            " VALUES (%s, %s, clock_timestamp(), %s, '')"
            " ON CONFLICT (name) DO UPDATE SET finished_at = excluded.finished_at, seconds = excluded.seconds, error = '',"
            " started_at = GREATEST(routine.started_at, excluded.started_at)"
            " RETURNING COALESCE(rung_at > started_at, false)",
            [name, run.began_at, run.seconds],
        )
        return bool(cursor.fetchone()[0])


def _record_failure(name: str, run: _Run) -> None:
    """A failed run answers nothing: `started_at` stays, so that the bell tries again after its patience."""
    try:
        with connection.cursor() as cursor:
            cursor.execute(
                "INSERT INTO foundation_routine (name, finished_at, seconds, error) VALUES (%s, clock_timestamp(), %s, %s)"
                " ON CONFLICT (name) DO UPDATE"
                " SET finished_at = excluded.finished_at, seconds = excluded.seconds, error = excluded.error",
                [name, run.seconds, run.error],
            )
    except Error:
        log.warning("the failure of %s could not be recorded: %s", name, run.error)
