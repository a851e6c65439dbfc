"""The brake on retries: if too many of the latest attempts failed because of the infrastructure, retries wait.

A cluster that fails everything would otherwise be offered every failed job again and again. First attempts still go
there: they show when it works again, and that releases the brake.
"""

from collections.abc import Sequence

WINDOW = 50
"""The latest attempts that count, on a cluster and overall."""
LEAST_FAILURES = 10
PULLED_AT_PERCENT = 50
RELEASED_AT_PERCENT = 25


def is_pulled(failed: Sequence[bool], *, was_pulled: bool) -> bool:
    """Whether retries wait. `failed` has, for each of the latest attempts (the newest first), whether it failed because
    of the infrastructure. The brake is released at a lower share than it is pulled at, so that it does not flutter.
    """
    latest = failed[:WINDOW]
    failures = sum(latest)
    if was_pulled:
        return failures > 0 and failures * 100 > RELEASED_AT_PERCENT * len(latest)
    return failures >= LEAST_FAILURES and failures * 100 >= PULLED_AT_PERCENT * len(latest)
