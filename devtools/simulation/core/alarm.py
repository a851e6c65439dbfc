"""The longest time on the host's own clock in which a run may make no step: one that hangs ends, and names who did not go on.

A run that makes steps may take its time, on a busy host minutes: their number is bounded (`Scheduler.most_steps`).
"""

import faulthandler
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from .scheduler import Scheduler

LONGEST_SECONDS = 120.0
"""A step takes a millisecond."""
CLEARING_SECONDS = 30.0


@contextmanager
def alarm(seed: int, scheduler: Scheduler) -> Iterator[None]:
    """Ends the run of the block if it makes no step for that long. If even that hangs, ends the process: its sessions are stuck."""
    seen = scheduler.steps

    def end_process(*_: Any) -> None:
        sys.stderr.write(f"seed {seed} hangs: {scheduler.position()}\n")
        faulthandler.dump_traceback()
        os._exit(3)

    def end_run(*_: Any) -> None:
        nonlocal seen
        if scheduler.steps > seen:
            seen = scheduler.steps
            signal.setitimer(signal.ITIMER_REAL, LONGEST_SECONDS)
            return
        signal.signal(signal.SIGALRM, end_process)
        signal.setitimer(signal.ITIMER_REAL, CLEARING_SECONDS)
        raise scheduler.stall(f"no step for {LONGEST_SECONDS:.0f} s: {scheduler.position()}")

    before = signal.signal(signal.SIGALRM, end_run)
    signal.setitimer(signal.ITIMER_REAL, LONGEST_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
