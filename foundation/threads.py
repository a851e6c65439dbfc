"""Threads that talk to the database.

Each keeps its own connection, drops a broken one before the next piece of work, and closes it when the threads are
closed. A forked child never uses its parent's.
"""

import os
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from django.db import close_old_connections, connections

Result = TypeVar("Result")


class DatabaseThreads:
    """A fixed number of threads for work that uses the database."""

    def __init__(self, name: str, count: int) -> None:
        self._count = count
        self._pool = ThreadPoolExecutor(count, thread_name_prefix=name)

    def submit(self, work: Callable[..., Result], *args: Any) -> Future[Result]:
        """The work's result to come."""
        return self._pool.submit(_with_sound_connection, work, *args)

    def close(self) -> None:
        """Waits for the work under way, then closes every thread's connection."""
        all_here = threading.Barrier(self._count)

        def close_own() -> None:
            # Only when each thread has come here once have all closed theirs.
            all_here.wait()
            connections.close_all()

        for _ in range(self._count):
            self._pool.submit(close_own)
        self._pool.shutdown()


def _with_sound_connection(work: Callable[..., Result], *args: Any) -> Result:
    close_old_connections()
    return work(*args)


_kept: dict[tuple[int, str], DatabaseThreads] = {}
_lock = threading.Lock()


def kept_threads(name: str, count: int) -> DatabaseThreads:
    """The threads of that name in this process, made on first use and kept."""
    with _lock:
        key = (os.getpid(), name)
        if key not in _kept:
            _kept[key] = DatabaseThreads(name, count)
        return _kept[key]


def close_kept_threads() -> None:
    """Closes all threads that this process keeps; they are made anew on next use."""
    with _lock:
        own = [key for key in _kept if key[0] == os.getpid()]
        closing = [_kept.pop(key) for key in own]
    for threads in closing:
        threads.close()


os.register_at_fork(after_in_child=lambda: globals().update(_lock=threading.Lock()))
