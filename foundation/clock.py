"""The time, as all other modules read it."""

from datetime import datetime, timedelta

from django.db import connection

from .host import host


def now() -> datetime:
    """The current time in UTC."""
    return host().now()


def database_now() -> datetime:
    """The current time on the database's clock. Compare times that the database wrote only with this."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        instant: datetime = cursor.fetchone()[0]
        return instant


def monotonic() -> float:
    """Seconds on a clock that never goes backwards, for measuring durations."""
    return host().monotonic()


def sleep(seconds: float) -> None:
    """Returns after this time."""
    host().sleep(seconds)


def monotonic_origin() -> datetime:
    """What the host's clock showed when `monotonic` was zero. It moves only when somebody sets the host's clock."""
    return now() - timedelta(seconds=monotonic())
