"""Sessions of the database that outlive the threads that used them.

A new session costs the server a process, and both sides the first plan of every statement: together a tenth of a second of a core.
A race opens up to two hundred, and a page of a live server one for each connection of the browser.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
from django.db import Error, connections
from psycopg.pq import TransactionStatus

from foundation.postgres.base import DatabaseWrapper
from tests.emptying import CLEAN

MOST = 32
"""The number that is kept: each takes some ten MiB of the server's memory."""
_new = DatabaseWrapper.get_new_connection


class KeptSessions:
    """Sessions that nobody uses now, each with the parameters that it was opened with."""

    def __init__(self) -> None:
        self._free: list[tuple[object, Any]] = []
        self._lock = threading.Lock()
        self._is_closed = False

    def put(self, kind: object, session: Any) -> bool:
        """Whether it is kept; if not, the caller closes it."""
        with self._lock:
            if self._is_closed or len(self._free) >= MOST:
                return False
            self._free.append((kind, session))
            return True

    def take(self, kind: object) -> Any:
        """A session of these parameters that still works; None if there is none."""
        while True:
            with self._lock:
                place = next((at for at, (one, _) in enumerate(self._free) if one == kind), None)
                if place is None:
                    return None
                _, session = self._free.pop(place)
            if _works(session):
                return session

    def close(self) -> None:
        """Closes all, and keeps no more."""
        with self._lock:
            self._is_closed = True
            ended, self._free = self._free, []
        for _, session in ended:
            session.close()


_lending: list[KeptSessions] = []


@contextmanager
def sessions_are_kept() -> Iterator[None]:
    """Meanwhile new connections go on with the sessions that threads ended with `end_sessions`."""
    kept = KeptSessions()
    _lending.append(kept)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            DatabaseWrapper, "get_new_connection", lambda self, given: kept.take(_kind(given)) or _new(self, given)
        )
        try:
            yield
        finally:
            _lending.remove(kept)
            kept.close()


def end_sessions() -> None:
    """Call it last in a thread: another one may go on with its sessions, which keep no setting, lock or subscription of it."""
    kept = _lending[-1] if _lending else None
    for wrapper in connections.all(initialized_only=True):
        assert isinstance(wrapper, DatabaseWrapper)
        if (
            kept is not None
            and _is_clean(wrapper)
            and kept.put(_kind(wrapper.get_connection_params()), wrapper.connection)
        ):
            wrapper.connection = None
        wrapper.close()


def _kind(parameters: dict[str, Any]) -> object:
    return tuple(
        (name, str(value)) for name, value in sorted(parameters.items()) if name not in {"context", "cursor_factory"}
    )


def _is_clean(wrapper: DatabaseWrapper) -> bool:
    session = wrapper.connection
    # The session itself is asked: between two tests, Django's own ways to it are closed.
    if session is None or session.closed or not session.autocommit:
        return False
    if session.info.transaction_status != TransactionStatus.IDLE:
        return False
    try:
        session.execute(CLEAN, prepare=False)
        wrapper.ensure_timezone()
    except (psycopg.Error, Error):
        return False
    return True


def _works(session: Any) -> bool:
    try:
        session.execute("SELECT 1", prepare=False)
    except psycopg.Error:
        session.close()
        return False
    return True
