"""Messages between the bell and the workers, and the announcements that wake the bell: both may be lost, late or tripled."""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from .actors import Actor
from .faults import Faults
from .scheduler import MICROSECONDS, Scheduler


@dataclass(frozen=True, slots=True)
class Message:
    """A ring for a worker."""

    task: str
    expires_us: int


class Broker:
    """Stands for Celery and Redis."""

    def __init__(self, scheduler: Scheduler, faults: Faults) -> None:
        self._scheduler = scheduler
        self._faults = faults
        self._queues: dict[str, list[Message]] = defaultdict(list)
        self._waiting: list[tuple[Actor, Collection[str]]] = []
        self._hearing: list[tuple[Actor, set[str]]] = []

    def send_task(self, name: str, **options: Any) -> None:
        """Puts a message in a queue."""
        faults = self._faults
        if faults.happens("bell_lost"):
            return
        message = Message(name, self._scheduler.now_us + round(options["expires"] * MICROSECONDS))
        times = 3 if faults.happens("bell_tripled") else 1
        for _ in range(times):
            if faults.happens("bell_late"):
                self._scheduler.after(faults.between(0, 90), lambda: self._put(options["queue"], message))
            else:
                self._put(options["queue"], message)

    def _put(self, queue: str, message: Message) -> None:
        self._queues[queue].append(message)
        for actor, queues in self._waiting:
            if queue in queues:
                self._scheduler.wake(actor)

    def take(self, queues: Collection[str]) -> Message:
        """The next message of one of the queues, after waiting for one."""
        actor = self._scheduler.current
        while True:
            for queue in queues:
                while self._queues[queue]:
                    message = self._queues[queue].pop(0)
                    if message.expires_us > self._scheduler.now_us:
                        return message
            entry = (actor, queues)
            self._waiting.append(entry)
            try:
                self._scheduler.sleep(None)
            finally:
                self._waiting.remove(entry)

    def announce(self, topics: list[str]) -> None:
        """What a committed transaction announced."""
        for actor, heard in self._hearing:
            if not self._faults.happens("bell_lost"):
                heard.update(topics)
                self._scheduler.wake(actor)

    @contextmanager
    def listening(self) -> Iterator[Callable[[float], set[str]]]:
        """Stands for LISTEN: a function that waits for an announcement."""
        entry: tuple[Actor, set[str]] = (self._scheduler.current, set())
        self._hearing.append(entry)

        def hear(seconds: float) -> set[str]:
            if not entry[1]:
                self._scheduler.sleep(seconds)
            heard = set(entry[1])
            entry[1].clear()
            return heard

        try:
            yield hear
        finally:
            self._hearing.remove(entry)


class Stop:
    """Stands for the event that stops a process."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler

    def is_set(self) -> bool:
        """Simulated processes are killed, not stopped."""
        return False

    def wait(self, seconds: float) -> bool:
        """Others run meanwhile."""
        self._scheduler.sleep(seconds)
        return False
