"""The words of OpenCost's API: windows and steps in UTC. Weeks begin on Sundays, as they do there."""

import re
from datetime import UTC, datetime, timedelta

from .rating import DAY, whole_milliseconds

DURATION = re.compile(r"([1-9][0-9]{0,4})([mhdw])")
UNITS = {"m": timedelta(minutes=1), "h": timedelta(hours=1), "d": DAY, "w": 7 * DAY}
SECONDS = re.compile(r"[0-9]{9,11}")


class NotAWindow(ValueError):
    """A text that is no window, or no step. The argument says what is accepted."""


def window_of(text: str, now: datetime) -> tuple[datetime, datetime]:
    """[start, until) of a window such as `today`, `lastmonth`, `7d`, or a pair of RFC 3339 times or Unix seconds. Raises
    NotAWindow.

    >>> [f"{at:%d %H:%M}" for at in window_of("yesterday", datetime(2026, 10, 5, 12, tzinfo=UTC))]
    ['04 00:00', '05 00:00']
    """
    midnight = now.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    week = midnight - (midnight.isoweekday() % 7) * DAY
    month = midnight.replace(day=1)
    last_month = (month - DAY).replace(day=1)
    words = {
        "today": (midnight, midnight + DAY),
        "yesterday": (midnight - DAY, midnight),
        "week": (week, midnight + DAY),
        "month": (month, midnight + DAY),
        "lastweek": (week - 7 * DAY, week),
        "lastmonth": (last_month, month),
    }
    if text in words:
        return words[text]
    if match := DURATION.fullmatch(text):
        length = _length(match)
        until = midnight + DAY if match[2] in "dw" else whole_milliseconds(now.astimezone(UTC))
        return until - length, until
    start, comma, end = text.partition(",")
    if comma:
        return _time(start), _time(end)
    raise NotAWindow(
        "today, yesterday, week, month, lastweek, lastmonth, a duration such as 7d, or two times and a comma"
    )


def steps_of(start: datetime, until: datetime, step: str, most: int) -> list[tuple[datetime, datetime]]:
    """The window in steps such as `1d`; without one, as a whole. Raises NotAWindow, also for more than `most` steps."""
    if not step:
        return [(start, until)]
    match = DURATION.fullmatch(step)
    if match is None:
        raise NotAWindow("a duration such as 1d or 12h")
    length = _length(match)
    if (until - start) / length > most:
        raise NotAWindow(f"a longer one: at most {most} steps")
    steps = []
    while start < until:
        steps.append((start, min(start + length, until)))
        start += length
    return steps


def _length(match: re.Match[str]) -> timedelta:
    return int(match[1]) * UNITS[match[2]]


def _time(text: str) -> datetime:
    try:
        at = datetime.fromtimestamp(int(text), UTC) if SECONDS.fullmatch(text) else datetime.fromisoformat(text)
        if at.tzinfo is not None and 1970 <= at.year < 9999:  # noqa: PLR2004 - years that a calendar has
            return whole_milliseconds(at.astimezone(UTC))
    except (ValueError, OverflowError):
        pass
    raise NotAWindow("times such as 2026-11-01T00:00:00Z, or Unix seconds")
