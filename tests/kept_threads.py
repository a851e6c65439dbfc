"""Threads that outlive a test, with their sessions of the database: a new session costs the server a process and the
first plan of every statement, and a test of a live cluster would open eight.
"""

import os
from collections.abc import Callable
from typing import Any

from foundation.threads import DatabaseThreads, Pools, Threads

REST_SECONDS = 3600.0


class IdleThreads(DatabaseThreads):
    """Threads that can be waited for without an end to them, and do not end by themselves between two tests."""

    def __init__(self, name: str, count: int) -> None:
        super().__init__(name, count, rest_seconds=REST_SECONDS)

    def wait_until_idle(self) -> None:
        """Waits for running work."""
        with self._changed:
            self._changed.wait_for(lambda: not self._waiting and self._resting == self._serving)

    def _next(self) -> Any:
        with self._changed:
            self._changed.notify_all()
            return super()._next()


class LentThreads(IdleThreads):
    """Their next owner gets them when this one closes them."""

    def __init__(self, name: str, count: int, give_back: Callable[["LentThreads"], None]) -> None:
        super().__init__(name, count)
        self._give_back = give_back

    def close(self) -> None:
        """Waits for running work."""
        self.wait_until_idle()
        self._give_back(self)

    def end(self) -> None:
        """Ends the threads."""
        super().close()


class KeptPools(Pools):
    """The threads of all tests that use them. `close_kept_threads` ends those that are kept, as in production."""

    def __init__(self) -> None:
        super().__init__()
        self._free: dict[tuple[str, int], list[LentThreads]] = {}

    def open(self, name: str, count: int) -> Threads:
        """Threads that are free, or new ones."""
        free = self._free.setdefault((name, count), [])
        return free.pop() if free else LentThreads(name, count, free.append)

    def kept(self, name: str, count: int) -> Threads:
        """Of this number too: a test may change it."""
        with self._lock:
            return self._kept.setdefault((os.getpid(), f"{name} {count}"), IdleThreads(name, count))

    def wait_until_idle(self) -> None:
        """Waits for what a test began."""
        for threads in list(self._kept.values()):
            assert isinstance(threads, IdleThreads)
            threads.wait_until_idle()

    def end(self) -> None:
        """Ends all threads."""
        self.close_kept()
        for free in self._free.values():
            while free:
                free.pop().end()
