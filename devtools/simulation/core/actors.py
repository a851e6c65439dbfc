"""Actors, and what the scheduler needs of their processes, their sessions and the database."""

from dataclasses import dataclass, field
from enum import Enum
from types import SimpleNamespace
from typing import Any, Protocol

from greenlet import greenlet


class Died(BaseException):
    """The actor's process was killed: nothing that it still does has an effect."""


class Stalled(Exception):
    """No actor can run and none will: the simulation itself is wrong."""


class State(Enum):
    """What an actor waits for."""

    READY = "ready"
    SLEEPING = "sleeping"
    BLOCKED = "blocked"
    DONE = "done"


class Backend(Protocol):
    """An actor's session in the database, as the scheduler needs it."""

    pid: int

    def cancel(self) -> None:
        """Ends the statement that waits."""

    def abandon(self) -> None:
        """Ends the session as the death of its client does."""

    def rest(self) -> None:
        """Its actor sleeps."""

    def lend(self) -> None:
        """Others run before the next statement of its actor."""


@dataclass(eq=False, slots=True)
class Actor:
    """What would be one thread of one process."""

    name: str
    process: "Process"
    number: int
    state: State = State.READY
    thread: greenlet | None = None
    """What runs it; None until its process begins it."""
    settler: greenlet | None = None
    """Who waits for the end of its statement, which waited for a lock."""
    may_release: bool = False
    """Whether that statement may have released locks."""
    wakes: int = 0
    """Counts its sleeps: a timer for an earlier sleep has no effect."""
    is_dead: bool = False
    in_statement: bool = False
    statement_at: float = 0.0
    backend: Backend | None = None
    connections: SimpleNamespace = field(default_factory=SimpleNamespace)
    """What Django would keep in its thread."""
    loop: Any = None
    """The event loop that runs in it, while others run."""
    loop_hooks: tuple[Any, ...] = (None, None)
    """What that loop wants to know of asynchronous generators."""
    priority: float = 0.0


class Process(Protocol):
    """What the scheduler asks of a simulated process."""

    name: str
    is_frozen: bool
    ahead_us: int


class Watch(Protocol):
    """How the scheduler asks the database who waits, and holds sessions back."""

    def is_waiting(self, pid: int) -> bool:
        """Whether the session waits for a lock, and will until another session gives it."""

    def is_granted(self, pid: int) -> bool:
        """Whether the lock that the session waited for is its own now."""

    def pause(self, pid: int) -> None:
        """Stops the session: what it was granted, it does not notice."""

    def resume(self, pid: int) -> None:
        """Lets it run."""

    def set_clock(self, microseconds: int) -> None:
        """Sets the database's clock."""


@dataclass(slots=True)
class Policy:
    """How the next actor is chosen: by even chance, or (PCT) by priorities that change a few times."""

    is_pct: bool = False
    change_one_in: int = 200
    tick_one_in: int = 4
    """The clock moves at one of this many steps."""
    most_tick_us: int = 2_000
