"""Months by their first day."""

from datetime import UTC, date, datetime, time


def next_month(month: date) -> date:
    """The first day of the month after the one that begins at `month`.

    >>> next_month(date(2026, 12, 1))
    datetime.date(2027, 1, 1)
    """
    return date(month.year + month.month // 12, month.month % 12 + 1, 1)


def midnight(day: date) -> datetime:
    """When the day begins, in UTC."""
    return datetime.combine(day, time(), UTC)
