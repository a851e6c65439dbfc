"""A cluster's clock compared with ours: its measured difference, since when, and how its times convert to our clock.

A measurement is the least difference that explains a response dated in whole seconds. It may be too small, by a second
and the round trip, but is never too large. So the largest measurement of an era counts.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

MOST_ERAS = 8
NOISE_MS = 1_500
"""Measurements belong to one era if they differ by at most this."""
BELIEVED_MS = 2_000
"""Clocks count as equal if they differ by at most this: Kubernetes writes whole seconds."""
JUST_NOW = timedelta(seconds=3)
"""What happened within this time needs no new reading of the clock: a reading may be too small by a second and the round
trip, Kubernetes writes whole seconds, and reports travel.
"""
CHANGE_TAKES = timedelta(minutes=1)
"""A clock was set at some time between two measurements."""


@dataclass(frozen=True, slots=True)
class Era:
    """From `since`, on our clock, the cluster's clock showed `skew_ms` more than ours."""

    since: datetime
    skew_ms: int

    def as_json(self) -> dict[str, str | int]:
        """The form in which it is stored."""
        return {"since": self.since.isoformat(), "skew_ms": self.skew_ms}


@dataclass(frozen=True, slots=True)
class Reading:
    """A cluster's clock showed `shown` when our monotonic clock showed `at` seconds."""

    shown: datetime
    at: float

    def explains(self, told: datetime, now: float) -> bool:
        """Whether the cluster's clock shows this time just now, if it was not set since. `now`: our monotonic clock."""
        return abs(told - self.shown - timedelta(seconds=now - self.at)) <= JUST_NOW


def eras_of(stored: Sequence[Mapping[str, Any]]) -> tuple[Era, ...]:
    """Reads what `Era.as_json` wrote, oldest first."""
    return tuple(Era(datetime.fromisoformat(era["since"]), era["skew_ms"]) for era in stored)


def measured(eras: Sequence[Era], skew_ms: int, at: datetime) -> tuple[Era, ...]:
    """The eras after one more measurement; the oldest are dropped."""
    last = eras[-1] if eras else None
    if last is None or abs(last.skew_ms - skew_ms) > NOISE_MS:
        return (*eras, Era(at, skew_ms))[-MOST_ERAS:]
    return tuple(eras) if abs(skew_ms) <= abs(last.skew_ms) else (*eras[:-1], Era(last.since, skew_ms))


def on_our_clock(eras: Sequence[Era], told: datetime, now: datetime) -> tuple[datetime, bool]:
    """The cluster's time converted to our clock, and whether the conversion changed it.

    It uses the latest era in which the cluster's clock could have shown this time; if there is none, the latest of all.
    """
    for number in range(len(eras) - 1, -1, -1):
        ours = _less(told, eras[number].skew_ms)
        begins = eras[number].since - CHANGE_TAKES if number else None
        ends = eras[number + 1].since if number + 1 < len(eras) else now
        if (begins is None or ours >= begins) and ours <= ends + CHANGE_TAKES:
            return ours, ours != told
    ours = _less(told, eras[-1].skew_ms) if eras else told
    return ours, ours != told


def _less(told: datetime, skew_ms: int) -> datetime:
    if abs(skew_ms) <= BELIEVED_MS:
        return told
    try:
        return told - timedelta(milliseconds=skew_ms)
    except OverflowError:  # not a valid time; the caller bounds it by what the gateway observed
        return told
