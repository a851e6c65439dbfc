"""The gateway's own backend, in which an actor hands over before each statement and each commit.

A session survives its actor and serves the next one: to open one costs as much as a hundred statements. What the death
of a client ends (the transaction, session locks, settings) is ended here.
"""

import contextlib
import re
from collections.abc import Callable, Generator, Iterator
from functools import lru_cache, partial
from typing import Any, ClassVar, NamedTuple

import psycopg
from django.db import OperationalError
from psycopg import generators
from psycopg.errors import error_from_result
from psycopg.pq import ExecStatus, PipelineStatus, TransactionStatus

from devtools.simulation.actors import Died
from devtools.simulation.patience import Patience
from devtools.simulation.scheduler import Scheduler
from foundation.postgres import base

BEGAN = "SELECT set_config('simulation.began_us', %s, true), set_config('simulation.actor', %s, true)"
LONGEST_BEGINNING = 400
"""More characters of a statement than it takes to name it."""
CLEAN = "SELECT pg_advisory_unlock_all()"
FORGET = "DISCARD PLANS"
"""A plan follows from the state of the tables when it was made: in each run of a seed it must be made at the same step."""


class ConnectionLost(psycopg.OperationalError):
    """The server is gone in the middle of a statement or commit."""


class Stage:
    """What all connections of one run share: the scheduler, and what may go wrong."""

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler
        self.fault_at_commit: Callable[[], str] = lambda: ""
        """`done` or `not_done`: the connection is lost at this commit, which took effect or not; else empty."""
        self.fault_at_statement: Callable[[], bool] = lambda: False
        self.before_lock: Callable[[str, Any], None] = lambda _sql, _params: None
        """Called before a statement that locks rows."""
        self.on_notify: Callable[[list[str]], None] = lambda _: None
        """Called after a commit with the announced topics."""


