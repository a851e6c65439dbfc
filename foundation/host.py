"""What a process takes from its host: the time, chance, ids and its name. No other module asks for them (a test checks it).

`devtools.simulation` installs another host, whose answers follow from one seed.
"""

import os
import random
import socket
import time
from datetime import UTC, datetime
from uuid import UUID

from uuid_utils import compat


class Host:
    """The real host."""

    def __init__(self) -> None:
        self._seat = f"{socket.gethostname()}:{os.getpid()}"

    def seat(self) -> str:
        """The public name of this process; its children share it."""
        return self._seat

    def now(self) -> datetime:
        """The current time in UTC."""
        return datetime.now(UTC)  # noqa: TID251 - this is the place

    def monotonic(self) -> float:
        """Seconds on a clock that never goes backwards."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Returns after this time."""
        time.sleep(seconds)

    def uuid7(self, nanoseconds: int | None = None) -> UUID:
        """A new UUIDv7 (RFC 9562), of now or of this time since 1970."""
        return compat.uuid7(nanoseconds=nanoseconds)

    def chance(self) -> random.Random:
        """The source of random choices. Not for secrets."""
        return _CHANCE


_CHANCE = random.Random()  # noqa: S311 - spreads load, and keeps processes apart
_host = Host()


def host() -> Host:
    """The host of this process."""
    return _host


def use_host(other: Host) -> None:
    """Replaces the host, for the whole process."""
    global _host  # noqa: PLW0603 - one per process is the point
    _host = other
