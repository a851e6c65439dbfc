"""Simulated processes, their threads, and the host that they see."""

import asyncio
import contextlib
import random
import sys
from collections import deque
from collections.abc import Callable, Coroutine, Iterable
from concurrent.futures import Future
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, TypeVar
from uuid import UUID

from django.db import close_old_connections, connections

from clusters.drivers import Ambiguous
from clusters.drivers.address import ClusterAddress
from clusters.drivers.guard import Breaker, guarded
from clusters.drivers.port import ClusterDriver
from foundation.host import Host
from foundation.threads import Pools, Threads

from . import loop
from .actors import Actor, Died
from .backend.base import DatabaseWrapper
from .memories import Memory
from .scheduler import MICROSECONDS, Scheduler

Result = TypeVar("Result")
OF_THE_THREAD = "_connections"
"""Where Django keeps the connections of each thread."""
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(eq=False, slots=True)
class Process:
    """One process of the gateway. `ahead_us`: how far its host's clock is ahead of the database's."""

    name: str
    ahead_us: int = 0
    is_frozen: bool = False
    is_dead: bool = False
    kept: dict[str, "ActorThreads"] = field(default_factory=dict)
    breakers: dict[UUID, Breaker] = field(default_factory=dict)
    memory: Memory = field(default_factory=Memory)


class Slots:
    """What Django keeps for a thread of the database, which serves one actor after the other."""

    def __init__(self) -> None:
        self._free: list[SimpleNamespace] = []
        self._all: list[SimpleNamespace] = []

    def take(self) -> SimpleNamespace:
        """One without an actor."""
        if not self._free:
            self._all.append(SimpleNamespace())
            return self._all[-1]
        return self._free.pop()

    def give_back(self, slot: SimpleNamespace) -> None:
        """It has no actor any more."""
        self._free.append(slot)

    def sort(self) -> None:
        """Between runs: the same ones serve first again."""
        self._free = self._all[::-1]


class Machine:
    """Starts and kills processes and their actors."""

    def __init__(self, scheduler: Scheduler, slots: Slots, seed: int) -> None:
        self.scheduler = scheduler
        self._slots = slots
        self.chance = random.Random(f"{seed}/product")
        self._ids = random.Random(f"{seed}/ids")
        self.unexpected: list[str] = []
        """Errors that ended an actor."""
        self._count = 0
        self._shown: Actor | None = None
        """The actor whose process and thread the gateway's modules see."""
        self._running: Process | None = None
        self._connections = vars(connections)[OF_THE_THREAD]
        scheduler.on_switch = self._show

    def _show(self, actor: Actor) -> None:
        """The modules of the gateway see what belongs to the actor's thread, and to its process."""
        was, self._shown = self._shown, actor
        if was is actor:
            return
        vars(connections)[OF_THE_THREAD] = actor.connections
        if was is not None:
            was.loop = asyncio._get_running_loop()  # noqa: SLF001 - for loops, and this switches them
        if actor.loop is not None or (was is not None and was.loop is not None):
            if was is not None:
                was.loop_hooks = sys.get_asyncgen_hooks()
            asyncio._set_running_loop(actor.loop)  # noqa: SLF001 - as above
            sys.set_asyncgen_hooks(*actor.loop_hooks)
        if actor.process is not self._running:
            if self._running is not None:
                self._running.memory.take_away()
            assert isinstance(actor.process, Process)
            self._running = actor.process
            self._running.memory.put_in_place()

    def leave(self) -> None:
        """After the run: the modules see the real thread again."""
        vars(connections)[OF_THE_THREAD] = self._connections
        asyncio._set_running_loop(None)  # noqa: SLF001 - as above
        sys.set_asyncgen_hooks(None, None)

    def start(self, process: Process, name: str, work: Callable[[], object]) -> Actor:
        """A new actor of the process, which does the work and ends."""
        self._count += 1
        actor = self.scheduler.add(f"{process.name}/{name}.{self._count}", process, lambda: self._live(actor, work))
        actor.connections = self._slots.take()
        return actor

    def _live(self, actor: Actor, work: Callable[[], object]) -> None:
        scheduler = self.scheduler
        own = connections["default"]
        assert isinstance(own, DatabaseWrapper)
        own.ensure_is_fresh()
        actor.backend = own
        try:
            if not actor.is_dead:
                work()
        except Died:
            pass
        except BaseException as error:  # noqa: BLE001 - the judges decide what it means
            self.unexpected.append(f"{actor.name}: {type(error).__name__}: {error}")
            scheduler.note(f"{actor.name} fails: {type(error).__name__}\n")
        if not actor.is_dead:
            own.abandon()
        own.leave()
        actor.backend = None
        self._slots.give_back(actor.connections)
        scheduler.leave(actor)

    def kill(self, process: Process) -> None:
        """The process dies as by SIGKILL, with all its threads."""
        if process.is_dead:
            return
        process.is_dead = True
        process.is_frozen = False
        self.scheduler.tell(process.name, "is killed")
        for actor in [actor for actor in self.scheduler.actors if actor.process is process]:
            self.scheduler.kill(actor)

    def freeze(self, process: Process, seconds: float) -> None:
        """The process does not run for this long."""
        process.is_frozen = True
        self.scheduler.tell(process.name, f"freezes for {seconds:.0f} s")

        def thaw() -> None:
            process.is_frozen = False

        self.scheduler.after(seconds, thaw)

    @property
    def process(self) -> Process:
        """The process of the calling actor."""
        process = self.scheduler.current.process
        assert isinstance(process, Process)
        return process

    def uuid(self, microseconds: int) -> UUID:
        """A UUIDv7 of this time."""
        return uuid7(self._ids, microseconds)


