"""Recurring operations. Some run once at a time in the whole installation ("exclusive or skip"); others run in turns,
one per worker side by side, and divide the work.

A routine is rung (`Routine.rung_at`) when there may be work. A ring is answered once a run that *began* after it has
finished. A run that was in progress when the ring came does not count: its process checks once more at the end. So no
ring is lost between "busy, skipped" and "finished, gone".
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from threading import Event
from typing import Any

from django.db import Error, connection, transaction

from . import advisory
from .clock import database_now, monotonic
from .host import host
from .outbox import announce
from .turns import TURN_SECONDS, Turn, is_relieved, show_up

log = logging.getLogger(__name__)
BACK_TO_BACK_SECONDS = 5.0
ERROR_LENGTH = 500


@dataclass(frozen=True, slots=True)
class _Run:
    began_at: datetime
    seconds: float
    error: str = ""


def run_exclusively(name: str, work: Callable[[], Any], *, for_seconds: float = BACK_TO_BACK_SECONDS) -> bool:
    """Whether `work` ran here; False if another process is running it, which then also answers rings that come
    meanwhile.

    Runs again immediately for rings that came during the run, for at most `for_seconds`; the bell handles the rest.
    Records when the run finished, its duration and its error, and raises that error.
    """
    started, ran = monotonic(), False
    while True:
        with advisory.held(advisory.Kind.ROUTINE, name) as is_ours:
            if not is_ours:
                return ran
            run = _run_once(name, database_now(), work)
        ran = True
        # Recorded after unlocking: a later ring finds the lock free, and an earlier one is visible here.
        is_rung_again = _record(name, run)
        if not is_rung_again or monotonic() - started >= for_seconds:
            return True


def run_in_turns(name: str, work: Callable[[Turn], Any]) -> bool:
    """Whether `work` ran here, for a worker; False if this worker already has a turn at it, which answers the ring.

    Work that is left at the end of the turn is announced, so that any worker may continue it.
    """
    started, ran = monotonic(), False
    while True:
        came_at = show_up(name)
        with advisory.held(advisory.Kind.ROUTINE, f"{name}@{host().seat()}") as is_ours:
            if not is_ours:
                return ran
            turn = Turn(name, came_at)
            run = _run_once(name, came_at, lambda turn=turn: work(turn))  # type: ignore[misc]
        ran = True
        is_rung_again = _record(name, run) or turn.has_more
        if is_rung_again and (turn.has_more or monotonic() - started >= TURN_SECONDS):
            with transaction.atomic():
                announce(name)
            return True
        if not is_rung_again:
            return True


def stand_in(name: str, work: Callable[[Turn], Any], stopping: Event) -> bool:
    """One turn for the bell, which works while no worker is available: whether there is more to do, and still no
    worker.
    """
    with advisory.held(advisory.Kind.ROUTINE, f"{name}@{host().seat()}") as is_ours:
        if not is_ours:
            return False
        began_at = database_now()
        turn = Turn(name, began_at, yields=True, stopping=stopping)
        run = _run_once(name, began_at, lambda: work(turn))
    is_rung_again = _record(name, run)
    return (is_rung_again or turn.has_more) and not stopping.is_set() and not is_relieved(name, began_at)


def _run_once(name: str, began_at: datetime, work: Callable[[], Any]) -> _Run:
    start = monotonic()
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
    """A failed run answers no ring: `started_at` does not change, and its worker counts as absent, so that the bell
    retries after its patience.
    """
    try:
        with connection.cursor() as cursor:
            cursor.execute(
                "INSERT INTO foundation_routine (name, finished_at, seconds, error) VALUES (%s, clock_timestamp(), %s, %s)"
                " ON CONFLICT (name) DO UPDATE"
                " SET finished_at = excluded.finished_at, seconds = excluded.seconds, error = excluded.error, beat_at = NULL",
                [name, run.seconds, run.error],
            )
    except Error:
        log.warning("the failure of %s could not be recorded: %s", name, run.error)
