"""Keeps Python's garbage collector from walking objects that cannot be garbage."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache


@contextmanager
def collector_paused() -> Iterator[None]:
    """Pauses the collector: a cycle makes no cyclic garbage, and each collection would walk the whole queue.

    The new objects join the old generation unexamined. Otherwise the collector would walk them all when it resumes.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            if not _has_frozen_objects():
                gc.freeze()
                gc.unfreeze()
            gc.enable()


@cache
def _has_frozen_objects() -> bool:
    """Whether this process froze what it imported, which `unfreeze` would undo. Asked once: the answer counts them all."""
    return bool(gc.get_freeze_count())
