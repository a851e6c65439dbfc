"""Isolates a cluster's driver: a limit of concurrent calls, and a circuit breaker.

After several failures in a row, the breaker pauses calls to the cluster. Callers then get Unreachable immediately, so
they do not wait for its time-outs. After the pause, one call tests the cluster.

The guard declares no methods. It wraps every method of the port, and the port says beside a method if it is
`unguarded`.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial, wraps
from inspect import getmembers, iscoroutinefunction, isfunction
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

from foundation.clock import monotonic
from foundation.host import host

from .port import Ambiguous, ClusterDriver, Unreachable, is_unguarded

P = ParamSpec("P")
T = TypeVar("T")

CONCURRENT_CALLS = 8
FAILURES_TO_OPEN = 5
_FIRST_PAUSE_SECONDS = 1.0
_LONGEST_PAUSE_SECONDS = 30.0


def guarded(
    driver: ClusterDriver, *, concurrent_calls: int = CONCURRENT_CALLS, breaker: "Breaker | None" = None
) -> ClusterDriver:
    """The driver behind a limit of concurrent calls and a circuit breaker, a new one unless one is given."""
    # A class that is made from the port has the port's methods, which a type checker cannot see.
    return cast("ClusterDriver", _GuardedDriver(driver, concurrent_calls, breaker))


@dataclass
class Breaker:
    """Closed: calls pass. Open: no call passes until `open_until`; then one call at a time tests the cluster."""

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
        return min(_FIRST_PAUSE_SECONDS * doubled, _LONGEST_PAUSE_SECONDS) * host().chance().uniform(0.5, 1)


class Guard:
    """What the wrapped methods of one driver share. Its own names are private, so that none hides a port's method."""

    def __init__(
        self, driver: object, concurrent_calls: int = CONCURRENT_CALLS, breaker: Breaker | None = None
    ) -> None:
        self._driver = driver
        self._places = asyncio.Semaphore(concurrent_calls)
        self._breaker = breaker or Breaker()

    async def _call(self, method: Callable[[], Awaitable[T]]) -> T:
        """The method's answer. Raises what it raises, and Unreachable while calls are paused."""
        self._breaker.admit()
        async with self._places:
            try:
                answer = await method()
            except (Unreachable, Ambiguous) as error:
                self._breaker.failed(error.reason)
                raise
            except Exception:
                self._breaker.succeeded()
                raise
        self._breaker.succeeded()
        return answer


def guard_class(port: type) -> type[Guard]:
    """A class with every public method of the port, each of which calls the driver's method of the same name."""
    methods = [method for name, method in getmembers(port, isfunction) if not name.startswith("_")]
    wrapped = {method.__name__: _passed_on(method) if is_unguarded(method) else _guarded(method) for method in methods}
    return type(f"Guarded{port.__name__}", (Guard,), wrapped)


def _guarded(method: Callable[Concatenate[Any, P], Awaitable[T]]) -> Callable[Concatenate[Guard, P], Awaitable[T]]:
    if not iscoroutinefunction(method):
        raise TypeError(f"{method.__qualname__} must be `async` to be guarded, or be marked `unguarded`")

    @wraps(method)
    async def call(self: Guard, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._call(partial(getattr(self._driver, method.__name__), *args, **kwargs))

    return call


def _passed_on(method: Callable[Concatenate[Any, P], T]) -> Callable[Concatenate[Guard, P], T]:
    @wraps(method)
    def call(self: Guard, /, *args: P.args, **kwargs: P.kwargs) -> T:
        answer: T = getattr(self._driver, method.__name__)(*args, **kwargs)
        return answer

    return call


_GuardedDriver = guard_class(ClusterDriver)
