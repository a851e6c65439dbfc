"""The longest time that a run may take on the host's own clock: one that hangs ends, and names who did not go on."""

import faulthandler
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from .scheduler import Scheduler

LONGEST_SECONDS = 120.0
"""A run takes some seconds; on a busy host, ten times as long."""
CLEARING_SECONDS = 30.0


@contextmanager
def alarm(seed: int, scheduler: Scheduler) -> Iterator[None]:
    """Ends the run of the block after the time has passed. If even that hangs, ends the process: its sessions are stuck."""

    def end_process(*_: Any) -> None:
        sys.stderr.write(f"seed {seed} hangs: {scheduler.position()}\n")
        faulthandler.dump_traceback()
        os._exit(3)

    def end_run(*_: Any) -> None:
        signal.signal(signal.SIGALRM, end_process)
        signal.setitimer(signal.ITIMER_REAL, CLEARING_SECONDS)
        raise scheduler.stall(f"the run takes more than {LONGEST_SECONDS:.0f} s: {scheduler.position()}")

    before = signal.signal(signal.SIGALRM, end_run)
    signal.setitimer(signal.ITIMER_REAL, LONGEST_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
