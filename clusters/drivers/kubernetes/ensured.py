"""What one driver remembers to have seen to (namespaces, and templates in them), so that each job need not ask again."""

import asyncio

from foundation import clock

REMEMBERED_SECONDS = 600.0
"""After that it is seen to again, so what somebody took away in the cluster comes back."""


class Ensured:
    """Which things stand, by path (`namespace`, `namespace/name`), and what was asked of them. Belongs to one event loop."""

    def __init__(self) -> None:
        self._until: dict[str, tuple[object, float]] = {}
        self._gates: dict[str, asyncio.Lock] = {}

    def stands(self, path: str, asked: object) -> bool:
        """Whether exactly this was seen to lately."""
        known = self._until.get(path)
        return known is not None and known[0] == asked and clock.monotonic() < known[1]

    def gate(self, path: str) -> asyncio.Lock:
        """Held by the one who sees to it, so that the others need not."""
        return self._gates.setdefault(path, asyncio.Lock())

    def remember(self, path: str, asked: object) -> None:
        """It stands, as asked."""
        self._until[path] = (asked, clock.monotonic() + REMEMBERED_SECONDS)

    def forget(self, path: str) -> None:
        """It turned out to be gone, and all that stood in it."""
        inside = f"{path}/"
        self._until = {
            known: value for known, value in self._until.items() if known != path and not known.startswith(inside)
        }
