"""What one driver remembers to have ensured (namespaces, and templates in them), so that not every job asks again."""

import asyncio

from foundation import clock

REMEMBERED_SECONDS = 600.0
"""After this time the driver checks again, and so restores what someone deleted in the cluster."""


class Ensured:
    """The objects that exist, by path (`namespace`, `namespace/name`), and the request for each. Belongs to one event
    loop.
    """

    def __init__(self) -> None:
        self._until: dict[str, tuple[object, float]] = {}
        self._gates: dict[str, asyncio.Lock] = {}

    def stands(self, path: str, asked: object) -> bool:
        """Whether exactly this request was ensured recently."""
        known = self._until.get(path)
        return known is not None and known[0] == asked and clock.monotonic() < known[1]

    def gate(self, path: str) -> asyncio.Lock:
        """Held by the coroutine that ensures the path, so that the others need not."""
        return self._gates.setdefault(path, asyncio.Lock())

    def remember(self, path: str, asked: object) -> None:
        """The object exists as requested."""
        self._until[path] = (asked, clock.monotonic() + REMEMBERED_SECONDS)

    def forget(self, path: str) -> None:
        """The object is gone, and with it everything in it."""
        inside = f"{path}/"
        self._until = {
            known: value for known, value in self._until.items() if known != path and not known.startswith(inside)
        }
