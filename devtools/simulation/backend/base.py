"""The gateway's own backend, in which an actor hands over before each statement and each commit.

A session survives its actor and serves the next one: to open one costs as much as a hundred statements. What the death
of a client ends (the transaction, session locks, settings) is ended here.
"""

import contextlib
import re
from collections.abc import Callable
from typing import Any, ClassVar

import psycopg
from django.db import OperationalError
from psycopg.pq import PipelineStatus, TransactionStatus

from devtools.simulation.actors import Died
from devtools.simulation.scheduler import Scheduler
from foundation.postgres import base

BEGAN = "SELECT set_config('simulation.began_us', %s, true)"
CLEAN = "SELECT pg_advisory_unlock_all()"


class ConnectionLost(psycopg.OperationalError):
    """The server is gone in the middle of a statement or commit."""


class Stage:
    """What all connections of one run share: the scheduler, and what may go wrong."""

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler
        self.fault_at_commit: Callable[[], str] = lambda: ""
        """`done` or `not_done`: the connection is lost at this commit, which took effect or not; else empty."""
        self.fault_at_statement: Callable[[], bool] = lambda: False
        self.on_notify: Callable[[list[str]], None] = lambda _: None
        """Called after a commit with the announced topics."""


class DatabaseWrapper(base.DatabaseWrapper):
    """Named by Django's convention."""

    stage: ClassVar[Stage | None] = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.execute_wrappers.append(self._step)
        self._spare: psycopg.Connection[Any] | None = None
        self._announced: list[str] = []
        self.pid = 0

    # -- what the scheduler calls -----------------------------------------------------------------------------------

    def cancel(self) -> None:
        """Ends the statement that waits."""
        if self.connection is not None:
            self.connection.cancel_safe()

    def abandon(self) -> None:
        """Ends the session's transaction, locks and settings, as the death of its client does."""
        raw = self.connection or self._spare
        self._announced = []
        if raw is None or raw.closed:
            return
        with contextlib.suppress(psycopg.Error):
            raw.rollback()
            if not raw.autocommit:
                raw.autocommit = True
            raw.execute(CLEAN)

    def ensure_is_fresh(self) -> None:
        """Makes this wrapper as good as new for the next actor, with the same session."""
        raw = self.connection or self._spare
        self.connection = None
        self._spare = None if raw is None or raw.closed else raw
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
        scheduler.give_way(_shortly(sql))
        if stage.fault_at_statement():
            self._lose(scheduler, "at a statement")
        scheduler.begin_statement()
        try:
            return self._executed(execute, sql, params, many, context)
        finally:
            scheduler.end_statement()

    def _executed(self, execute: Callable[..., Any], sql: str, params: Any, many: Any, context: Any) -> Any:
        assert self.stage is not None
        raw = self.connection
        if not raw.autocommit and raw.info.transaction_status == TransactionStatus.IDLE:
            raw.execute(BEGAN, [str(self.stage.scheduler.now_us)])
        done = execute(sql, params, many, context)
        if "pg_notify" in sql:
            self._announced += [str(topic) for topic in params[0]]
            if raw.autocommit:
                self._tell_announced()
        return done

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
            stage.scheduler.end_statement()
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

    def _tell_announced(self) -> None:
        topics, self._announced = self._announced, []
        if topics and self.stage is not None:
            self.stage.on_notify(topics)

    def _lose(self, scheduler: Scheduler, when: str) -> None:
        scheduler.note(f"{scheduler.current.name} loses its connection {when}\n")
        scheduler.tell(scheduler.current.name, f"loses its connection {when}")
        self.abandon()
        self.connection.close()
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
        self.pid = raw.info.backend_pid
        return raw

    def _close(self) -> None:
        if self.stage is not None and not self.stage.scheduler.current.is_dead:
            self.abandon()
        self._spare = self.connection


_SAVEPOINT = re.compile(r"s\d+_x\d+")
"""Its name contains the thread's number, which differs between runs."""


def _shortly(sql: str) -> str:
    return _SAVEPOINT.sub("savepoint", " ".join(str(sql).split())[:70])
