"""List-then-watch as in client-go's reflector, for one kind of object.

The reflector reads a paged LIST, then a WATCH with bookmarks from the list's version. The watch ends after a few
minutes and the reflector lists everything again, so a missed change appears within that time. These also cause a new
list: a 410 (as status or as ERROR event), an invalid line, a silence longer than the interval of bookmarks, and a
resourceVersion that moves backwards (etcd was restored). If a stream merely ends early, the reflector resumes at the
same version, once the server has shown that its version has not moved backwards.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeVar
from urllib.parse import quote

import msgspec

from clusters.drivers.memory import FREE_BYTES, turn
from clusters.drivers.pacing import Pace
from clusters.drivers.port import (
    Ambiguous,
    DriverError,
    JobSeen,
    NodeSeen,
    PodSeen,
    Throttled,
    TooMuch,
    Unreachable,
    WatchEvent,
)
from clusters.engine.resource_slices import ClaimSeen, SliceSeen
from foundation.clock import monotonic

from .decoding import decode
from .shapes import Bare, Page
from .wire import Expired, Status, Wire

Item = TypeVar("Item")
Seen = NodeSeen | PodSeen | JobSeen | SliceSeen | ClaimSeen

_TRIES = 3
_FEWEST_ITEMS = 2
_EVENT_SECONDS = 15.0
_BYTES_OF_ONE_EVENT = 8 * 1024
_FIRST_PAUSE_SECONDS = 0.25
_LONGEST_PAUSE_SECONDS = 10.0


class _Line(msgspec.Struct):
    type: str
    object: msgspec.Raw


_line_decoder = msgspec.json.Decoder(_Line)
_bare_decoder = msgspec.json.Decoder(Bare)
_status_decoder = msgspec.json.Decoder(Status)


class _Restored(Ambiguous):
    """The server's version moved backwards."""


@dataclass(frozen=True, slots=True)
class Kind(Generic[Item]):
    """What to reflect: its path, an optional label selector, and a decoder."""

    path: str
    selector: str
    page_decoder: msgspec.json.Decoder[Page[Item]]
    item_decoder: msgspec.json.Decoder[Item]
    seen: Callable[[Item], Seen]
    version_of: Callable[[Item], str]
    most_items: int
    weight_of: Callable[[Any], int]
    """The memory that one object takes while it is kept, in estimated bytes."""

    def target(self, **query: str | int) -> str:
        """The path with its query."""
        pairs = {**({"labelSelector": self.selector} if self.selector else {}), **query}
        return self.path + "?" + "&".join(f"{key}={quote(str(value), safe='')}" for key, value in pairs.items())


async def list_all(wire: Wire, kind: Kind[Item]) -> tuple[list[Seen], str]:
    """All objects and the version of the list. Raises Expired if the list expired while being read, and TooMuch if it
    has more than the gateway accepts from one cluster.
    """
    listing = _Listing(wire, kind)
    try:
        async with asyncio.timeout(wire.limits.whole_list_seconds):
            for _ in range(wire.limits.pages):
                if await listing.read_page():
                    return listing.found, listing.version
                await asyncio.sleep(0)
    except TimeoutError:
        raise Ambiguous(f"the list took longer than {wire.limits.whole_list_seconds:g} s") from None
    finally:
        wire.account.put_back(listing.weight)
    raise TooMuch(f"the list has more than {wire.limits.pages} pages")


class _Listing(Generic[Item]):
    """A list that is read page by page."""

    def __init__(self, wire: Wire, kind: Kind[Item]) -> None:
        self._wire, self._kind = wire, kind
        self.found: list[Seen] = []
        self.version = ""
        self._following = ""
        self._page_items = wire.limits.page_items
        self._bytes = 0
        self.weight = 0
        self._tokens: set[int] = set()

    async def read_page(self) -> bool:
        """Reads a page and returns whether it was the last."""
        raw = await self._fetch()
        self._bytes += len(raw)
        if self._bytes > self._wire.limits.list_bytes:
            raise TooMuch(f"the list is larger than {self._wire.limits.list_bytes} bytes")
        await self._wire.pace.spend(len(raw))
        page = decode(self._kind.page_decoder, raw)
        items = page.items or ()
        self._admit(items)
        self.version, self._following = page.metadata.resource_version, page.metadata.continue_
        if not self._following:
            return True
        token = hash(self._following)
        if not items or token in self._tokens:
            raise TooMuch("the list continues without new items")
        self._tokens.add(token)
        return False

    async def _fetch(self) -> bytes:
        """The next page; if it is too long, requests it again with half the number of items."""
        while True:
            query: dict[str, str | int] = {"limit": self._page_items}
            if self._following:
                query["continue"] = self._following
            try:
                return await self._wire.call("GET", self._kind.target(**query), most_bytes=self._wire.limits.body_bytes)
            except TooMuch as error:
                if error.status != 200 or self._page_items <= _FEWEST_ITEMS:  # noqa: PLR2004 - HTTP success
                    raise
                self._page_items //= 2

    def _admit(self, items: Sequence[Item]) -> None:
        if len(items) + len(self.found) > self._kind.most_items:
            raise TooMuch(f"the list has more than {self._kind.most_items} items")
        weight = 0
        for item in items:
            seen = self._kind.seen(item)
            weight += self._kind.weight_of(seen)
            self.found.append(seen)
        self.weight += weight
        self._wire.account.hold(self._wire.account.held + weight)


