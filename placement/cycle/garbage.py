"""Python's garbage collector, kept from walking what cannot be garbage."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collector_paused() -> Iterator[None]:
    """Nothing made in a cycle is cyclic garbage; looking for some would walk the whole queue again and again.

    What was made joins the old objects unexamined, or the collector would walk all of it as soon as it is back.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            if not gc.get_freeze_count():
                gc.freeze()
                gc.unfreeze()
            gc.enable()
