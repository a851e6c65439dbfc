"""Makes a failing seed smaller, as long as the same promise is broken: fewer jobs, processes, clusters, faults, wishes and
exchanges of actors. Of what it tries, it keeps what has no longer timeline.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from devtools.simulation.setting.size import Size

from .run import Result

Try = Callable[[Size], Result]
UNTIL_SECONDS = (1.0, 5.0, 10.0, 20.0, 40.0, 80.0)
"""When faults may end, the earliest first."""
ABSENT = ("operator", "observer", "bell", "worker")
"""The kinds of processes that a run may do without."""
BISECTIONS = 4
"""How often each end of the steps in which the seed decides who runs is moved."""
LIVELINESS = frozenset({"promise_3_everything_ends"})
"""What a world without workers, observers or a cluster breaks anyway."""
COUNTED: dict[str, Callable[[Result], int]] = {
    "unwished": lambda result: result.wish_count,
    "undone": lambda result: result.doing_count,
    "spared": lambda result: result.fault_count,
}
"""What is left out by numbers, and how much of it a run has."""


def shrunk(first: Result, attempt: Try, *, seconds: float, enough: int = 0) -> Result:
    """The smallest run found in this processor time of ours that breaks one of the promises that the first one broke. It looks no
    further when the timeline has at most `enough` lines.
    """
    search = _Search(first, attempt, time.process_time() + seconds, enough)
    search.take_much_away()
    search.keep_fewest_jobs()
    search.leave_kinds_out()
    search.end_faults_early()
    for what in COUNTED:
        search.leave_numbers_out(what)
    search.leave_kinds_out()
    search.leave_processes_out()
    search.let_few_take_turns()
    return search.best


class _Search:
    def __init__(self, first: Result, attempt: Try, until: float, enough: int) -> None:
        self.best = first
        self._wanted = first.broken_promises
        self._attempt = attempt
        self._until = until
        self._enough = enough

    @property
    def is_over(self) -> bool:
        """Whether the run is short enough, or no time is left."""
        return 0 < len(self.best.timeline) <= self._enough or time.process_time() > self._until

    def is_smaller(self, **changes: object) -> bool:
        """Whether the promise is still broken with these changes of the size, in no more steps; they are kept then."""
        if self.is_over:
            return False
        result = self._attempt(replace(self.best.size, **changes))  # type: ignore[arg-type]
        if not self._wanted & result.broken_promises or len(result.timeline) > len(self.best.timeline):
            return False
        self.best = result
        return True

    def take_much_away(self) -> None:
        """All that most breaks do without, together; else each of it that this one does without."""
        size = self.best.size
        much = {"cut": True, "alone": True, "turns": (0, 0)}
        much |= {"one_cluster": True} if self._wanted - LIVELINESS else {}
        left = {name: value for name, value in much.items() if getattr(size, name) in (False, None)}
        few = self.best.jobs[:1] if len(self.best.jobs) > 1 else self.best.size.jobs
        if not left or self.is_smaller(**left, jobs=few) or self.is_smaller(**left):
            return
        for name, value in left.items():
            self.is_smaller(**{name: value})

    def keep_fewest_jobs(self) -> None:
        """One job if one is enough; else without those that are not needed."""
        jobs = self.best.jobs
        if len(jobs) < 2 or any(self.is_smaller(jobs=(number,)) for number in jobs):
            return
        for number in jobs:
            left = tuple(one for one in self.best.jobs if one != number)
            if left:
                self.is_smaller(jobs=left)

    def leave_kinds_out(self) -> None:
        """All kinds of faults; else one after the other."""
        kinds = sorted(self.best.faults)
        if not kinds or self.is_smaller(without=(*self.best.size.without, *kinds)):
            return
        for kind in kinds if len(kinds) > 1 else ():
            if kind in self.best.faults:
                self.is_smaller(without=(*self.best.size.without, kind))

    def let_few_take_turns(self) -> None:
        """The seed decides who runs for a short time only; outside of it, each actor runs for as long as it can."""
        if self.best.size.turns == (0, 0) or self.is_smaller(turns=(0, 0)):
            return
        first, last = self.best.size.turns or (0, self.best.steps)
        known = last
        for _ in range(BISECTIONS):
            middle = (first + known) // 2
            if self.is_smaller(turns=(0, middle)):
                last = known = middle
            else:
                first = middle
        first, known = 0, last
        for _ in range(BISECTIONS):
            middle = (first + known) // 2
            if self.is_smaller(turns=(middle, last)):
                first = middle
            else:
                known = middle

    def end_faults_early(self) -> None:
        """The world heals as early as possible."""
        for seconds in UNTIL_SECONDS:
            if self.best.size.until and seconds >= self.best.size.until:
                return
            if self.best.fault_count and self.is_smaller(until=seconds):
                return

    def leave_numbers_out(self, what: str) -> None:
        """All of it; else half, then a quarter, then one by one (delta debugging)."""
        count = COUNTED[what]
        part = count(self.best)
        while part and not self.is_over:
            at = 0
            while at < count(self.best) and not self.is_over:
                left_out: tuple[int, ...] = getattr(self.best.size, what)
                numbers: Sequence[int] = [n for n in range(at, at + part) if n not in left_out]
                if not numbers or not self.is_smaller(**{what: (*left_out, *numbers)}):
                    at += part
                elif part == 1:
                    at += 1
            part //= 2

    def leave_processes_out(self) -> None:
        """All kinds of processes that the break does without."""
        for kind in ABSENT if self._wanted - LIVELINESS else ():
            if kind not in self.best.size.absent:
                self.is_smaller(absent=(*self.best.size.absent, kind))