class Reflector(Generic[Item]):
    """Keeps one stream of WatchEvents going."""

    def __init__(self, wire: Wire, kind: Kind[Item]) -> None:
        self._wire = wire
        self._kind = kind
        self._version = ""
        self._relist_at = 0.0
        self._failures = 0
        self._pace = Pace(wire.limits.burst_events, wire.limits.events_per_second)
        self._restarts = 0
        """New lists since a watch last returned anything. If a server lists well but watches badly, the reflector asks
        it less and less often.
        """

    async def events(self) -> AsyncIterator[WatchEvent]:
        """Lists and watches until cancelled. Raises the last DriverError after several failures in a row."""
        while True:
            try:
                if monotonic() >= self._relist_at:
                    objects, self._version = await list_all(self._wire, self._kind)
                    self._relist_at = monotonic() + self._wire.limits.relist_seconds * random.uniform(0.8, 1)  # noqa: S311
                    self._failures = 0
                    yield WatchEvent("listed", objects)
                    del objects
                else:
                    await self._check_version()
                async for event in self._watch():
                    self._failures = self._restarts = 0
                    yield event
            except Expired:
                await self._start_over(None)
            except _Restored:
                await self._start_over(None)
            except TooMuch:
                raise
            except (Unreachable, Ambiguous, Throttled) as error:
                await self._start_over(error)

    async def _start_over(self, error: DriverError | None) -> None:
        """Makes the next round list; pauses first, longer with each failed round in a row."""
        self._relist_at = 0.0
        self._failures += 1
        self._restarts += 1
        if error is not None and self._failures >= _TRIES:
            raise error
        pause = min(_FIRST_PAUSE_SECONDS * 2 ** min(self._restarts - 1, 10), _LONGEST_PAUSE_SECONDS)
        if isinstance(error, Throttled):
            pause = max(pause, error.retry_after_seconds)
        await asyncio.sleep(pause * random.uniform(0.5, 1))  # noqa: S311 - spreads load, guards nothing

    async def _check_version(self) -> None:
        page = decode(self._kind.page_decoder, await self._wire.call("GET", self._kind.target(limit=1)))
        self._advance(page.metadata.resource_version)

    async def _watch(self) -> AsyncIterator[WatchEvent]:
        seconds = max(int(self._relist_at - monotonic()), 1)
        target = self._kind.target(
            watch=1, resourceVersion=self._version, allowWatchBookmarks="true", timeoutSeconds=seconds
        )
        async with self._wire.stream(target) as chunks:
            async for line in _lines(chunks, self._wire.limits.line_bytes, self._wire.large):
                await self._wire.pace.spend(len(line))
                await self._pace.spend(1 + len(line) // _BYTES_OF_ONE_EVENT)
                yield self._event(line)
                if monotonic() >= self._relist_at:
                    return

    def _event(self, line: bytes) -> WatchEvent:
        said = decode(_line_decoder, line)
        if said.type == "BOOKMARK":
            self._advance(decode(_bare_decoder, said.object).metadata.resource_version)
            return WatchEvent("alive", ())
        if said.type == "ERROR":
            status = decode(_status_decoder, said.object)
            raise self._wire.status_error(status.code or 500, status)
        kind = _KINDS.get(said.type)
        if kind is None:
            raise Ambiguous("the watch carried an event of an unknown type")
        item = decode(self._kind.item_decoder, said.object)
        self._advance(self._kind.version_of(item))
        return WatchEvent(kind, (self._kind.seen(item),))

    def _advance(self, version: str) -> None:
        """Versions are opaque by contract but grow in practice. If both are numbers, a decrease means that etcd was
        restored.
        """
        if version.isdigit() and self._version.isdigit() and int(version) < int(self._version):
            raise _Restored("the server's resourceVersion moved backwards")
        self._version = version or self._version


_KINDS: dict[str, Literal["changed", "deleted"]] = {"ADDED": "changed", "MODIFIED": "changed", "DELETED": "deleted"}


async def _lines(chunks: AsyncIterator[bytes], most_bytes: int, large: asyncio.Lock) -> AsyncIterator[bytes]:
    """Whole lines of a stream. It drops a line that the end of the stream cut off: the next list contains
    the change.
    """
    try:
        async for line in _pieces(chunks, most_bytes, large):
            yield line
    except TimeoutError:
        raise Ambiguous(f"one event of the watch took longer than {_EVENT_SECONDS:g} s") from None


async def _pieces(chunks: AsyncIterator[bytes], most_bytes: int, own: asyncio.Lock) -> AsyncIterator[bytes]:
    parts: list[bytes] = []
    size = 0
    async with AsyncExitStack() as large:
        async for chunk in chunks:
            *whole, rest = chunk.split(b"\n")
            for piece in whole:
                line = b"".join([*parts, piece]) if parts else piece
                parts, size = [], 0
                await large.aclose()
                if line.strip():
                    yield line
            if rest:
                if size <= FREE_BYTES < size + len(rest):
                    await large.enter_async_context(asyncio.timeout(_EVENT_SECONDS))
                    await large.enter_async_context(own)
                    await large.enter_async_context(turn())
                parts.append(rest)
                size += len(rest)
                if size > most_bytes:
                    raise Ambiguous(f"one event of the watch is larger than {most_bytes} bytes")
