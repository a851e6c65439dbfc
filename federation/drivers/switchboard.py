"""The WebSockets of sessions that are open in this process: how many there may be, and whether each may stay open."""

import asyncio
import logging
import threading
from collections.abc import Callable, Collection
from contextlib import AbstractAsyncContextManager
from uuid import UUID

from clusters.drivers import NotAnswered, PortAnswer, PortRequest, PortStream
from clusters.drivers.connections import start
from federation.engine.sockets import CHECK_SECONDS, HANDSHAKE_SECONDS, MOST_OF_SESSION, MOST_OF_USER, End
from foundation.clock import monotonic
from foundation.threads import kept_threads

from .relay_figures import ENDED, OPEN
from .relays import Relay, Whose

log = logging.getLogger(__name__)
TICK_SECONDS = 1.0
_GRACE_SECONDS = 5.0
_TOO_LATE = 504
Check = Callable[[Collection[UUID], Collection[UUID]], frozenset[UUID]]
"""Given tickets, and attempts that were used: the tickets that still open their session."""


class Switchboard:
    """Relays and their limits. `check` runs in a thread with a connection to the database."""

    def __init__(self, most: int, check: Check) -> None:
        self._most, self._check = most, check
        self._changed = threading.Condition()
        self._relays: set[Relay] = set()
        self._is_watched = self._is_stopping = False

    def __len__(self) -> int:
        return len(self._relays)

    def begin(self, whose: Whose) -> Relay | None:
        """A place for a WebSocket; None if the process, the user or the session has no more. `open` follows, or `leave`."""
        with self._changed:
            of_user = sum(relay.whose.user_id == whose.user_id for relay in self._relays)
            of_session = sum(relay.whose.attempt_id == whose.attempt_id for relay in self._relays)
            if len(self._relays) >= self._most or of_user >= MOST_OF_USER or of_session >= MOST_OF_SESSION:
                return None
            relay = Relay(whose)
            self._relays.add(relay)
            return relay

    def open(self, relay: Relay, port: AbstractAsyncContextManager[PortStream], request: PortRequest) -> PortAnswer:
        """The program's answer to the handshake; 101 if `relay.take` may follow. Raises DriverError."""
        relay.has_begun = True
        start(self._live(relay, port, request))
        try:
            return relay.answer.result(HANDSHAKE_SECONDS + _GRACE_SECONDS)
        except TimeoutError:
            raise NotAnswered("the gateway is too busy", status=_TOO_LATE) from None

    def leave(self, relay: Relay) -> None:
        """Frees the place."""
        with self._changed:
            self._relays.discard(relay)
            self._changed.notify_all()

    def stop(self) -> None:
        """Begins to end all relays, because the process ends."""
        self._is_stopping = True
        if self._relays:
            start(self._stop_all())

    def wait(self, seconds: float) -> None:
        """Waits until none is left, at most so long."""
        with self._changed:
            self._changed.wait_for(lambda: not self._relays, seconds)

    async def _live(self, relay: Relay, port: AbstractAsyncContextManager[PortStream], request: PortRequest) -> None:
        if not self._is_watched:
            self._is_watched = True
            self._watcher = asyncio.create_task(self._watch())
        OPEN.inc()
        if self._is_stopping:
            relay.finish(End.RESTART)
        try:
            await relay.live(port, request)
        finally:
            OPEN.dec()
            end = relay.end.name.lower() if relay.end else "handshake"
            ENDED.labels(end).inc()
            log.info("a WebSocket of attempt %s ended: %s", relay.whose.attempt_id, end)
            self.leave(relay)

    async def _stop_all(self) -> None:
        for relay in list(self._relays):
            relay.finish(End.RESTART)

    async def _watch(self) -> None:
        """Watches the relays while there are any. Relays that begin while a check runs are checked by the next one."""
        checking: asyncio.Task[None] | None = None
        check_at = 0.0
        try:
            while relays := list(self._relays):
                now = monotonic()
                for relay in relays:
                    relay.tick(now)
                if now >= check_at and (checking is None or checking.done()):
                    check_at, checking = now + CHECK_SECONDS, asyncio.create_task(self._judge(relays, now))
                await asyncio.sleep(TICK_SECONDS)
        finally:
            self._is_watched = False

    async def _judge(self, relays: Collection[Relay], now: float) -> None:
        data = {relay: relay.data for relay in relays}
        used = {relay.whose.attempt_id for relay in relays if data[relay] > relay.noted}
        tickets = {relay.whose.ticket_id for relay in relays}
        threads = kept_threads("session-sockets", 1)
        try:
            in_force = await asyncio.wrap_future(threads.submit(self._check, tickets, used))
        except Exception:  # then they end when this has lasted too long
            log.warning("whether WebSockets may stay open is not known", exc_info=True)
            return
        for relay in relays:
            if relay.whose.ticket_id in in_force:
                relay.checked_at, relay.noted = now, data[relay]
            else:
                relay.finish(End.RIGHT)
