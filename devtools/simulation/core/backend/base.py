"""The gateway's own backend, in which an actor hands over before each statement and each commit.

A session survives its actor and serves the next one: to open one costs as much as a hundred statements. What the death
of a client ends (the transaction, session locks, settings) is ended here. A session whose actor sleeps without a transaction
and without locks serves others meanwhile: each session plans each statement again in each run.
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

from devtools.simulation.core.actors import Died
from devtools.simulation.core.patience import Patience
from devtools.simulation.core.scheduler import Scheduler
from devtools.simulation.core.sessions import CLEAN, Sessions
from devtools.simulation.core.statements import Statements
from foundation.postgres import base

BEGAN = "SELECT set_config('simulation.began_us', %s, true), set_config('simulation.actor', %s, true)"
BEFORE_ALL = "SET TRANSACTION"
"""What must come before the first query of a transaction, also before one that sets the clock."""
LONGEST_BEGINNING = 400
"""More characters of a statement than it takes to name it."""


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
    sessions: ClassVar[Sessions] = Sessions()

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.execute_wrappers.append(self._step)
        self._spare: psycopg.Connection[Any] | None = None
        self._announced: list[str] = []
        self._locks = 0
        """How many locks the session has outside transactions."""
        self._is_asking = False
        """Whether a statement is about to be sent."""
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
        locks, self._locks = self._locks, 0
        if raw is None or raw.closed:
            return
        if self.stage is not None:
            self.stage.scheduler.note_release()
        with contextlib.suppress(psycopg.Error):
            raw.rollback()
            if locks or self.stage is None:
                raw.execute(CLEAN)

    def rest(self) -> None:
        """Its actor sleeps: a session that holds nothing serves others meanwhile."""
        if not self.in_atomic_block:
            self.lend()

    def lend(self) -> None:
        """Others run before the next statement of its actor: the same, also before the first of a transaction."""
        raw = self._session()
        if raw is None or self._locks or self._is_asking:
            return
        if raw.pgconn.transaction_status == TransactionStatus.IDLE:
            self.leave()

    def leave(self) -> None:
        """The actor does not need the session, which holds nothing: it serves others."""
        raw, self._spare = self._session(), None
        if self.connection is not self.closed:
            self.connection = None
        if raw is not None and not raw.closed:
            self.sessions.give_back(raw)

    def ensure_is_fresh(self) -> None:
        """Makes this wrapper as good as new for the next actor."""
        self.connection = None
        self._announced = []
        self._locks = 0
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
        self._use_session_of_now(context["cursor"])
        if about.locks_rows:
            self._is_asking = True
            try:
                stage.before_lock(str(sql), params)
            finally:
                self._is_asking = False
        if stage.fault_at_statement():
            self._lose(scheduler, "at a statement")
        scheduler.begin_statement()
        try:
            return self._executed(execute, sql, params, many, context)
        finally:
            scheduler.end_statement(may_release=self._may_have_released(about))

    def _use_session_of_now(self, wrapper: Any) -> None:
        """While its actor did not run, its session may have served others: the cursor goes on in the one that the actor has now."""
        self._take_back()
        if wrapper.cursor.connection is not self.connection:
            wrapper.cursor = self.create_cursor()

    def _take_back(self) -> None:
        if self.connection is None:
            self.connection = self.get_new_connection(None)

    def chunked_cursor(self) -> Any:
        """One that reads all rows: what is read in parts would need its session until the end."""
        return self.cursor()

    def _may_have_released(self, about: "_About") -> bool:
        """Whether the statement may have released locks: it ended a transaction or a part of one, or unlocked something."""
        if self.connection is None:
            return True
        return self.connection.pgconn.transaction_status not in _WITHIN or about.is_unlocking or about.ends_savepoint

    def _executed(self, execute: Callable[..., Any], sql: str, params: Any, many: Any, context: Any) -> Any:
        assert self.stage is not None
        raw, scheduler = self.connection, self.stage.scheduler
        if not self.autocommit and raw.pgconn.transaction_status == TransactionStatus.IDLE:
            if str(sql).startswith(BEFORE_ALL):
                scheduler.sync_clock()  # in a separate session
            self._begin(scheduler)
        about = _about(sql)
        if about.reads_clock:
            scheduler.sync_clock()
        done = execute(sql, params, many, context)
        if about.is_locking:
            self._locks += context["cursor"].cursor.pgresult.get_value(0, 0) in _TRUE
        elif about.is_unlocking:
            self._locks = max(0, self._locks - 1)
        if about.announces:
            self._announced += [str(topic) for topic in params["topics"]]
            if self.autocommit:
                self._tell_announced()
        return done

    def _begin(self, scheduler: Scheduler) -> None:
        """Begins the transaction, and keeps its time and whose it is, in one round trip."""
        raw = self.connection
        if raw.pgconn.pipeline_status == PipelineStatus.ON:
            raw.execute("BEGIN", prepare=False)
            raw.execute(BEGAN, [str(scheduler.now_us), scheduler.current.name])
            return
        clock = scheduler.take_clock()
        with raw.lock:
            raw.wait(_sent(raw.pgconn, f"BEGIN; {_beginning(scheduler)}{clock}"))

    def _set_autocommit(self, autocommit: bool) -> None:  # noqa: FBT001 - as Django calls it
        """Sessions are never without autocommit: `_begin` begins transactions."""
        if self.stage is None:
            super()._set_autocommit(autocommit)  # type: ignore[misc]

    def _commit(self) -> None:
        stage = self.stage
        if stage is None or self.connection is None:
            super()._commit()  # type: ignore[misc]
            return
        stage.scheduler.give_way("COMMIT")
        self._take_back()
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

    def ensure_connection(self) -> None:
        """Django's own, without its preparations: sessions are all alike."""
        if self.connection is None and self.stage is not None and not self.closed_in_transaction:
            self.connection = self.get_new_connection(None)
            self.autocommit = True
            self.errors_occurred = self.needs_rollback = False
            self.run_on_commit = []
        else:
            super().ensure_connection()

    def get_new_connection(self, conn_params: dict[str, Any] | None) -> Any:
        """The session that is left of an earlier connection or actor, or a new one."""
        if self.stage is not None and self.stage.scheduler.current.is_dead:
            raise Died
        raw, self._spare = self._spare, None
        if raw is None or raw.closed:
            raw = None if self.stage is None else self.sessions.take()
        if raw is None:
            raw = super().get_new_connection(conn_params or self.get_connection_params())
            raw.autocommit = True
            if self.stage is not None:
                raw._prepared = Statements()  # noqa: SLF001 - psycopg has no other way to say what is prepared
                raw.wait = partial(Patience(raw.fileno(), self._bide).await_, raw)
                raw.pipeline = partial(self._pipeline, raw)
                self.sessions.add(raw)
        if self.stage is not None:
            self.sessions.forget_plans(raw)
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


