"""Open drivers of this process: one event loop in a daemon thread, and for each cluster a guarded driver."""

import asyncio
import os
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar
from uuid import UUID

from .address import ClusterAddress
from .guard import guarded
from .port import Ambiguous, ClusterDriver
from .registry import kind_of

T = TypeVar("T")

_CLOSE_AFTER_SECONDS = 120.0


def open_driver(address: ClusterAddress) -> ClusterDriver:
    """A separate driver for the event loop that first uses it. The caller closes it."""
    return guarded(kind_of(address.server).driver_at(address))


def driver_for(address: ClusterAddress) -> ClusterDriver:
    """The driver of this process for the cluster, for coroutines passed to `run`. A new address creates a
    new driver.
    """
    return _process().driver_for(address)


def run(coroutine: Coroutine[Any, Any, T], timeout_seconds: float) -> T:
    """The coroutine's result, run in this process' loop. Raises Ambiguous on a time-out; never call it from
    that loop.
    """
    return _process().run(coroutine, timeout_seconds)


def start(coroutine: Coroutine[Any, Any, T]) -> "Future[T]":
    """Begins the coroutine in this process' loop, and does not wait for it."""
    return _process().start(coroutine)


def close_all() -> None:
    """Closes this process' drivers and ends its loop; the next call starts a new one."""
    global _current
    with _lock:
        process, _current = _current, None
    if process is not None and process.pid == os.getpid():
        process.stop()


Drivers = dict[UUID, tuple[ClusterAddress, ClusterDriver]]


class _Process:
    """The loop and drivers of one process; a forked child creates its own."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self._loop = asyncio.new_event_loop()
        self._drivers: Drivers = {}
        self._replaced: set[ClusterDriver] = set()
        self._thread = threading.Thread(target=self._turn, name="clusters", daemon=True)
        self._thread.start()

    def driver_for(self, address: ClusterAddress) -> ClusterDriver:
        with _lock:
            known = self._drivers.get(address.cluster_id)
            if known is not None and known[0] == address:
                return known[1]
            driver = open_driver(address)
            self._drivers[address.cluster_id] = address, driver
        if known is not None:
            self._loop.call_soon_threadsafe(self._close_later, known[1])
        return driver

    def run(self, coroutine: Coroutine[Any, Any, T], timeout_seconds: float) -> T:
        if threading.current_thread() is self._thread:
            coroutine.close()
            raise RuntimeError("run() was called from the clusters' own loop, which it would block")
        future = self.start(coroutine)
        try:
            return future.result(timeout_seconds)
        except TimeoutError:
            if future.done():
                raise
            future.cancel()
            raise Ambiguous(f"no answer within {timeout_seconds:g} s") from None

    def start(self, coroutine: Coroutine[Any, Any, T]) -> "Future[T]":
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    def stop(self) -> None:
        async def close() -> None:
            drivers = [*self._replaced, *(driver for _, driver in self._drivers.values())]
            await asyncio.gather(*(driver.close() for driver in drivers), return_exceptions=True)
            others = asyncio.all_tasks() - {asyncio.current_task()}
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)
            await self._loop.shutdown_asyncgens()

        asyncio.run_coroutine_threadsafe(close(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    def _turn(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()

    def _close_later(self, driver: ClusterDriver) -> None:
        """Pending calls finish on the old connection first."""
        self._replaced.add(driver)
        self._loop.call_later(_CLOSE_AFTER_SECONDS, lambda: self._loop.create_task(self._close(driver)))

    async def _close(self, driver: ClusterDriver) -> None:
        self._replaced.discard(driver)
        await driver.close()


_lock = threading.RLock()
_current: _Process | None = None


def _process() -> _Process:
    global _current  # noqa: PLW0603 - one per process is the point
    process = _current
    if process is not None and process.pid == os.getpid():
        return process
    with _lock:
        if _current is None or _current.pid != os.getpid():
            _current = _Process()
        return _current


def _after_fork() -> None:
    """The parent's thread does not exist here, and its lock may be locked."""
    global _lock, _current
    _lock, _current = threading.RLock(), None


os.register_at_fork(after_in_child=_after_fork)
