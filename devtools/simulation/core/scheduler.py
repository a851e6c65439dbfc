"""Decides which actor runs, and what time it is.

Actors are greenlets of one thread, so one of them runs at a time. An actor hands over before each statement, each commit
and each answer of a cluster; then one of those that can run is chosen. An actor that waits for a lock of the database is
left in the middle of its statement and others go on, until PostgreSQL grants the lock.
"""

import heapq
import itertools
import random
import time
from collections.abc import Callable
from hashlib import blake2b

from greenlet import getcurrent, greenlet

from .actors import Actor, Died, Policy, Process, Stalled, State, Watch

MICROSECONDS = 1_000_000
STUCK_SECONDS = 60.0


class Scheduler:
    """See the module."""

    def __init__(self, seed: int, watch: Watch, policy: Policy, began_us: int) -> None:
        self.now_us = self.began_us = began_us
        self.steps = 0
        self.most_steps = 200_000
        self.actors: list[Actor] = []
        self._current: Actor | None = None
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
        self.turns: tuple[int, int] | None = None
        """The steps between which the seed decides who runs next; None: always. Else each runs for as long as it can."""
        self._chance = random.Random(f"{seed}/scheduler")
        self._watch = watch
        self._policy = policy
        self._clock_us = -1
        self._timers: list[tuple[int, int, Callable[[], None]]] = []
        self._numbers = itertools.count()
        self._main = getcurrent()
        """It begins the run, and goes on at its end, and at the end of each actor."""
        self._blocked: list[Actor] = []
        self._may_be_granted = False
        """Whether a session may have released a lock since the blocked ones were last checked."""
        self._digest = blake2b(digest_size=16)

    # -- what actors call -------------------------------------------------------------------------------------------

    @property
    def current(self) -> Actor:
        """The actor that runs."""
        assert self._current is not None
        return self._current

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
        if self._is_mixed():
            self._mix(actor)
        self._switch(actor)

    def _is_mixed(self) -> bool:
        """Whether the seed decides now who runs next."""
        return self.turns is None or self.turns[0] <= self.steps < self.turns[1]

    def _mix(self, actor: Actor) -> None:
        """Time may pass, and (PCT) the actor's priority may change."""
        if self._chance.randrange(self._policy.tick_one_in) == 0:
            self._move_clock(self.now_us + self._chance.randrange(1, self._policy.most_tick_us))
        if self._policy.is_pct and self._chance.randrange(self._policy.change_one_in) == 0:
            actor.priority = self._chance.random() - 1

    def sleep(self, seconds: float | None) -> None:
        """Hands over until this much time has passed, or until `wake`."""
        actor = self.current
        if actor.is_dead:
            raise Died
        if actor.backend is not None:
            actor.backend.rest()
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

    def skip_to(self, time_us: int) -> None:
        """It is this time now: what was to be done before, and later, is not done any more."""
        self._timers.clear()
        self.now_us = time_us

    def after(self, seconds: float, act: Callable[[], None]) -> None:
        """The same, counted from now."""
        self.at(self.now_us + round(seconds * MICROSECONDS), act)

    def begin_statement(self) -> None:
        """The caller enters the database; from now on it may wait there."""
        actor = self.current
        actor.statement_at = time.monotonic()
        actor.in_statement = True

    def bide(self) -> None:
        """Called again and again while the database does not answer an actor. If it waits for a lock, others run."""
        actor = self._current
        if actor is None or not actor.in_statement:
            return
        assert actor.backend is not None
        if self._watch.is_waiting(actor.backend.pid):
            if actor.state is State.BLOCKED:
                self._report(actor, has_returned=False)
            else:
                self._leave_in_database(actor)
        elif time.monotonic() - actor.statement_at > STUCK_SECONDS:
            raise self._end(Stalled(f"{actor.name} is stuck in the database"))

    def end_statement(self, *, may_release: bool) -> None:
        """The caller is back; if others went on meanwhile, it waits for its turn. `may_release`: whether the statement may
        have released locks.
        """
        actor = self.current
        actor.in_statement = False
        if actor.state is State.BLOCKED:
            actor.may_release = may_release
            actor.state = State.READY
            self._report(actor, has_returned=True)
            if actor.is_dead:
                raise Died
        elif may_release:
            self.note_release()

    def note_release(self) -> None:
        """Locks of the database may have been released: those that wait may have been granted theirs."""
        self._may_be_granted = True

    def sync_clock(self) -> None:
        """Before a statement that may read it: sets the database's clock, unless it has this time already."""
        if self._clock_us != self.now_us:
            self._clock_us = self.now_us
            self._watch.set_clock(self.now_us)

    def take_clock(self) -> str:
        """What a statement that is sent anyway may add to set the database's clock; empty if it has this time already."""
        if self._clock_us == self.now_us:
            return ""
        self._clock_us = self.now_us
        return f"; SELECT setval('simulation.clock', {self.now_us})"

    # -- actors -----------------------------------------------------------------------------------------------------

    def add(self, name: str, process: Process, live: Callable[[], object]) -> Actor:
        """A new actor, which begins to live when it is chosen."""
        actor = Actor(name, process, next(self._numbers))
        actor.priority = self._chance.random()
        actor.thread = greenlet(live, self._main)
        self.actors.append(actor)
        return actor

    def leave(self, actor: Actor) -> None:
        """Called by the actor at its end: others run."""
        actor.state = State.DONE
        self.actors.remove(actor)

    def kill(self, actor: Actor) -> None:
        """The actor has no effect any more. It unwinds when it is chosen next."""
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

    # -- the main greenlet --------------------------------------------------------------------------------------------

    def run(self, until: Callable[[], bool]) -> None:
        """Runs the actors until `until` returns true (asked between steps) or something fails."""
        self._until = until
        while (actor := self._choose()) is not None:
            self._go_on_with(actor)
        if self.ended is not None:
            raise self.ended

    def finish(self) -> None:
        """Ends all actors that are left."""
        self.is_finished = True
        while self.actors:
            actor = self.actors[0]
            self.kill(actor)
            self._go_on_with(actor)
        self._current = None

    def _go_on_with(self, actor: Actor) -> None:
        """Lets it run; returns when the caller runs again."""
        self._current = actor
        self.on_switch(actor)
        assert actor.thread is not None
        actor.thread.switch()

    def stall(self, why: str) -> BaseException:
        """Ends the run, for the caller to raise."""
        return self._end(Stalled(why))

    def position(self) -> str:
        """Who runs, and who waits for a lock."""
        current = "nobody" if self._current is None else self._current.name
        does = "waits for the database" if self._current is not None and self._current.in_statement else "runs"
        blocked = ", ".join(actor.name for actor in self._blocked) or "nobody"
        return f"after step {self.steps}, {current} {does}; {blocked} waits for a lock"

    # -- locks of the database ----------------------------------------------------------------------------------------

    def _leave_in_database(self, actor: Actor) -> None:
        """Lets others run while the actor waits for a lock. Returns when its statement goes on."""
        assert actor.backend is not None
        actor.state = State.BLOCKED
        self._watch.pause(actor.backend.pid)
        self._blocked.append(actor)
        self.lock_waits += 1
        self.note(f"{actor.name} waits\n")
        self.tell(actor.name, "waits for a lock")
        # Not this greenlet chooses who runs next: what is chosen may be that its own statement goes on.
        self._main.switch()

    def _let_return(self, actor: Actor) -> bool:
        """Lets its statement go on. True if it ends; False if it waits for another lock."""
        current, self._current = self._current, actor
        actor.settler, actor.statement_at = getcurrent(), time.monotonic()
        assert actor.thread is not None
        has_returned: bool = actor.thread.switch()
        self._current = current
        return has_returned

    def _report(self, actor: Actor, *, has_returned: bool) -> None:
        """Reports what became of its statement to the one who resumed it; returns when it is its turn again."""
        assert actor.settler is not None
        actor.settler.switch(has_returned)

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
            if self._let_return(actor):
                self._blocked.remove(actor)
                self._may_be_granted |= actor.may_release
                self.note(f"{actor.name} goes on\n")
            else:
                self._watch.pause(pid)

    def _await_return(self, actor: Actor) -> None:
        assert actor.backend is not None
        self._blocked.remove(actor)
        self._watch.resume(actor.backend.pid)
        actor.backend.cancel()
        while not self._let_return(actor):
            pass

    # -- choices ----------------------------------------------------------------------------------------------------

    def _switch(self, actor: Actor) -> None:
        chosen = self._choose()
        if chosen is not actor:
            if actor.state is State.READY and actor.backend is not None:
                actor.backend.lend()
            self._hand_over(chosen)
        if actor.is_dead:
            raise Died

    def _hand_over(self, chosen: Actor | None) -> None:
        """Lets the chosen actor run, or the main greenlet at the end of the run; returns when the caller runs again."""
        if chosen is None:
            self._main.switch()
            return
        self.switches += 1
        self._go_on_with(chosen)

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
        if not self._is_mixed():
            return self._next_in_turn(ready)
        if self._policy.is_pct:
            return max(ready, key=lambda actor: actor.priority)
        return ready[self._chance.randrange(len(ready))] if len(ready) > 1 else ready[0]

    def _next_in_turn(self, ready: list[Actor]) -> Actor:
        """The actor that runs, if it can go on; else the next one in the order in which they were added."""
        last = -1 if self._current is None else self._current.number
        return next((one for one in ready if one.number >= last), ready[0])

    def _move_clock(self, to_us: int) -> None:
        while self._timers and self._timers[0][0] <= to_us:
            at_us, _, act = heapq.heappop(self._timers)
            self.now_us = max(self.now_us, at_us)
            act()
        self.now_us = max(self.now_us, to_us)

    def _end(self, error: BaseException) -> BaseException:
        if self.ended is None:
            self.ended = error
        return error
