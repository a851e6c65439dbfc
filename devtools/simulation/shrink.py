"""Makes a failing seed smaller: fewer jobs, processes and faults, as long as the same promise is broken."""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from .run import Result
from .size import Size

Try = Callable[[Size], Result]


def shrunk(first: Result, attempt: Try, *, seconds: float) -> Result:
    """The smallest run found that breaks one of the promises that the first one broke."""
    wanted = first.broken_promises
    best, until = first, time.monotonic() + seconds

    def is_better(size: Size) -> bool:
        nonlocal best
        if time.monotonic() > until:
            return False
        result = attempt(size)
        if not wanted & result.broken_promises:
            return False
        best = result
        return True

    if not best.size.alone:
        is_better(replace(best.size, alone=True))
    _fewer_jobs(lambda: best, is_better)
    for kind in sorted(first.faults):
        if kind in best.faults:
            is_better(replace(best.size, without=(*best.size.without, kind)))
    _spare(lambda: best, is_better)
    return best


def _fewer_jobs(best: Callable[[], Result], is_better: Callable[[Size], bool]) -> None:
    for number in best().jobs:
        left = tuple(one for one in best().jobs if one != number)
        if left:
            is_better(replace(best().size, jobs=left))


def _spare(best: Callable[[], Result], is_better: Callable[[Size], bool]) -> None:
    """Spares the world faults: half of them, then a quarter, then one by one."""
    part = max(1, best().fault_count // 2)
    while True:
        at = 0
        while at < best().fault_count:
            numbers: Sequence[int] = [n for n in range(at, at + part) if n not in best().size.spared]
            if not numbers or not is_better(replace(best().size, spared=(*best().size.spared, *numbers))):
                at += part
            elif part == 1:
                at += 1
        if part == 1:
            return
        part //= 2