def uuid7(ids: random.Random, microseconds: int) -> UUID:
    """A UUIDv7 of this time."""
    value = (microseconds // 1000 & (1 << 48) - 1) << 80 | ids.getrandbits(80)
    return UUID(int=value & ~(0xF << 76) & ~(0x3 << 62) | 0x7 << 76 | 0x2 << 62)


class StageHost(Host):
    """The host on which the beginning of every world is made: always the same."""

    def __init__(self, began_us: int) -> None:
        super().__init__()
        self._began_us = began_us
        self._ids = random.Random("stage")

    def now(self) -> datetime:
        """The beginning."""
        return EPOCH + timedelta(microseconds=self._began_us)

    def uuid7(self, nanoseconds: int | None = None) -> UUID:
        """The next id."""
        return uuid7(self._ids, self._began_us if nanoseconds is None else nanoseconds // 1000)


class SimulatedHost(Host):
    """What the gateway's code sees of its host: the clock of its process, ids and chance from the seed."""

    def __init__(self, machine: Machine) -> None:
        super().__init__()
        self._machine = machine
        self._scheduler = machine.scheduler

    def seat(self) -> str:
        """The name of the simulated process."""
        return self._machine.process.name

    def now(self) -> datetime:
        """The time on the process's own clock."""
        return EPOCH + timedelta(microseconds=self._scheduler.now_us + self._machine.process.ahead_us)

    def monotonic(self) -> float:
        """Simulated seconds."""
        return self._scheduler.now_us / MICROSECONDS

    def sleep(self, seconds: float) -> None:
        """Others run meanwhile."""
        self._scheduler.sleep(seconds)

    def uuid7(self, nanoseconds: int | None = None) -> UUID:
        """An id from the seed."""
        at = self._scheduler.now_us + self._machine.process.ahead_us if nanoseconds is None else nanoseconds // 1000
        return self._machine.uuid(at)

    def chance(self) -> random.Random:
        """Chance from the seed."""
        return self._machine.chance


class ActorThreads:
    """Threads of a simulated process: each piece of work is an actor."""

    def __init__(self, machine: Machine, process: Process, name: str, count: int) -> None:
        self._machine = machine
        self._process = process
        self._name = name
        self._count = count
        self._busy = 0
        self._waiting: deque[Callable[[], None]] = deque()

    def submit(self, work: Callable[..., Result], *args: Any) -> Future[Result]:
        """The future result of the work."""
        if self._process.is_dead:
            raise Died
        future: Future[Result] = Future()
        waiters: list[Actor] = []
        future.waiting = waiters  # type: ignore[attr-defined]

        def fulfil() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                close_old_connections()
                result = work(*args)
            except Died:
                raise
            except BaseException as error:  # noqa: BLE001 - the result carries it
                future.set_exception(error)
            else:
                future.set_result(result)
            for actor in waiters:
                self._machine.scheduler.wake(actor)

        self._waiting.append(fulfil)
        self._begin()
        return future

    def _begin(self) -> None:
        if self._busy < self._count and self._waiting:
            self._busy += 1
            self._machine.start(self._process, self._name, self._serve)

    def _serve(self) -> None:
        while self._waiting:
            self._waiting.popleft()()
        self._busy -= 1

    def close(self) -> None:
        """Nothing is kept."""


class SimulatedPools(Pools):
    """Threads as actors."""

    def __init__(self, machine: Machine) -> None:
        super().__init__()
        self._machine = machine

    def open(self, name: str, count: int) -> Threads:
        """New threads of the calling actor's process."""
        return ActorThreads(self._machine, self._machine.process, name, count)

    def kept(self, name: str, count: int) -> Threads:
        """The threads of that name of the calling actor's process."""
        process = self._machine.process
        if name not in process.kept:
            process.kept[name] = ActorThreads(self._machine, process, name, count)
        return process.kept[name]

    def close_kept(self) -> None:
        """Forgets them."""
        self._machine.process.kept.clear()

    def wait(self, futures: Iterable[Future[Any]], seconds: float, *, for_all: bool) -> bool:
        """Waits in simulated time."""
        wanted = list(futures)
        scheduler = self._machine.scheduler
        actor = scheduler.current
        until = scheduler.now_us + seconds * MICROSECONDS

        def is_enough() -> bool:
            done = [future.done() for future in wanted]
            return all(done) if for_all else any(done) or not done

        for future in wanted:
            future.waiting.append(actor)  # type: ignore[attr-defined]
        try:
            while not is_enough() and scheduler.now_us < until:
                scheduler.sleep((until - scheduler.now_us) / MICROSECONDS)
        finally:
            for future in wanted:
                with contextlib.suppress(ValueError):
                    future.waiting.remove(actor)  # type: ignore[attr-defined]
        return is_enough()


class Calls:
    """Replaces `clusters.drivers.connections`' loop and drivers: each call runs in a loop of the calling actor."""

    def __init__(self, machine: Machine, bare: Callable[[ClusterAddress], Any]) -> None:
        self._machine = machine
        self._bare = bare

    def driver_for(self, address: ClusterAddress) -> ClusterDriver:
        """A driver for the calling actor; the breaker is that of its process."""
        breaker = self._machine.process.breakers.setdefault(address.cluster_id, Breaker())
        return guarded(self._bare(address), breaker=breaker)

    def run(self, coroutine: Coroutine[Any, Any, Result], timeout_seconds: float) -> Result:
        """The coroutine's result; Ambiguous on a time-out."""

        async def bounded() -> Result:
            async with asyncio.timeout(timeout_seconds):
                return await coroutine

        try:
            return loop.run(self._machine.scheduler, bounded)
        except TimeoutError:
            raise Ambiguous(f"no answer within {timeout_seconds:g} s") from None

    def stop(self) -> None:
        """Nothing is kept."""
