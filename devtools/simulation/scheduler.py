"""Decides which actor runs, and what time it is.

Actors are threads that hand one baton to each other, so one of them runs at a time. An actor hands over before each
statement, each commit and each answer of a cluster; then one of those that can run is chosen. An actor that waits for a
lock of the database keeps its thread in PostgreSQL and others go on, until PostgreSQL grants the lock.
"""

import heapq
import itertools
import random
import threading
import time
from collections.abc import Callable
from hashlib import blake2b
from queue import SimpleQueue

from .actors import Actor, Died, Policy, Process, Stalled, State, Watch

MICROSECONDS = 1_000_000
STUCK_SECONDS = 10.0
LOOK_SECONDS = 0.001
"""How often it looks whether a session that goes on waits again."""


class Scheduler:
    """See the module."""

    def __init__(self, seed: int, watch: Watch, policy: Policy, began_us: int) -> None:
        self.now_us = self.began_us = began_us
        self.steps = 0
        self.most_steps = 200_000
        self.actors: list[Actor] = []
        self.local = threading.local()
        self.switches = 0
        self.lock_waits = 0
        self.on_step: Callable[[Actor, str], None] | None = None
        """Called by the actor that hands over; it may kill it."""
        self.on_switch: Callable[[Actor], None] = lambda _: None
        """Called before an actor runs."""
        self.ended: BaseException | None = None
        self.is_finished = False
        self.trace: list[str] | None = None
        """Everything that was noted, if it is to be kept."""
        self.tell: Callable[[str, str], None] = lambda _who, _what: None
        self._chance = random.Random(f"{seed}/scheduler")
        self._watch = watch
        self._policy = policy
        self._clock_us = -1
        self._timers: list[tuple[int, int, Callable[[], None]]] = []
        self._numbers = itertools.count()
        self._to_main: SimpleQueue[Actor | None] = SimpleQueue()
        """For the main thread: an actor that waits for a lock of the database, or None at the end of the run."""
        self._blocked: list[Actor] = []
        self._may_be_granted = False
        """Whether a session may have released a lock since the blocked ones were last checked."""
        self._digest = blake2b(digest_size=16)

    # -- what actors call -------------------------------------------------------------------------------------------

    @property
    def current(self) -> Actor:
        """The actor of the calling thread."""
        actor: Actor = self.local.actor
        return actor

    def note(self, text: str) -> None:
        """Adds to the digest of the run."""
        self._digest.update(text.encode())
        if self.trace is not None:
            self.trace.append(text)

    def digest(self) -> str:
        """The hash of everything that was noted: equal runs have equal digests."""
        return self._digest.hexdigest()

    def give_way(self, what: str) -> None:
        """A point at which another actor may run, or the caller's process may die."""
        actor = self.current
        if actor.is_dead:
            raise Died
        self.steps += 1
        self.note(f"{self.steps} {self.now_us} {actor.name} {what}\n")
        if self.steps > self.most_steps:
            raise self._end(Stalled(f"more than {self.most_steps} steps"))
        if self.on_step is not None:
            self.on_step(actor, what)
        if self._chance.randrange(self._policy.tick_one_in) == 0:
            self._move_clock(self.now_us + self._chance.randrange(1, self._policy.most_tick_us))
        if self._policy.is_pct and self._chance.randrange(self._policy.change_one_in) == 0:
            actor.priority = self._chance.random() - 1
        self._switch(actor)

    def sleep(self, seconds: float | None) -> None:
        """Hands over until this much time has passed, or until `wake`."""
        actor = self.current
        if actor.is_dead:
            raise Died
        actor.wakes += 1
        actor.state = State.SLEEPING
        if seconds is not None:
            self.at(self.now_us + max(1, round(seconds * MICROSECONDS)), self._waker(actor, actor.wakes))
        self._switch(actor)

    def _waker(self, actor: Actor, number: int) -> Callable[[], None]:
        def wake() -> None:
            if actor.wakes == number:
                self.wake(actor)

        return wake

    def wake(self, actor: Actor) -> None:
        """Ends an actor's sleep."""
        if actor.state is State.SLEEPING:
            actor.state = State.READY

    def at(self, time_us: int, act: Callable[[], None]) -> None:
        """Does something at this time, in the thread of the actor that runs then. It must not hand over."""
        heapq.heappush(self._timers, (time_us, next(self._numbers), act))

    def after(self, seconds: float, act: Callable[[], None]) -> None:
        """The same, counted from now."""
        self.at(self.now_us + round(seconds * MICROSECONDS), act)

    def begin_statement(self) -> None:
        """The caller enters the database; from now on it may wait there."""
        actor = self.current
        actor.statement_at = time.monotonic()
        actor.in_statement = True

    def bide(self) -> None:
        """Called again and again while the database does not answer the calling thread. If it waits for a lock, others run."""
        actor: Actor | None = getattr(self.local, "actor", None)
        if actor is None or not actor.in_statement or actor.state is State.BLOCKED:
            return
        assert actor.backend is not None
        if self._watch.is_waiting(actor.backend.pid):
            actor.state = State.BLOCKED
            self._to_main.put(actor)
        elif time.monotonic() - actor.statement_at > STUCK_SECONDS:
            self._end(Stalled(f"{actor.name} is stuck in the database"))

    def end_statement(self, *, may_release: bool) -> None:
        """The caller is back; if others went on meanwhile, it waits for its turn. `may_release`: whether the statement may
        have released locks.
        """
        actor = self.current
        actor.in_statement = False
        if actor.state is State.BLOCKED:
            actor.may_release = may_release
            actor.state = State.READY
            actor.back.release()
            actor.baton.acquire()
            if actor.is_dead:
                raise Died
        elif may_release:
            self.note_release()

    def note_release(self) -> None:
        """Locks of the database may have been released: those that wait may have been granted theirs."""
        self._may_be_granted = True

    def sync_clock(self, put: Callable[[int], object] | None = None) -> None:
        """Before a statement: sets the database's clock, by `put` if it is given, unless it has this time already."""
        if self._clock_us != self.now_us:
            self._clock_us = self.now_us
            (put or self._watch.set_clock)(self.now_us)

    # -- actors -----------------------------------------------------------------------------------------------------

    def add(self, name: str, process: Process) -> Actor:
        """A new actor, which begins to run when it is chosen; its thread must first call `enter`."""
        actor = Actor(name, process, next(self._numbers))
        actor.priority = self._chance.random()
        self.actors.append(actor)
        return actor

    def enter(self, actor: Actor) -> None:
        """Called by the actor's thread: waits for its first turn. Raises Died if it was killed before."""
        self.local.actor = actor
        actor.baton.acquire()
        if actor.is_dead:
            raise Died

    def leave(self, actor: Actor) -> None:
        """Called by the actor's thread at its end: others run."""
        actor.state = State.DONE
        self.actors.remove(actor)
        if not self.is_finished:
            self._pass_on(self._choose())

    def kill(self, actor: Actor) -> None:
        """The actor has no effect any more. Its thread unwinds when it is chosen next; the caller holds the baton."""
        if actor.is_dead:
            return
        actor.is_dead = True
        self.note(f"{actor.name} dies\n")
        if actor.backend is not None:
            if actor.state is State.BLOCKED:
                self._await_return(actor)
            actor.backend.abandon()
        actor.wakes += 1
        actor.state = State.READY

    # -- the loop of the main thread --------------------------------------------------------------------------------

    def run(self, until: Callable[[], bool]) -> None:
        """Runs the actors until `until` returns true (asked between steps) or something fails."""
        self._until = until
        self._pass_on(self._choose())
        while (actor := self._to_main.get()) is not None:
            self._leave_in_database(actor)
        if self.ended is not None:
            raise self.ended

    def finish(self) -> None:
        """Ends all actors that are left; call it from the main thread when no actor runs."""
        self.is_finished = True
        while self.actors:
            actor = self.actors[0]
            self.kill(actor)
            actor.baton.release()
            deadline = time.monotonic() + 5
            while actor in self.actors and time.monotonic() < deadline:
                time.sleep(0.0002)
            if actor in self.actors:
                self.actors.remove(actor)

    def _leave_in_database(self, actor: Actor) -> None:
        """Lets others run while the actor waits for a lock."""
        assert actor.backend is not None
        self._watch.pause(actor.backend.pid)
        self._blocked.append(actor)
        self.lock_waits += 1
        self.note(f"{actor.name} waits\n")
        self.tell(actor.name, "waits for a lock")
        self._pass_on(self._choose())

    def _settle(self) -> None:
        """Lets those go on that were granted their locks, one after the other, in the order in which they began to wait."""
        self._may_be_granted = False
        self.sync_clock()
        for actor in list(self._blocked):
            assert actor.backend is not None
            pid = actor.backend.pid
            if not self._watch.is_granted(pid):
                continue
            self._watch.resume(pid)
            if self._returns(actor, pid):
                self._blocked.remove(actor)
                self._may_be_granted |= actor.may_release
                self.note(f"{actor.name} goes on\n")
            else:
                self._watch.pause(pid)

    def _returns(self, actor: Actor, pid: int) -> bool:
        """Whether its statement ends; False if it waits for another lock."""
        deadline = time.monotonic() + STUCK_SECONDS
        while not actor.back.acquire(timeout=LOOK_SECONDS):
            if time.monotonic() > deadline:
                self._end(Stalled(f"{actor.name} neither waits nor returns"))
                return True
            if self._watch.is_waiting(pid):
                return False
        return True

    def _await_return(self, actor: Actor) -> None:
        assert actor.backend is not None
        self._blocked.remove(actor)
        self._watch.resume(actor.backend.pid)
        actor.backend.cancel()
        actor.back.acquire(timeout=STUCK_SECONDS)

    # -- choices ----------------------------------------------------------------------------------------------------

    def _switch(self, actor: Actor) -> None:
        chosen = self._choose()
        if chosen is not actor:
            self._pass_on(chosen)
            actor.baton.acquire()
        if actor.is_dead:
            raise Died

    def _pass_on(self, chosen: Actor | None) -> None:
        if chosen is None:
            self._to_main.put(None)
            return
        self.switches += 1
        self.on_switch(chosen)
        chosen.baton.release()

    def _choose(self) -> Actor | None:
        """The next actor. Time passes while none can run. None at the end of the run."""
        while True:
            if self.is_finished or self.ended is not None or self._until():
                return None
            if self._blocked and self._may_be_granted:
                self._settle()
            ready = [actor for actor in self.actors if actor.state is State.READY and not actor.process.is_frozen]
            if ready:
                break
            if not self._timers:
                self._end(Stalled("no actor can run"))
                return None
            self._move_clock(self._timers[0][0])
        if self._policy.is_pct:
            chosen = max(ready, key=lambda actor: actor.priority)
        else:
            chosen = ready[self._chance.randrange(len(ready))] if len(ready) > 1 else ready[0]
        return chosen

    def _move_clock(self, to_us: int) -> None:
        while self._timers and self._timers[0][0] <= to_us:
            at_us, _, act = heapq.heappop(self._timers)
            self.now_us = max(self.now_us, at_us)
            act()
        self.now_us = max(self.now_us, to_us)

    def _end(self, error: BaseException) -> BaseException:
        if self.ended is None:
            self.ended = error
        self._to_main.put(None)
        return error
