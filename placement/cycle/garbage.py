"""Keeps Python's garbage collector from walking objects that cannot be garbage."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

MANY = 10_000
"""To walk this number of objects takes less than a millisecond."""


@contextmanager
def collector_paused() -> Iterator[None]:
    """Pauses the collector: a cycle makes no cyclic garbage, and each collection would walk the whole queue.

    Many new objects join the old generation unexamined. Otherwise the collector would walk them all when it resumes. That also
    ends what the process has frozen, so that its next full collection walks, and a fork then copies, all that was imported. A
    process whose cycles are small does not pay for that.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            if gc.get_count()[0] > MANY:
                gc.freeze()
                gc.unfreeze()
            gc.enable()
