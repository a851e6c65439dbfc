"""The only module that reads the time, so that tests can control the clock."""

import time
from datetime import UTC, datetime, timedelta

from django.db import connection


def now() -> datetime:
    """The current time in UTC."""
    return datetime.now(UTC)  # noqa: TID251 - this is the place


def database_now() -> datetime:
    """The current time on the database's clock. Compare times that the database wrote only with this."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        instant: datetime = cursor.fetchone()[0]
        return instant


def monotonic() -> float:
    """Seconds on a clock that never goes backwards, for measuring durations."""
    return time.monotonic()


def monotonic_origin() -> datetime:
    """What the host's clock showed when `monotonic` was zero. It moves only when somebody sets the host's clock."""
    return now() - timedelta(seconds=monotonic())
