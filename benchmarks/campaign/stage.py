"""What faults need to do their work, and what is common to their kinds."""

import random
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from tests.faults.proxy import Mischief
from tests.faults.stand import Stand

from .clients import Clients
from .schedule import Planned

Undo = Callable[[], bool]
"""Heals a fault, and returns whether it had any effect. Raises NothingToBreak if it cannot be healed yet."""
Begin = Callable[["Stage", Planned], Undo | None]
"""Makes a fault. None if it has happened already and nothing needs to be healed."""


class NothingToBreak(Exception):
    """What the fault would hit does not exist now: it is tried again soon."""


@dataclass
class Stage:
    """The gateway with all that it depends on, and the means to break it."""

    stand: Stand
    mischief: Mischief
    skews: Path
    clients: Clients
    chance: random.Random
    """Picks what only exists during the run: a pod, a Job."""
    further: list["Repeating"] = field(default_factory=list)


class Repeating:
    """Work that is repeated from a thread until it is stopped. Its failures are the faults' doing, and are ignored."""

    def __init__(self, work: Callable[[], object], every_seconds: float) -> None:
        self.times = 0
        self._stopped = threading.Event()
        self._work, self._every_seconds = work, every_seconds
        self._thread = threading.Thread(target=self._go_on, daemon=True)
        self._thread.start()

    def stop(self) -> bool:
        """Ends it; whether it worked at least once."""
        self._stopped.set()
        self._thread.join(30)
        return self.times > 0

    def _go_on(self) -> None:
        while not self._stopped.is_set():
            with suppress(Exception):
                self._work()
                self.times += 1
            self._stopped.wait(self._every_seconds)


def suspend(processes: list[psutil.Process]) -> Undo:
    """Stops them; they go on when it is undone."""
    stopped = []
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.suspend()
            stopped.append(process)
    if not stopped:
        raise NothingToBreak

    def go_on() -> bool:
        for process in stopped:
            with suppress(psutil.NoSuchProcess):
                process.resume()
        return True

    return go_on
