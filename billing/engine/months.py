"""Months by their first day."""

from datetime import UTC, date, datetime, time, timedelta


def next_month(month: date) -> date:
    """The first day of the month after the one that begins at `month`.

    >>> next_month(date(2026, 12, 1))
    datetime.date(2027, 1, 1)
    """
    return date(month.year + month.month // 12, month.month % 12 + 1, 1)


def month_before(day: date) -> date:
    """The first day of the month before the one of `day`.

    >>> month_before(date(2027, 1, 31))
    datetime.date(2026, 12, 1)
    """
    return (day.replace(day=1) - timedelta(days=1)).replace(day=1)


def midnight(day: date) -> datetime:
    """When the day begins, in UTC."""
    return datetime.combine(day, time(), UTC)