_TRUE = (b"t", b"\x01")
"""As text, and as PostgreSQL's binary format has it."""


class _About(NamedTuple):
    """A statement: what it is called in the digest, whether it may read the clock, and whether it locks rows. A write may, in a trigger; what a read
    calls does not (`Watch.rules` makes sure). Further, what it does to locks that outlast transactions.
    """

    name: str
    reads_clock: bool
    locks_rows: bool
    announces: bool
    is_locking: bool
    is_unlocking: bool
    ends_savepoint: bool


@lru_cache(maxsize=8192)
def _about_text(sql: str) -> _About:
    name = _SAVEPOINT.sub("savepoint", " ".join(sql[:LONGEST_BEGINNING].split())[:70])
    is_read = name.startswith(("SELECT", "SAVEPOINT", "RELEASE", "ROLLBACK", "SET"))
    return _About(
        name,
        not is_read or bool(_CLOCK.search(sql)),
        "FOR NO KEY UPDATE" in sql,
        announces="pg_notify" in sql,
        is_locking="pg_try_advisory_lock(" in sql,
        is_unlocking="pg_advisory_unlock(" in sql,
        ends_savepoint=sql.startswith(("ROLLBACK", "RELEASE")),
    )


def _about(sql: Any) -> _About:
    return _about_text(sql if type(sql) is str else str(sql))
