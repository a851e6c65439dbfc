"""An event loop of one actor in simulated time: while nothing is ready, the actor sleeps and others run."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from .actors import Died
from .scheduler import MICROSECONDS, Scheduler

Result = TypeVar("Result")
MOST_TURNS_OF_THE_DEAD = 20


class _Selector:
    """Stands for the system call in which a loop waits."""

    def __init__(self, loop: "SimulatedLoop") -> None:
        self._loop = loop

    def select(self, timeout: float | None) -> list[Any]:
        """Waits in simulated time. A dead actor does not wait."""
        loop = self._loop
        if loop.is_dying:
            return []
        if timeout is None or timeout > 0:
            loop.scheduler.sleep(timeout)
        return []


class SimulatedLoop(asyncio.BaseEventLoop):
    """See the module."""

    def __init__(self, scheduler: Scheduler) -> None:
        super().__init__()
        self.scheduler = scheduler
        self.actor = scheduler.current
        self.is_dying = False
        self._selector = _Selector(self)
        self._clock_resolution = 1e-6

    def time(self) -> float:
        """Simulated seconds."""
        return self.scheduler.now_us / MICROSECONDS

    def _process_events(self, event_list: Any) -> None:
        """There are none."""

    def _write_to_self(self) -> None:
        """Another actor has something for this loop."""
        self.scheduler.wake(self.actor)

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        """What a dead process leaves behind is not reported."""
        if not self.is_dying:
            super().default_exception_handler(context)


def run(scheduler: Scheduler, main: Callable[[], Coroutine[Any, Any, Result]]) -> Result:
    """The result of the coroutine, run by the calling actor. When the actor dies, its tasks end without any effect."""
    loop = SimulatedLoop(scheduler)
    asyncio.set_event_loop(loop)
    try:
        return loop.run_until_complete(main())
    except Died:
        _bury(loop)
        raise
    finally:
        if not loop.is_dying:
            _cancel_rest(loop)
        asyncio.set_event_loop(None)
        loop.close()


def _cancel_rest(loop: SimulatedLoop) -> None:
    rest = sorted(asyncio.all_tasks(loop), key=lambda task: task.get_name())
    for task in rest:
        task.cancel()
    if rest:
        loop.run_until_complete(asyncio.gather(*rest, return_exceptions=True))


def _bury(loop: SimulatedLoop) -> None:
    """Lets the tasks of a dead process unwind: whatever they call raises Died."""
    loop.is_dying = True
    for task in asyncio.all_tasks(loop):
        task.cancel()
    for _ in range(MOST_TURNS_OF_THE_DEAD):
        if not asyncio.all_tasks(loop):
            break
        loop.call_soon(loop.stop)
        loop.run_forever()
