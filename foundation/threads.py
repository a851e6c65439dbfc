"""Threads that use the database.

Each keeps its own connection, drops a broken one before its next task, and closes it when the threads are closed or
after some idle time: a process with little work keeps few connections. A forked child never uses its parent's. A thread
that hangs does not keep a process from ending.
"""

import os
import threading
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_COMPLETED, Future, wait
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

from django.db import DEFAULT_DB_ALIAS, close_old_connections, connections

from .postgres.spares import close_spares

if TYPE_CHECKING:
    from .postgres.base import DatabaseWrapper

Result = TypeVar("Result")
REST_SECONDS = 20.0
"""After this time without work a thread ends, and closes its connection."""


class Threads(Protocol):
    """A bounded number of threads."""

    def submit(self, work: Callable[..., Result], *args: Any) -> Future[Result]:
        """The future result of the work."""

    def close(self) -> None:
        """Waits for running work, then ends the threads."""


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


class Pools:
    """The threads of this process; `devtools.simulation` replaces them by its own."""

    def __init__(self) -> None:
        self._kept: dict[tuple[int, str], Threads] = {}
        self._lock = threading.Lock()

    def open(self, name: str, count: int) -> Threads:
        """New threads."""
        return DatabaseThreads(name, count)

    def kept(self, name: str, count: int) -> Threads:
        """See `kept_threads`."""
        with self._lock:
            key = (os.getpid(), name)
            if key not in self._kept:
                self._kept[key] = self.open(name, count)
            return self._kept[key]

    def close_kept(self) -> None:
        """See `close_kept_threads`."""
        with self._lock:
            own = [key for key in self._kept if key[0] == os.getpid()]
            closing = [self._kept.pop(key) for key in own]
        for threads in closing:
            threads.close()

    def wait(self, futures: Iterable[Future[Any]], seconds: float, *, for_all: bool) -> bool:
        """See `wait_for_first` and `wait_for_all`."""
        if for_all:
            return not wait(list(futures), seconds).not_done
        return bool(wait(list(futures), seconds, return_when=FIRST_COMPLETED).done)

    def after_fork(self) -> None:
        """The parent's lock may be locked here."""
        self._lock = threading.Lock()


_pools = Pools()


def use_pools(other: Pools) -> None:
    """Replaces the threads of this process."""
    global _pools  # noqa: PLW0603 - one per process is the point
    _pools = other


def open_threads(name: str, count: int) -> Threads:
    """New threads for work that uses the database; their owner closes them."""
    return _pools.open(name, count)


def kept_threads(name: str, count: int) -> Threads:
    """The threads of that name in this process, created on first use and kept."""
    return _pools.kept(name, count)


def put_session_aside() -> None:
    """For a thread that does not use the database for long, outside transactions and without locks: another thread may go
    on with its session, and this one gets a session again when it asks for something.
    """
    cast("DatabaseWrapper", connections[DEFAULT_DB_ALIAS]).put_aside()


def close_kept_threads() -> None:
    """Closes all threads of this process and the sessions that they put aside; the next use creates new ones."""
    _pools.close_kept()
    close_spares()


def wait_for_first(futures: Iterable[Future[Any]], seconds: float) -> bool:
    """Whether one of them is done, after waiting for the first at most this long. Without futures it returns immediately."""
    return _pools.wait(futures, seconds, for_all=False)


def wait_for_all(futures: Iterable[Future[Any]], seconds: float) -> bool:
    """Whether all of them are done, after waiting at most this long."""
    return _pools.wait(futures, seconds, for_all=True)


os.register_at_fork(after_in_child=lambda: _pools.after_fork())  # noqa: PLW0108 - whichever is in use then
