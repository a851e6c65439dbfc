"""What one driver remembers of the namespaces that it has seen to, so that each job need not ask again."""

import asyncio

from foundation import clock

REMEMBERED_SECONDS = 600.0
"""After that it is seen to again, so what somebody took away in the cluster comes back."""


class EnsuredNamespaces:
    """Which namespaces stand, and what was asked of them. Belongs to one event loop."""

    def __init__(self) -> None:
        self._until: dict[str, tuple[object, float]] = {}
        self._gates: dict[str, asyncio.Lock] = {}

    def stands(self, name: str, asked: object) -> bool:
        """Whether exactly this was seen to lately."""
        known = self._until.get(name)
        return known is not None and known[0] == asked and clock.monotonic() < known[1]

    def gate(self, name: str) -> asyncio.Lock:
        """Held by the one who sees to it, so that the others need not."""
        return self._gates.setdefault(name, asyncio.Lock())

    def remember(self, name: str, asked: object) -> None:
        """It stands, as asked."""
        self._until[name] = (asked, clock.monotonic() + REMEMBERED_SECONDS)

    def forget(self, name: str) -> None:
        """It turned out to be gone."""
        self._until.pop(name, None)
