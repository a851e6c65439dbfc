"""Database sessions that are put aside: a thread that waits long for something else gives its session to the next one.

A new session costs the server a process and the first plan of every statement; one that is put aside costs neither.
"""

import os
import threading
from typing import Any, NamedTuple

from psycopg import Error
from psycopg.pq import TransactionStatus

from foundation.clock import monotonic

MOST = 2
"""The number that a process keeps."""
OLDEST_SECONDS = 20.0
CHECKED_AFTER_SECONDS = 1.0


class _Spare(NamedTuple):
    session: Any
    since: float


_spares: list[_Spare] = []
_lock = threading.Lock()


def put_aside(session: Any) -> bool:
    """Whether the session is kept for `take`; if not, the caller must close it. It must hold no locks."""
    is_idle = not session.closed and session.info.transaction_status == TransactionStatus.IDLE
    with _lock:
        if not is_idle or len(_spares) >= MOST:
            return False
        _spares.append(_Spare(session, monotonic()))
        return True


def take() -> Any:
    """A session that was put aside and still works; None if there is none."""
    while True:
        with _lock:
            if not _spares:
                return None
            session, since = _spares.pop()
        if _works(session, monotonic() - since):
            return session
        session.close()


def _works(session: Any, rested_seconds: float) -> bool:
    if rested_seconds > OLDEST_SECONDS:
        return False
    try:
        if rested_seconds > CHECKED_AFTER_SECONDS:
            session.execute("SELECT 1")
    except Error:
        return False
    return not session.closed


def close_spares() -> None:
    """Closes all of this process."""
    with _lock:
        spares, _spares[:] = list(_spares), []
    for spare in spares:
        spare.session.close()


def _forget() -> None:
    """A forked child has none of its parent's sessions; the parent may have held the lock."""
    global _lock  # noqa: PLW0603 - one per process is the point
    _lock = threading.Lock()
    _spares.clear()


os.register_at_fork(after_in_child=_forget)
