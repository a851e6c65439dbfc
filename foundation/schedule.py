"""When a routine is to be rung, and how: pure decisions, so that they can be tested without a clock or a broker."""

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum


@dataclass(frozen=True, slots=True)
class Schedule:
    """A routine as configured: the Celery task and its queue, the same work as a callable, and the longest silence.

    Announcements within `gather_seconds` of the last ring wait for the next: one run does the work of them all.
    """

    name: str
    task: str
    queue: str
    inline: str
    every_seconds: float
    gather_seconds: float = 0.25


@dataclass(frozen=True, slots=True)
class RoutineState:
    """A routine as recorded. `sent_at`: the last time somebody was told; `started_at`: when the last good run began."""

    name: str
    rung_at: datetime | None = None
    sent_at: datetime | None = None
    started_at: datetime | None = None

    @property
    def is_unanswered(self) -> bool:
        """Whether there was a ring that no finished run has seen."""
        return self.rung_at is not None and (self.started_at is None or self.started_at < self.rung_at)

    @property
    def is_on_its_way(self) -> bool:
        """Whether somebody was told and has not finished a run since."""
        return self.sent_at is not None and (self.started_at is None or self.started_at < self.sent_at)


class How(StrEnum):
    """How a ring is delivered: noted for whoever is already at it, sent as a message, or carried out right here."""

    NOTE = "note"
    SEND = "send"
    INLINE = "inline"


@dataclass(frozen=True, slots=True)
class Ring:
    """A decision about one routine. `is_new`: something new happened, so an earlier run's snapshot may lack it."""

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
    """What to ring now. One message per routine while the last one is unanswered; past `patience`, no message at all."""
    rings = []
    for schedule in schedules:
        state = states.get(schedule.name, RoutineState(schedule.name))
        silent_for = timedelta(seconds=schedule.every_seconds)
        is_new = schedule.name in announced or state.rung_at is None or now - state.rung_at >= silent_for
        if state.is_on_its_way and state.sent_at is not None:
            if now - state.sent_at >= patience:
                rings.append(Ring(schedule, How.INLINE, is_new))
            elif is_new:
                rings.append(Ring(schedule, How.NOTE, is_new))
        elif is_new or state.is_unanswered:
            rings.append(Ring(schedule, How.SEND, is_new))
    return rings
