"""Open drivers of this process: one event loop in a daemon thread, and for each cluster a driver isolated from the
others.

Each driver has its own limit of concurrent calls and a circuit breaker. After several failures in a row, the breaker
pauses calls to the cluster. Callers then get Unreachable immediately, so they do not wait for its time-outs. After the
pause, one call tests the cluster.
"""

import asyncio
import os
import random
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar
from uuid import UUID

from clusters.engine.escapes import Answered, Rehearsal
from clusters.engine.permissions import Right
from foundation.clock import monotonic

from .address import ClusterAddress
from .port import Ambiguous, ClusterDriver, JobSeen, PodSeen, RulesSeen, Unreachable, WatchEvent
from .registry import kind_of

T = TypeVar("T")

CONCURRENT_CALLS = 8
FAILURES_TO_OPEN = 5
_FIRST_PAUSE_SECONDS = 1.0
_LONGEST_PAUSE_SECONDS = 30.0
_CLOSE_AFTER_SECONDS = 120.0


def open_driver(address: ClusterAddress) -> "GuardedDriver":
    """A separate driver for the event loop that first uses it. The caller closes it."""
    return GuardedDriver(kind_of(address.server).driver_at(address))


def driver_for(address: ClusterAddress) -> "GuardedDriver":
    """The driver of this process for the cluster, for coroutines passed to `run`. A new address creates a
    new driver.
    """
    return _process().driver_for(address)


def run(coroutine: Coroutine[Any, Any, T], timeout_seconds: float) -> T:
    """The coroutine's result, run in this process' loop. Raises Ambiguous on a time-out; never call it from
    that loop.
    """
    return _process().run(coroutine, timeout_seconds)


def close_all() -> None:
    """Closes this process' drivers and ends its loop; the next call starts a new one."""
    global _current
    with _lock:
        process, _current = _current, None
    if process is not None and process.pid == os.getpid():
        process.stop()


@dataclass
class Breaker:
    """Closed: calls pass. Open: no call passes until `closed_until`; then one call at a time tests the cluster."""

    failures: int = 0
    open_until: float = 0.0
    last_reason: str = ""

    def admit(self) -> None:
        """Raises Unreachable while the circuit is open."""
        if self.failures < FAILURES_TO_OPEN:
            return
        now = monotonic()
        if now < self.open_until:
            raise Unreachable(f"calls are paused after {self.failures} failures: {self.last_reason}")
        self.open_until = now + self._pause()

    def succeeded(self) -> None:
        """The cluster responded, even if it refused the request."""
        self.failures = 0

    def failed(self, reason: str) -> None:
        """The cluster did not respond, or not properly."""
        self.failures += 1
        self.last_reason = reason
        if self.failures >= FAILURES_TO_OPEN:
            self.open_until = monotonic() + self._pause()

    def _pause(self) -> float:
        doubled: int = 2 ** min(max(self.failures - FAILURES_TO_OPEN, 0), 10)
        return min(_FIRST_PAUSE_SECONDS * doubled, _LONGEST_PAUSE_SECONDS) * random.uniform(0.5, 1)  # noqa: S311