class DatabaseWrapper(base.DatabaseWrapper):
    """Named by Django's convention."""

    stage: ClassVar[Stage | None] = None
    closed: ClassVar[psycopg.Connection[Any] | None] = None
    """What every client has whose connection is lost."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.execute_wrappers.append(self._step)
        self._spare: psycopg.Connection[Any] | None = None
        self._stage: Stage | None = None
        """The last run in which the session forgot its plans."""
        self._announced: list[str] = []
        self.pid = 0

    # -- what the scheduler calls -----------------------------------------------------------------------------------

    def cancel(self) -> None:
        """Ends the statement that waits."""
        if self.connection is not None:
            self.connection.cancel_safe()

    def abandon(self) -> None:
        """Ends the session's transaction, locks and settings, as the death of its client does."""
        raw = self._session()
        self._announced = []
        if raw is None or raw.closed:
            return
        if self.stage is not None:
            self.stage.scheduler.note_release()
        with contextlib.suppress(psycopg.Error):
            raw.rollback()
            if not raw.autocommit:
                raw.autocommit = True
            raw.execute(CLEAN)

    def ensure_is_fresh(self) -> None:
        """Makes this wrapper as good as new for the next actor, with the same session."""
        raw = self._session()
        self.connection = None
        self._spare = raw = None if raw is None or raw.closed else raw
        if raw is not None and self._stage is not self.stage:
            raw.execute(FORGET, prepare=False)
        self._stage = self.stage
        self._announced = []
        self.in_atomic_block = False
        self.savepoint_ids = []
        self.atomic_blocks = []
        self.needs_rollback = False
        self.closed_in_transaction = False
        self.errors_occurred = False
        self.run_on_commit = []
        self.run_commit_hooks_on_set_autocommit_on = False
        self.rollback_exc = None

    def _session(self) -> Any:
        return self._spare if self.connection is None or self.connection is self.closed else self.connection

    # -- steps ------------------------------------------------------------------------------------------------------

    def _step(self, execute: Callable[..., Any], sql: str, params: Any, many: Any, context: Any) -> Any:
        stage = self.stage
        if stage is None:
            return execute(sql, params, many, context)
        scheduler = stage.scheduler
        if self.connection.pgconn.pipeline_status == PipelineStatus.ON:
            if scheduler.current.is_dead:
                raise Died
            return self._executed(execute, sql, params, many, context)
        about = _about(sql)
        scheduler.give_way(about.name)
        if about.locks_rows:
            stage.before_lock(str(sql), params)
        if stage.fault_at_statement():
            self._lose(scheduler, "at a statement")
        scheduler.begin_statement()
        try:
            return self._executed(execute, sql, params, many, context)
        finally:
            scheduler.end_statement(may_release=self._may_have_released(sql))

    def _may_have_released(self, sql: str) -> bool:
        """Whether the statement may have released locks: it ended a transaction or a part of one, or unlocked something."""
        if self.connection is None:
            return True
        is_in_transaction = self.connection.pgconn.transaction_status in _WITHIN
        return not is_in_transaction or "unlock" in sql or sql.startswith(("ROLLBACK", "RELEASE"))

    def _executed(self, execute: Callable[..., Any], sql: str, params: Any, many: Any, context: Any) -> Any:
        assert self.stage is not None
        raw, scheduler = self.connection, self.stage.scheduler
        if not raw.autocommit and raw.pgconn.transaction_status == TransactionStatus.IDLE:
            self._begin(scheduler)
        if _about(sql).reads_clock:
            scheduler.sync_clock()
        done = execute(sql, params, many, context)
        if "pg_notify" in sql:
            self._announced += [str(topic) for topic in params["topics"]]
            if raw.autocommit:
                self._tell_announced()
        return done

    def _begin(self, scheduler: Scheduler) -> None:
        """Begins the transaction, and keeps its time and whose it is, in one round trip."""
        raw = self.connection
        if raw.pgconn.pipeline_status == PipelineStatus.ON:
            raw.execute(BEGAN, [str(scheduler.now_us), scheduler.current.name])
            return
        begin = raw._get_tx_start_command().decode()  # noqa: SLF001
        with raw.lock:
            raw.wait(_sent(raw.pgconn, f"{begin}; {_beginning(scheduler)}"))

    def _commit(self) -> None:
        stage = self.stage
        if stage is None or self.connection is None:
            super()._commit()  # type: ignore[misc]
            return
        stage.scheduler.give_way("COMMIT")
        fault = stage.fault_at_commit()
        if fault == "not_done":
            self._lose(stage.scheduler, "at COMMIT, which is not done")
        stage.scheduler.begin_statement()
        try:
            super()._commit()  # type: ignore[misc]
        finally:
            stage.scheduler.end_statement(may_release=True)
        if fault == "done":
            self._tell_announced()
            self._lose(stage.scheduler, "at COMMIT, which is done")
        self._tell_announced()

    def _rollback(self) -> None:
        self._announced = []
        stage = self.stage
        if stage is not None and stage.scheduler.current.is_dead:
            return  # `abandon` did it
        super()._rollback()  # type: ignore[misc]
        if stage is not None:
            stage.scheduler.note_release()

    def _tell_announced(self) -> None:
        topics, self._announced = self._announced, []
        if topics and self.stage is not None:
            self.stage.on_notify(topics)

    def _lose(self, scheduler: Scheduler, when: str) -> None:
        scheduler.note(f"{scheduler.current.name} loses its connection {when}\n")
        scheduler.tell(scheduler.current.name, f"loses its connection {when}")
        self.abandon()
        # The session serves on: nothing is left of what it did. Its client sees a connection that is closed.
        if self.closed is None:
            DatabaseWrapper.closed = super().get_new_connection(self.get_connection_params())
            DatabaseWrapper.closed.close()
        self._spare, self.connection = self.connection, self.closed
        raise OperationalError("the connection is lost") from ConnectionLost(
            "server closed the connection unexpectedly"
        )

    # -- sessions ---------------------------------------------------------------------------------------------------

    def get_new_connection(self, conn_params: dict[str, Any]) -> Any:
        """The session that is left of an earlier actor, or a new one."""
        if self.stage is not None and self.stage.scheduler.current.is_dead:
            raise Died
        raw, self._spare = self._spare, None
        if raw is None or raw.closed:
            raw = super().get_new_connection(conn_params)
            raw.autocommit = True
            if self.stage is not None:
                raw.prepare_threshold, raw.prepared_max = 0, None
            raw.wait = partial(Patience(raw.fileno(), self._bide).await_, raw)
            raw.pipeline = partial(self._pipeline, raw)
        self.pid = raw.info.backend_pid
        return raw

    @contextlib.contextmanager
    def _pipeline(self, raw: psycopg.Connection[Any]) -> Iterator[psycopg.Pipeline]:
        """Psycopg's own, as one statement for the scheduler: any of them may wait for a lock, and is waited for at the end."""
        stage = self.stage
        if stage is None or raw.pgconn.pipeline_status == PipelineStatus.ON:
            with type(raw).pipeline(raw) as pipeline:
                yield pipeline
            return
        stage.scheduler.begin_statement()
        try:
            with type(raw).pipeline(raw) as pipeline:
                yield pipeline
        finally:
            stage.scheduler.end_statement(may_release=False)

    def put_aside(self) -> None:
        """An actor's session is its own until it ends."""
        self.close()

    def _bide(self) -> None:
        if self.stage is not None:
            self.stage.scheduler.bide()

    def _close(self) -> None:
        if self.connection is None or self.connection is self.closed:
            return
        if self.stage is not None and not self.stage.scheduler.current.is_dead:
            self.abandon()
        self._spare = self.connection


def _beginning(scheduler: Scheduler) -> str:
    return (
        f"SET LOCAL simulation.began_us = {scheduler.now_us}; SET LOCAL simulation.actor = '{scheduler.current.name}'"
    )


def _sent(session: Any, statements: str) -> Generator[Any, Any, None]:
    """The steps of sending statements in one message."""
    session.send_query(statements.encode())
    for result in (yield from generators.execute(session)):
        if result.status not in (ExecStatus.COMMAND_OK, ExecStatus.TUPLES_OK):
            raise error_from_result(result)


_WITHIN = (TransactionStatus.INTRANS, TransactionStatus.INERROR)
_SAVEPOINT = re.compile(r"s\d+_x\d+")
"""Its name contains the thread's number, which differs between runs."""


_CLOCK = re.compile(r"timestamp|now\(|current_date|current_time|localtime", re.IGNORECASE)


class _About(NamedTuple):
    """A statement: what it is called in the digest, whether it may read the clock, and whether it locks rows. A write may, in a trigger; what a read
    calls does not (`Watch.rules` makes sure).
    """

    name: str
    reads_clock: bool
    locks_rows: bool


@lru_cache(maxsize=8192)
def _about_text(sql: str) -> _About:
    name = _SAVEPOINT.sub("savepoint", " ".join(sql[:LONGEST_BEGINNING].split())[:70])
    is_read = name.startswith(("SELECT", "SAVEPOINT", "RELEASE", "ROLLBACK", "SET"))
    return _About(name, not is_read or bool(_CLOCK.search(sql)), "FOR NO KEY UPDATE" in sql)


def _about(sql: Any) -> _About:
    return _about_text(sql if type(sql) is str else str(sql))
