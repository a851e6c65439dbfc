"""A watch of a simulated cluster: its events may be skipped, repeated, out of date, or stop to come."""

import asyncio
from typing import Any

from clusters.drivers import Unreachable, WatchEvent
from devtools.simulation.core.scheduler import MICROSECONDS

from .cluster import Kind
from .link import Link
from .objects import is_ours, seen

ALIVE_SECONDS = 15.0
SILENT_SECONDS = 40.0
OUT_OF_DATE = 4
"""How many of the last events a watch may repeat."""


class Watching:
    """The events of one watch that were not delivered yet."""

    def __init__(self, link: Link, kind: Kind, install_id: str) -> None:
        self._link = link
        self._cluster = link.cluster
        self._kind = kind
        self._install_id = install_id
        self._events: list[WatchEvent | str] = []
        self._last: list[WatchEvent] = []
        self._loop = asyncio.get_running_loop()
        self._news = asyncio.Event()
        self._stalled_until_us = 0

    def open(self) -> None:
        """Begins to listen."""
        self._cluster.on_change.append(self._hear)

    def close(self) -> None:
        """Ends."""
        if self._hear in self._cluster.on_change:
            self._cluster.on_change.remove(self._hear)

    def _hear(self, what: str, kind: Kind, thing: Any) -> None:
        if what == "restored":
            self._events = ["again"]
        elif kind == self._kind and (kind != "job" or is_ours(thing, self._install_id)):
            if what == "deleted" and self._link.faults.happens("watch_skips_delete"):
                return
            event = WatchEvent(what, (seen(thing),))  # type: ignore[arg-type]
            self._events.append(event)
        else:
            return
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._news.set)

    async def next(self) -> WatchEvent | str:
        """The next event, after the time it travels."""
        faults, link = self._link.faults, self._link
        while not self._events or link.scheduler.now_us < self._stalled_until_us:
            if not await self._hears_news():
                return WatchEvent("alive", ())
        await self._check()
        if faults.happens("watch_broken"):
            raise Unreachable("the watch is broken")
        if self._last and faults.happens("watch_goes_back"):
            return self._last[0]
        if self._last and faults.happens("watch_repeats"):
            return self._last[-1]
        event = self._events.pop(0)
        if isinstance(event, WatchEvent) and event.kind == "changed":
            self._last = [*self._last, event][-OUT_OF_DATE:]
        return event

    async def _hears_news(self) -> bool:
        """Waits for news; False if there is none for so long that the server shows that it is alive."""
        await self._check()
        self._news.clear()
        try:
            async with asyncio.timeout(ALIVE_SECONDS):
                await self._news.wait()
                await asyncio.sleep(self._link.faults.between(0.001, 0.2))
        except TimeoutError:
            return bool(self._events)
        if self._link.faults.happens("watch_stalls"):
            stalled = self._link.faults.between(1, 60)
            self._stalled_until_us = self._link.scheduler.now_us + round(stalled * MICROSECONDS)
        return True

    async def _check(self) -> None:
        """Nothing comes from a cluster that is cut off, or is another one now."""
        link = self._link
        if link.is_cut or link.is_destroyed or link.are_watches_dead or link.cluster is not self._cluster:
            await self._fail()
        if self._kind == "pod":
            link.show_pods()

    async def _fail(self) -> None:
        """The stream is silent; the client ends it."""
        await asyncio.sleep(SILENT_SECONDS)
        raise Unreachable("the watch is silent")
