"""The period of a report."""

import re
from collections.abc import Mapping
from datetime import UTC, date, datetime, time, timedelta

from foundation.problems import Invalid

MONTH = re.compile(r"([0-9]{4})-(0[1-9]|1[0-2])")
DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
A_MONTH_AND_MORE = timedelta(days=32)


def period_of(query: Mapping[str, str], now: datetime) -> tuple[datetime, datetime]:
    """[start, until): from `month`, from `from` and `to`, or the current month in UTC. `to` alone starts at its month's
    first day.
    """
    if "month" in query:
        if "from" in query or "to" in query:
            raise Invalid.field("month", "given_twice", "give either month or from and to")
        return _month(query["month"])
    start = _instant("from", query["from"]) if "from" in query else None
    until = _instant("to", query["to"]) if "to" in query else None
    if start is None:
        start = _first_of_month(until - timedelta(milliseconds=1) if until else now)
    return start, until or _next_month(max(start, now))


def month_from(field: str, text: str) -> date:
    """The first day of a month in a request body. Invalid `not_a_month` for the field."""
    try:
        return _month(text)[0].date()
    except Invalid as refused:
        raise Invalid.field(field, "not_a_month", "write a month as YYYY-MM") from refused


def day_from(field: str, text: str) -> date:
    """A day in a request body. Invalid `not_a_day` for the field."""
    try:
        return date.fromisoformat(text)
    except ValueError as refused:
        raise Invalid.field(field, "not_a_day", "write a day as YYYY-MM-DD") from refused


def _month(text: str) -> tuple[datetime, datetime]:
    match = MONTH.fullmatch(text)
    if match is None or not 1970 <= int(match.group(1)) < 9999:  # noqa: PLR2004 - years that a calendar has
        raise Invalid.field("month", "not_a_month", "write a month as YYYY-MM")
    start = datetime(int(match.group(1)), int(match.group(2)), 1, tzinfo=UTC)
    return start, _next_month(start)


def _instant(field: str, text: str) -> datetime:
    try:
        if DATE.fullmatch(text):
            at = datetime.combine(date.fromisoformat(text), time(), UTC)
        else:
            at = datetime.fromisoformat(text)
        if at.tzinfo is not None and 1970 <= at.year < 9999:  # noqa: PLR2004
            at = at.astimezone(UTC)
            return at.replace(microsecond=at.microsecond // 1000 * 1000)
    except (ValueError, OverflowError):
        pass
    raise Invalid.field(field, "not_an_instant", "give a date, or a time with Z such as 2026-11-01T00:00:00Z")


def _first_of_month(at: datetime) -> datetime:
    return at.astimezone(UTC).replace(day=1, hour=0, minute=0, second=0, microsecond=0)


def _next_month(at: datetime) -> datetime:
    return _first_of_month(_first_of_month(at) + A_MONTH_AND_MORE)