class GuardedDriver:
    """A ClusterDriver behind a limit of concurrent calls and a circuit breaker. Neither applies to watches."""

    def __init__(self, driver: ClusterDriver, *, concurrent_calls: int = CONCURRENT_CALLS) -> None:
        self._driver = driver
        self._calls = asyncio.Semaphore(concurrent_calls)
        self.breaker = Breaker()

    async def _guarded(self, call: Callable[[], Awaitable[T]]) -> T:
        self.breaker.admit()
        async with self._calls:
            try:
                answer = await call()
            except (Unreachable, Ambiguous) as error:
                self.breaker.failed(error.reason)
                raise
            except Exception:
                self.breaker.succeeded()
                raise
        self.breaker.succeeded()
        return answer

    async def version(self) -> str:
        """See ClusterDriver."""
        return await self._guarded(self._driver.version)

    async def identity(self) -> str:
        """See ClusterDriver."""
        return await self._guarded(self._driver.identity)

    async def clock_skew_ms(self) -> int:
        """See ClusterDriver."""
        return await self._guarded(self._driver.clock_skew_ms)

    async def rules(self, namespace: str) -> RulesSeen:
        """See ClusterDriver."""
        return await self._guarded(lambda: self._driver.rules(namespace))

    async def may(self, right: Right, namespace: str = "") -> bool:
        """See ClusterDriver."""
        return await self._guarded(lambda: self._driver.may(right, namespace))

    async def api_groups(self) -> frozenset[str]:
        """See ClusterDriver."""
        return await self._guarded(self._driver.api_groups)

    async def rehearse(self, rehearsal: Rehearsal) -> Answered:
        """See ClusterDriver."""
        return await self._guarded(lambda: self._driver.rehearse(rehearsal))

    async def any_pod(self, namespace: str) -> str:
        """See ClusterDriver."""
        return await self._guarded(lambda: self._driver.any_pod(namespace))

    async def ensure_namespace(
        self, name: str, labels: Mapping[str, str], policies: Sequence[Mapping[str, Any]] = ()
    ) -> None:
        """See ClusterDriver."""
        await self._guarded(lambda: self._driver.ensure_namespace(name, labels, policies))

    async def put_network_policy(self, manifest: Mapping[str, Any]) -> None:
        """See ClusterDriver."""
        await self._guarded(lambda: self._driver.put_network_policy(manifest))

    async def ensure_claim_template(self, manifest: Mapping[str, Any]) -> None:
        """See ClusterDriver."""
        await self._guarded(lambda: self._driver.ensure_claim_template(manifest))

    async def create_job(self, manifest: Mapping[str, Any]) -> str:
        """See ClusterDriver."""
        return await self._guarded(lambda: self._driver.create_job(manifest))

    async def get_job(self, namespace: str, name: str) -> JobSeen:
        """See ClusterDriver."""
        return await self._guarded(lambda: self._driver.get_job(namespace, name))

    async def release_job(self, namespace: str, name: str, uid: str, template_patch: Mapping[str, Any]) -> None:
        """See ClusterDriver."""
        await self._guarded(lambda: self._driver.release_job(namespace, name, uid, template_patch))

    async def delete_job(self, namespace: str, name: str, uid: str) -> None:
        """See ClusterDriver."""
        await self._guarded(lambda: self._driver.delete_job(namespace, name, uid))

    async def list_jobs(self) -> Sequence[JobSeen]:
        """See ClusterDriver."""
        return await self._guarded(self._driver.list_jobs)

    async def list_pods(self, namespace: str, job_name: str) -> Sequence[PodSeen]:
        """See ClusterDriver."""
        return await self._guarded(lambda: self._driver.list_pods(namespace, job_name))

    async def open_gate(
        self, namespace: str, pod: str, uid: str, gate: str, wishes: Sequence[Mapping[str, Any]] = ()
    ) -> None:
        """See ClusterDriver."""
        return await self._guarded(lambda: self._driver.open_gate(namespace, pod, uid, gate, wishes))

    async def read_log(self, namespace: str, pod: str, *, tail_lines: int, limit_bytes: int) -> str:
        """See ClusterDriver."""
        return await self._guarded(
            lambda: self._driver.read_log(namespace, pod, tail_lines=tail_lines, limit_bytes=limit_bytes)
        )

    def watch_nodes(self) -> AsyncIterator[WatchEvent]:
        """See ClusterDriver."""
        return self._driver.watch_nodes()

    def watch_pods(self) -> AsyncIterator[WatchEvent]:
        """See ClusterDriver."""
        return self._driver.watch_pods()

    def watch_jobs(self) -> AsyncIterator[WatchEvent]:
        """See ClusterDriver."""
        return self._driver.watch_jobs()

    async def device_classes(self) -> frozenset[str]:
        """See ClusterDriver."""
        return await self._guarded(self._driver.device_classes)

    def watch_slices(self) -> AsyncIterator[WatchEvent]:
        """See ClusterDriver."""
        return self._driver.watch_slices()

    def watch_claims(self) -> AsyncIterator[WatchEvent]:
        """See ClusterDriver."""
        return self._driver.watch_claims()

    async def close(self) -> None:
        """See ClusterDriver."""
        await self._driver.close()


Drivers = dict[UUID, tuple[ClusterAddress, GuardedDriver]]


class _Process:
    """The loop and drivers of one process; a forked child creates its own."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self._loop = asyncio.new_event_loop()
        self._drivers: Drivers = {}
        self._replaced: set[GuardedDriver] = set()
        self._thread = threading.Thread(target=self._turn, name="clusters", daemon=True)
        self._thread.start()

    def driver_for(self, address: ClusterAddress) -> GuardedDriver:
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
        future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            return future.result(timeout_seconds)
        except TimeoutError:
            if future.done():
                raise
            future.cancel()
            raise Ambiguous(f"no answer within {timeout_seconds:g} s") from None

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

    def _close_later(self, driver: GuardedDriver) -> None:
        """Pending calls finish on the old connection first."""
        self._replaced.add(driver)
        self._loop.call_later(_CLOSE_AFTER_SECONDS, lambda: self._loop.create_task(self._close(driver)))

    async def _close(self, driver: GuardedDriver) -> None:
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
