"""The bell: starts routines when outbox rows announce work and at scheduled times (ADR 3).

Any number of bells may run side by side; rows decide which one acts. The bell needs only PostgreSQL: while the broker
or the workers do not respond, it runs the work itself, at lower speed.
"""

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Protocol

import psycopg
from django.db import Error, close_old_connections, connection, transaction
from django.utils.module_loading import import_string
from prometheus_client import Counter

from .clock import monotonic
from .outbox import CHANNEL
from .routines import run_exclusively, stand_in
from .schedule import How, Ring, RoutineState, Schedule, decide
from .threads import Threads, open_threads, wait_for_all

log = logging.getLogger(__name__)
POLL_SECONDS = 0.5
PATIENCE_SECONDS = 5.0
MESSAGE_EXPIRES_SECONDS = 60
BROKER_REST_SECONDS = 5.0
RECONNECT_SECONDS = 1.0
DRAIN_ROWS = 10_000
INLINE_THREADS = 4
SENDING_THREADS = 2
"""More threads than may do work, so that work that takes long keeps no message from being sent."""
RARE_SECONDS = 60.0
MOST_RARE = 2
"""How many routines of at least this silence are done side by side: some take long, and jobs wait for the frequent ones."""
RINGS = Counter(
    "switchyard_rings", "Routines triggered by the bell: sent to a worker, or run in the bell.", ["routine", "how"]
)
LEAVE_SECONDS = 8.0
"""How long a stopping bell waits for work that it has begun. The rest is left as after a crash: claims expire."""
STATES = """
SELECT name, rung_at, sent_at, started_at, finished_at, beat_at FROM foundation_routine WHERE name = ANY(%s) ORDER BY name
"""
LOCKED_STATES = f"{STATES} FOR NO KEY UPDATE"


class Broker(Protocol):
    """The calls that the bell makes to Celery."""

    def send_task(self, name: str, **options: Any) -> Any:
        """Puts a message in a queue."""


@dataclass(slots=True)
class Bell:
    """One bell loop. `patience_seconds`: how long it waits for a response to a message before it does the
    work itself.
    """

    schedules: Sequence[Schedule]
    broker: Broker
    patience_seconds: float = PATIENCE_SECONDS
    stopping: threading.Event = field(default_factory=threading.Event)
    _heard: set[str] = field(default_factory=set)
    """Routines that were announced and not rung yet. Announcements are hints: polling finds those that were missed."""
    _rung_at: dict[str, float] = field(default_factory=dict)
    """When each routine was last rung for an announcement."""
    _busy: dict[str, Schedule] = field(default_factory=dict)
    """The routines that are done here now."""
    _delivering: set[Future[None]] = field(default_factory=set)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _broker_rests_until: float = 0.0

    def run(self) -> bool:
        """Rings until `stopping` is set. Continues across restarts of PostgreSQL and of the broker.

        Returns whether all work begun here has ended; if not, the process must be ended with it.
        """
        pool = open_threads("bell", INLINE_THREADS + SENDING_THREADS)
        while not self.stopping.is_set():
            try:
                with _listening() as hear:
                    self._ring_while_connected(hear, pool)
            except (Error, psycopg.Error) as error:
                log.warning("the database does not answer (%s); trying again", type(error).__name__)
                connection.close()
                self.stopping.wait(RECONNECT_SECONDS)
        have_ended = wait_for_all(self._delivering, LEAVE_SECONDS)
        if have_ended:
            pool.close()
        return have_ended

    def _ring_while_connected(self, hear: Callable[[float], set[str]], pool: Threads) -> None:
        while not self.stopping.is_set():
            self._delivering = {future for future in self._delivering if not future.done()}
            for ring in self.take():
                self._delivering.add(pool.submit(self.deliver, ring))
            poll_at = monotonic() + POLL_SECONDS
            while (seconds := min(poll_at, self._next_ring_at()) - monotonic()) > 0 and not self.stopping.is_set():
                self._heard |= hear(seconds)

    def _next_ring_at(self) -> float:
        """When the first announced routine has waited long enough to gather further announcements."""
        return min((self._gathered_at(s) for s in self.schedules if s.name in self._heard), default=float("inf"))

    def _gathered_at(self, schedule: Schedule) -> float:
        return self._rung_at.get(schedule.name, float("-inf")) + schedule.gather_seconds

    def take(self) -> list[Ring]:
        """Claims the routines to ring now, in one transaction, so that no other bell rings them too."""
        at = monotonic()
        gathering = [schedule.name for schedule in self.schedules if self._gathered_at(schedule) > at]
        was_announced = not self._heard.issubset(gathering)
        self._heard.intersection_update(gathering)
        if not was_announced and not self._has_something(gathering):
            return []
        with transaction.atomic(), connection.cursor() as cursor:
            states, now = _locked_states(cursor, [schedule.name for schedule in self.schedules])
            # After the lock: a run that finished before is recorded, and one that finishes later sees our ring.
            announced = _drained(cursor, gathering)
            rings = decide(self.schedules, states, announced, now, timedelta(seconds=self.patience_seconds))
            for ring in rings:
                cursor.execute(
                    "UPDATE foundation_routine SET rung_at = CASE WHEN %s THEN clock_timestamp() ELSE rung_at END,"
                    " sent_at = CASE WHEN %s THEN clock_timestamp() ELSE sent_at END WHERE name = %s",
                    [ring.is_new, ring.how is not How.NOTE, ring.schedule.name],
                )
        self._rung_at.update(dict.fromkeys(announced, at))
        return [ring for ring in rings if ring.how is not How.NOTE]

    def _has_something(self, gathering: list[str]) -> bool:
        with connection.cursor() as cursor:
            cursor.execute("SELECT EXISTS (SELECT FROM foundation_outboxmessage WHERE topic <> ALL(%s))", [gathering])
            is_announced: bool = cursor.fetchone()[0]
            states, now = _states(cursor, [schedule.name for schedule in self.schedules])
        return is_announced or bool(
            decide(self.schedules, states, frozenset(), now, timedelta(seconds=self.patience_seconds))
        )

    def deliver(self, ring: Ring) -> None:
        """Sends the message; if that fails or got no response in time, does the work here. Never raises.

        If there is no room for it here, it sends another message: a worker may be there again.
        """
        schedule = ring.schedule
        if ring.how is How.SEND and self._send(schedule):
            return
        with self._lock:
            if schedule.name in self._busy:
                return
            has_room = self._has_room(schedule)
            if has_room:
                self._busy[schedule.name] = schedule
        if not has_room:
            if ring.how is How.INLINE:
                self._send(schedule)
            return
        RINGS.labels(schedule.name, "here").inc()
        try:
            close_old_connections()
            self._work_here(schedule)
        except Exception:
            log.exception("%s failed; the next attempt is in %g s", schedule.name, self.patience_seconds)
        finally:
            close_old_connections()
            with self._lock:
                del self._busy[schedule.name]

    def _has_room(self, schedule: Schedule) -> bool:
        rare = [one for one in self._busy.values() if one.every_seconds >= RARE_SECONDS]
        return len(self._busy) < INLINE_THREADS and (schedule.every_seconds < RARE_SECONDS or len(rare) < MOST_RARE)

    def _work_here(self, schedule: Schedule) -> None:
        """Does the routine's work until none is left or a worker is available again; checks for announcements between
        turns.
        """
        work = import_string(schedule.inline)
        if not schedule.in_turns:
            run_exclusively(schedule.name, work, for_seconds=0)
            return
        while stand_in(schedule.name, work, self.stopping):
            self._send(schedule)

    def _send(self, schedule: Schedule) -> bool:
        if monotonic() < self._broker_rests_until:
            return False
        try:
            self.broker.send_task(
                schedule.task,
                queue=schedule.queue,
                # A worker that returns after a long absence drops the rings that were answered without it.
                expires=MESSAGE_EXPIRES_SECONDS,
                ignore_result=True,
                retry=False,
            )
        except Exception as error:  # noqa: BLE001 - whatever the broker's client raises, the work is done here
            log.warning("the broker does not answer (%s); %s runs here", type(error).__name__, schedule.name)
            self._broker_rests_until = monotonic() + BROKER_REST_SECONDS
            return False
        RINGS.labels(schedule.name, "sent").inc()
        return True


