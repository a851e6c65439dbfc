"""A turn: a bounded share of a routine's work that several processes do side by side.

While a turn lasts, new work may begin; work that has begun is finished. So a process in its turn can be relieved,
stopped or found dead within seconds, regardless of the amount of work.
"""

import threading
from dataclasses import dataclass, field
from datetime import datetime

from django.db import connection, transaction

from .clock import monotonic
from .outbox import announce

TURN_SECONDS = 4.0
BEAT_SECONDS = 2.0
LOOK_SECONDS = 0.5
HELP_SECONDS = 0.5


@dataclass(slots=True)
class Turn:
    """A turn at the routine `name`; without a name it belongs to no process, and nothing is recorded about it.

    A worker `beats` to report its presence. The bell does not: it works while no worker is available, and `yields` as
    soon as one is.
    """

    name: str = ""
    began_at: datetime | None = None
    seconds: float = TURN_SECONDS
    yields: bool = False
    stopping: threading.Event = field(default_factory=threading.Event)
    has_more: bool = False
    """There was more to do when it ended."""
    _began: float = field(default_factory=monotonic)
    _looked: float = field(default_factory=monotonic)
    _asked: float = float("-inf")
    _is_relieved: bool = False

    @property
    def is_over(self) -> bool:
        """Whether no new work may begin."""
        return self._is_relieved or self.stopping.is_set() or monotonic() - self._began >= self.seconds

    @property
    def is_endless(self) -> bool:
        """Whether it lasts until no work is left."""
        return self.seconds == float("inf")

    def beat(self) -> None:
        """Call it repeatedly while there is work: it records that this turn continues, and checks for a process that
        relieves it.
        """
        if not self.name or monotonic() - self._looked < (LOOK_SECONDS if self.yields else BEAT_SECONDS):
            return
        self._looked = monotonic()
        if self.yields:
            self._is_relieved = self._is_relieved or is_relieved(self.name, self.began_at)
        else:
            show_up(self.name)

    def ask_for_help(self) -> None:
        """Announces that there is more work than this process takes on, so that other workers may join."""
        if not self.name or monotonic() - self._asked < HELP_SECONDS:
            return
        self._asked = monotonic()
        with transaction.atomic():
            announce(f"{self.name}.more")


def endless_turn() -> Turn:
    """A turn that lasts until no work is left, and also waits for work that hangs."""
    return Turn(seconds=float("inf"))


def show_up(name: str) -> datetime:
    """Records that a worker is present for the routine; returns the current time on the database's clock."""
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO foundation_routine AS routine (name, beat_at) VALUES (%s, clock_timestamp())"
            " ON CONFLICT (name) DO UPDATE SET beat_at = excluded.beat_at RETURNING beat_at",
            [name],
        )
        instant: datetime = cursor.fetchone()[0]
        return instant


def is_relieved(name: str, since: datetime | None) -> bool:
    """Whether a worker was present since then."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT beat_at > %s FROM foundation_routine WHERE name = %s", [since, name])
        row = cursor.fetchone()
        return row is not None and bool(row[0])
