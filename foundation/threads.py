"""Threads that use the database.

Each keeps its own connection, drops a broken one before its next task, and closes it when the threads are closed or
after some idle time: a process with little work keeps few connections. A forked child never uses its parent's. A thread
that hangs does not keep a process from ending.
"""

import os
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any, TypeVar

from django.db import close_old_connections, connections

Result = TypeVar("Result")
REST_SECONDS = 20.0
"""After this time without work a thread ends, and closes its connection."""


class DatabaseThreads:
    """A bounded number of threads for work that uses the database, created on demand."""

    def __init__(self, name: str, count: int, *, rest_seconds: float = REST_SECONDS) -> None:
        self._name = name
        self._count = count
        self._rest_seconds = rest_seconds
        self._changed = threading.Condition()
        self._waiting: deque[Callable[[], None]] = deque()
        self._threads: set[threading.Thread] = set()
        self._serving = self._resting = 0
        self._is_closed = False

    def submit(self, work: Callable[..., Result], *args: Any) -> Future[Result]:
        """The future result of the work."""
        future: Future[Result] = Future()
        with self._changed:
            if self._is_closed:
                raise RuntimeError(f"the threads {self._name} are closed")
            self._waiting.append(partial(_fulfil, future, work, args))
            if self._resting >= len(self._waiting):
                self._changed.notify()
            elif self._serving < self._count:
                self._serving += 1
                thread = threading.Thread(target=self._serve, name=self._name, daemon=True)
                self._threads.add(thread)
                thread.start()
        return future

    def close(self) -> None:
        """Waits for running work, then closes every thread's connection."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
            threads = list(self._threads)
        for thread in threads:
            thread.join()

    def _serve(self) -> None:
        try:
            while (work := self._next()) is not None:
                work()
                del work  # otherwise the work's objects would live as long as the thread rests
        finally:
            connections.close_all()
            with self._changed:
                self._threads.discard(threading.current_thread())

    def _next(self) -> Callable[[], None] | None:
        with self._changed:
            self._resting += 1
            self._changed.wait_for(lambda: self._waiting or self._is_closed, self._rest_seconds)
            self._resting -= 1
            if self._waiting:
                return self._waiting.popleft()
            self._serving -= 1
            return None


def _fulfil(future: Future[Result], work: Callable[..., Result], args: tuple[Any, ...]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        close_old_connections()
        future.set_result(work(*args))
    except BaseException as error:  # noqa: BLE001 - the caller that waits for the result gets it
        future.set_exception(error)


_kept: dict[tuple[int, str], DatabaseThreads] = {}
_lock = threading.Lock()


def kept_threads(name: str, count: int) -> DatabaseThreads:
    """The threads of that name in this process, created on first use and kept."""
    with _lock:
        key = (os.getpid(), name)
        if key not in _kept:
            _kept[key] = DatabaseThreads(name, count)
        return _kept[key]


def close_kept_threads() -> None:
    """Closes all threads of this process; the next use creates new ones."""
    with _lock:
        own = [key for key in _kept if key[0] == os.getpid()]
        closing = [_kept.pop(key) for key in own]
    for threads in closing:
        threads.close()


os.register_at_fork(after_in_child=lambda: globals().update(_lock=threading.Lock()))