def ensure_rows(schedules: Sequence[Schedule]) -> None:
    """Inserts a row for each routine that has none."""
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO foundation_routine (name, seconds, error) SELECT unnest(%s::text[]), 0, '' ON CONFLICT DO NOTHING",
            [[schedule.name for schedule in schedules]],
        )


def _states(cursor: Any, names: Sequence[str], statement: str = STATES) -> tuple[dict[str, RoutineState], datetime]:
    cursor.execute(statement, [list(names)])
    states = {row[0]: RoutineState(*row) for row in cursor.fetchall()}
    # Read the clock after waiting for a lock, not before.
    cursor.execute("SELECT clock_timestamp()")
    return states, cursor.fetchone()[0]


def _locked_states(cursor: Any, names: Sequence[str]) -> tuple[dict[str, RoutineState], datetime]:
    return _states(cursor, names, LOCKED_STATES)


def _drained(cursor: Any, gathering: list[str]) -> frozenset[str]:
    """Topics whose rows were taken. It skips those still gathering, and rows that another bell has locked."""
    cursor.execute(
        "DELETE FROM foundation_outboxmessage WHERE id IN (SELECT id FROM foundation_outboxmessage"
        " WHERE topic <> ALL(%s) ORDER BY id LIMIT %s FOR UPDATE SKIP LOCKED) RETURNING topic",
        [gathering, DRAIN_ROWS],
    )
    return frozenset(topic for (topic,) in cursor.fetchall())


@contextmanager
def _listening() -> Iterator[Callable[[float], set[str]]]:
    """A function that waits for an announcement up to a limit in seconds and returns the topics received, or none."""
    parameters = {**connection.get_connection_params(), "autocommit": True}
    parameters.pop("cursor_factory", None)
    parameters.pop("context", None)
    with psycopg.connect(**parameters) as listener:
        listener.execute(f"LISTEN {CHANNEL}")

        def hear(seconds: float) -> set[str]:
            return {notice.payload for notice in listener.notifies(timeout=seconds, stop_after=1)}

        yield hear
