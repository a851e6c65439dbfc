"""The one place that asks for the time, so that tests can hold the clock."""

import time
from datetime import UTC, datetime


def now() -> datetime:
    """The present instant in UTC."""
    return datetime.now(UTC)  # noqa: TID251 - this is the place


def monotonic() -> float:
    """Seconds on a clock that never goes back, for measuring durations."""
    return time.monotonic()
