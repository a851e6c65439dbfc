"""A cluster's clock beside ours: by how much it was measured to be off, since when, and what its instants are on our clock.

A measurement is the least difference that explains an answer that was dated in whole seconds: it may be too small, by a second
and the round trip, and is never too large. So of the measurements of one era the largest counts.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

MOST_ERAS = 8
NOISE_MS = 1_500
"""Measurements that differ by no more are of one era."""
BELIEVED_MS = 2_000
"""Clocks that differ by no more count as equal: Kubernetes writes whole seconds."""
CHANGE_TAKES = timedelta(minutes=1)
"""A clock was set some time between two measurements."""


@dataclass(frozen=True, slots=True)
class Era:
    """From `since`, by our clock, the cluster's clock showed `skew_ms` more than ours."""

    since: datetime
    skew_ms: int

    def as_json(self) -> dict[str, str | int]:
        """The form in which it is stored."""
        return {"since": self.since.isoformat(), "skew_ms": self.skew_ms}


def eras_of(stored: Sequence[Mapping[str, Any]]) -> tuple[Era, ...]:
    """What `Era.as_json` wrote, the oldest first."""
    return tuple(Era(datetime.fromisoformat(era["since"]), era["skew_ms"]) for era in stored)


def measured(eras: Sequence[Era], skew_ms: int, at: datetime) -> tuple[Era, ...]:
    """The eras after one more measurement; the oldest are forgotten."""
    last = eras[-1] if eras else None
    if last is None or abs(last.skew_ms - skew_ms) > NOISE_MS:
        return (*eras, Era(at, skew_ms))[-MOST_ERAS:]
    return tuple(eras) if abs(skew_ms) <= abs(last.skew_ms) else (*eras[:-1], Era(last.since, skew_ms))


def on_our_clock(eras: Sequence[Era], told: datetime, now: datetime) -> tuple[datetime, bool]:
    """The instant that the cluster told as it was on our clock, and whether that is another than it told.

    It is of the latest era in which the cluster's clock could have shown it; where there is none, of the latest of all.
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
    except OverflowError:  # no instant at all; whoever asked bounds it by what we witnessed
        return told
