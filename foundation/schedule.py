"""When and how to ring a routine: pure decisions, so that tests need neither a clock nor a broker."""

import zlib
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

SPREAD = 0.2
"""The part of its longest silence by which a routine may ring earlier."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """A routine as configured: the Celery task and its queue, the same work as a callable, and the longest silence.

    Announcements within `gather_seconds` of the last ring wait for the next: one run does the work of them all. A
    routine `in_turns` is done by several workers side by side (`turns`); a worker in its turn may ask for `help`.
    """

    name: str
    task: str
    queue: str
    inline: str
    every_seconds: float
    gather_seconds: float = 0.25
    in_turns: bool = False

    def silence(self, rung_at: datetime) -> timedelta:
        """How long after this ring the next follows: from four fifths of the longest silence to all of it. Routines with equal
        periods that once rang together then do not do so for ever, which would slow down all else at that moment.
        """
        part = zlib.crc32(f"{self.name} {rung_at.isoformat()}".encode()) / 2**32
        return timedelta(seconds=self.every_seconds * (1 - SPREAD * part))

    @property
    def help(self) -> str:
        """The topic that asks other workers to join."""
        return f"{self.name}.more"


@dataclass(frozen=True, slots=True)
class RoutineState:
    """A routine as recorded. `sent_at`: when a message was last sent; `started_at`: when the last successful run began;
    `finished_at`: when the last run ended; `beat_at`: when a worker that takes turns at it last reported its presence.
    """

    name: str
    rung_at: datetime | None = None
    sent_at: datetime | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    beat_at: datetime | None = None

    @property
    def is_unanswered(self) -> bool:
        """Whether there was a ring that no finished run has seen."""
        return self.rung_at is not None and (self.started_at is None or self.started_at < self.rung_at)

    @property
    def is_on_its_way(self) -> bool:
        """Whether a message was sent, without a finished run or a sign of a worker since."""
        answered = [at for at in (self.started_at, self.beat_at) if at is not None]
        return self.sent_at is not None and (not answered or max(answered) < self.sent_at)

    def is_under_way(self, now: datetime, patience: timedelta) -> bool:
        """Whether a worker is in the middle of a turn."""
        if self.beat_at is None or (self.finished_at is not None and self.finished_at >= self.beat_at):
            return False
        return now - self.beat_at < patience


class How(StrEnum):
    """How a ring is delivered: recorded for a worker already in its turn, sent as a message, or carried out
    right here.
    """

    NOTE = "note"
    SEND = "send"
    INLINE = "inline"


@dataclass(frozen=True, slots=True)
class Ring:
    """A decision about one routine. `is_new`: something new happened, which an earlier run's snapshot may lack."""

    schedule: Schedule
    how: How
    is_new: bool


def decide(
    schedules: Iterable[Schedule],
    states: Mapping[str, RoutineState],
    announced: AbstractSet[str],
    now: datetime,
    patience: timedelta,
) -> list[Ring]:
    """The routines to ring now. One message per routine while the last one is unanswered; past `patience`, no message.

    While a worker is in its turn, rings are recorded for it, because it checks for more until its end; other workers
    get a message only if it asks for help.
    """
    rings = []
    for schedule in schedules:
        state = states.get(schedule.name, RoutineState(schedule.name))
        is_due = state.rung_at is None or now - state.rung_at >= schedule.silence(state.rung_at)
        is_new = is_due or schedule.name in announced
        if state.is_under_way(now, patience):
            if schedule.help in announced:
                rings.append(Ring(schedule, How.SEND, is_new))
            elif is_new:
                rings.append(Ring(schedule, How.NOTE, is_new))
        elif state.is_on_its_way and state.sent_at is not None:
            if now - state.sent_at >= patience:
                rings.append(Ring(schedule, How.INLINE, is_new))
            elif is_new:
                rings.append(Ring(schedule, How.NOTE, is_new))
        elif is_new or state.is_unanswered:
            rings.append(Ring(schedule, How.SEND, is_new))
    return rings
