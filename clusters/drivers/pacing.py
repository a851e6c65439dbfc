"""Rates of what is read or passed on."""

import asyncio

from foundation.clock import monotonic


class Pace:
    """A rate limit: a burst, and a sustained amount per second."""

    def __init__(self, burst: int, per_second: int) -> None:
        self._burst = float(burst)
        self._per_second = per_second
        self._left = float(burst)
        self._counted_at = monotonic()

    async def spend(self, amount: int) -> None:
        """Returns once this amount may be read."""
        now = monotonic()
        self._left = min(self._burst, self._left + (now - self._counted_at) * self._per_second) - amount
        self._counted_at = now
        if self._left < 0:
            await asyncio.sleep(-self._left / self._per_second)
