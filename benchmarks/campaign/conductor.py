"""Carries the schedule out: makes each fault when its time has come, heals it, and sends a job after it that has to end rightly.

It runs in the main thread, since servers and processes may only be started from there.
"""

import heapq
import itertools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from . import process_faults, server_faults
from .load import probe
from .schedule import Planned, breaks
from .stage import Begin, NothingToBreak, Stage, Undo
from .talk import say

WAYS: dict[str, Begin] = {**process_faults.WAYS, **server_faults.WAYS}
AGAIN_SECONDS = 2.0
TRIES = 15
"""How often a fault that found nothing to break is tried."""
STEP_SECONDS = 0.1


@dataclass(slots=True)
class Happened:
    """What became of a planned fault. Times are of the wall clock, which no fault of ours changes; None: it did not happen."""

    planned: Planned
    began_at: float | None = None
    healed_at: float | None = None
    had_effect: bool = False
    probe: str = ""
    """The tag of the job that was sent after it."""
    failure: str = ""
    """Why it could not be made or healed, although there was something to break."""


@dataclass
class Conductor:
    """One run of a schedule. `standing` is what is broken now."""

    stage: Stage
    schedule: Sequence[Planned]
    tell: Callable[["Conductor", float], None]
    """Called often, with the seconds since the beginning, to show the progress."""
    happened: list[Happened] = field(default_factory=list)
    standing: dict[int, tuple[Happened, Undo]] = field(default_factory=dict)
    _began: float = 0.0
    _queue: list[tuple[float, int, Callable[[], None]]] = field(default_factory=list)
    _count: "itertools.count[int]" = field(default_factory=itertools.count)

    def go_on(self, seconds: float) -> None:
        """The schedule until the time has passed; then everything is healed, also if something failed."""
        self._began = time.monotonic()
        for planned in self.schedule:
            one = Happened(planned)
            self.happened.append(one)
            self._at(planned.at, lambda one=one: self._begin(one, TRIES))  # type: ignore[misc]
        try:
            while (now := time.monotonic() - self._began) < seconds:
                while self._queue and self._queue[0][0] <= now:
                    heapq.heappop(self._queue)[2]()
                self.tell(self, now)
                time.sleep(STEP_SECONDS)
        finally:
            for _ in range(TRIES):
                for number in list(self.standing):
                    self._heal(number)
                if not self.standing:
                    break
                time.sleep(AGAIN_SECONDS)

    def _at(self, seconds: float, work: Callable[[], None]) -> None:
        heapq.heappush(self._queue, (seconds, next(self._count), work))

    def _begin(self, one: Happened, tries: int) -> None:
        now = time.monotonic() - self._began
        name = f"{one.planned.fault} {one.planned.way} ({one.planned.target})"
        if any(breaks(one.planned) == breaks(other.planned) != "" for other, _ in self.standing.values()):
            self._at(now + AGAIN_SECONDS, lambda: self._begin(one, tries))
            return
        one.began_at = time.time()
        try:
            undo = WAYS[one.planned.way](self.stage, one.planned)
        except NothingToBreak:
            one.began_at = None
            if tries > 1:
                self._at(now + AGAIN_SECONDS, lambda: self._begin(one, tries - 1))
            else:
                say(f"{name}: found nothing to break")
            return
        except Exception as failure:  # noqa: BLE001 - another fault may have broken the means; the report says so
            one.failure = f"{type(failure).__name__}: {failure}"
            say(f"{name}: could not be made: {one.failure}")
            return
        late = now - one.planned.at
        say(name + (f", {late:.0f} s late" if late > AGAIN_SECONDS else ""))
        number = next(self._count)
        self.standing[number] = one, undo or (lambda: True)
        if undo is None:
            self._heal(number)
        else:
            self._at(time.monotonic() - self._began + one.planned.seconds, lambda: self._heal(number))

    def _heal(self, number: int) -> None:
        if number not in self.standing:
            return
        one, undo = self.standing[number]
        try:
            one.had_effect = undo()
        except NothingToBreak:
            self._at(time.monotonic() - self._began + AGAIN_SECONDS, lambda: self._heal(number))
            return
        except Exception as failure:  # noqa: BLE001 - the report says so; what is not healed shows in the judgement
            one.failure = f"{type(failure).__name__}: {failure}"
            say(f"  could not be healed: {one.planned.way}: {one.failure}")
        del self.standing[number]
        one.healed_at = time.time()
        if one.planned.seconds:
            say(f"  healed: {one.planned.way} ({one.planned.target}){'' if one.had_effect else ', without effect'}")
        probe_ = probe(number, one.planned.cluster)
        one.probe = probe_.tag
        self.stage.clients.add(probe_)
