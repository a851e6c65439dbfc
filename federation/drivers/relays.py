"""WebSockets between browsers and programs in pods: bytes both ways, in this process' loop for clusters, without a thread each.

Both sides are read only as fast as the other side takes. A relay keeps a few hundred KiB at most, however much a side sends.
"""

import asyncio
import logging
import socket
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, AsyncExitStack, suppress
from dataclasses import dataclass
from uuid import UUID

from clusters.drivers import DriverError, NotAnswered, PortAnswer, PortRequest, PortStream
from clusters.drivers.pacing import Pace
from clusters.drivers.port_http import SWITCHED, exchange
from federation.engine.sockets import (
    CLOSE_SECONDS,
    CLOSING_SECONDS,
    HANDSHAKE_SECONDS,
    LONGEST_SECONDS,
    PING,
    PING_SECONDS,
    SILENT_SECONDS,
    UNCHECKED_SECONDS,
    End,
    Frames,
    MalformedFrame,
    NotSwitched,
    browser_handshake,
    close_frame,
)
from foundation.clock import monotonic

from .relay_figures import BYTES

log = logging.getLogger(__name__)
READ_BYTES = BUFFER_BYTES = 64 * 1024
BURST_BYTES, BYTES_PER_SECOND = 32 * 1024 * 1024, 16 * 1024 * 1024
FRAME_COST_BYTES = 128
"""A frame costs as much as this number of bytes, so that short ones do not take the process' time."""
TAKE_SECONDS = 5.0
_NO_ANSWER, _RESTARTS, _TOO_LATE = 502, 503, 504


@dataclass(frozen=True, slots=True)
class Whose:
    """The access with which a WebSocket was opened."""

    ticket_id: UUID
    user_id: UUID
    attempt_id: UUID


class Relay:
    """One WebSocket, from its handshake to its end.

    `answer` is the program's answer to the handshake. If it switches, the caller passes the browser's connection to `take`.
    """

    def __init__(self, whose: Whose) -> None:
        self.whose = whose
        self.answer: Future[PortAnswer] = Future()
        self.checked_at = self._began_at = monotonic()
        self.noted = 0
        """The frames with data when use was last noted."""
        self.end: End | None = None
        self.has_begun = False
        """Whether `live` runs, or will; it frees the relay's place."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._shaking: asyncio.Timeout | None = None
        self._browser: asyncio.Future[tuple[socket.socket, bytes]] | None = None
        self._pipes: _Pipes | None = None
        self._ended = asyncio.Event()

    @property
    def data(self) -> int:
        """The frames with data so far, of both sides."""
        return 0 if self._pipes is None else self._pipes.sent.data + self._pipes.said.data

    def take(self, sock: socket.socket, early: bytes) -> None:
        """The browser's connection, and what it has already sent. Any thread calls this, once."""

        def give() -> None:
            if self._browser is None or self._browser.done():
                sock.close()
            else:
                self._browser.set_result((sock, early))

        assert self._loop is not None
        self._loop.call_soon_threadsafe(give)

    def finish(self, end: End) -> None:
        """Begins to end it. Called in the loop. A handshake under way has a little time to be done: the process may wait for it."""
        if self.end is None:
            self.end = end
        self._ended.set()
        if self._shaking is not None and self._loop is not None and not self.answer.done():
            self._shaking.reschedule(self._loop.time() + CLOSE_SECONDS)

    async def live(self, port: AbstractAsyncContextManager[PortStream], request: PortRequest) -> None:
        """Carries the WebSocket from its handshake to its end."""
        self._loop = asyncio.get_running_loop()
        self._browser = self._loop.create_future()
        try:
            async with AsyncExitStack() as stack:
                self._shaking = asyncio.timeout(CLOSE_SECONDS if self.end else HANDSHAKE_SECONDS)
                async with self._shaking:
                    program = await stack.enter_async_context(port)
                    answer, first = await exchange(program, request)
                self._shaking = None
                head = _switched(answer, request)
                self.answer.set_result(answer)
                if head:
                    async with asyncio.timeout(TAKE_SECONDS):
                        sock, early = await self._browser
                    await self._carry(program, sock, (early, head, first))
        except TimeoutError:
            late = NotAnswered(f"no answer within {HANDSHAKE_SECONDS:g} s", status=_TOO_LATE)
            self._refuse(NotAnswered("the gateway restarts", status=_RESTARTS) if self.end is End.RESTART else late)
        except NotSwitched as fault:
            self._refuse(NotAnswered(f"{fault}", status=_NO_ANSWER))
        except DriverError as error:
            self._refuse(error)
        except Exception as error:
            log.exception("a WebSocket was given up")
            self._refuse(error)
        finally:
            if not self._browser.cancel() and not self._browser.cancelled() and self._pipes is None:
                self._browser.result()[0].close()  # it came as the wait for it ended

    def _refuse(self, error: Exception) -> None:
        if not self.answer.done():
            self.answer.set_exception(error)

    async def _carry(self, program: PortStream, sock: socket.socket, first: tuple[bytes, bytes, bytes]) -> None:
        early, head, said = first
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        reader, writer = await asyncio.open_connection(sock=sock, limit=READ_BYTES)
        writer.transport.set_write_buffer_limits(high=BUFFER_BYTES)
        try:
            writer.write(head)
            self._pipes = pipes = _Pipes(program, reader, writer)
            tasks = [
                asyncio.create_task(one) for one in (pipes.inwards(early), pipes.outwards(said), self._ended.wait())
            ]
            try:
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                other = End.BROWSER if writer.transport.is_closing() else End.PROGRAM
                for task, end in zip(tasks, (End.BROWSER, other), strict=False):
                    if task.done():
                        self.finish(_end_by(task.exception(), end))
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
            assert self.end is not None
            await pipes.say_goodbye(self.end)
        finally:
            writer.transport.abort()

    def tick(self, now: float) -> None:
        """Ends it when its time has passed, and asks a silent browser for a sign of life. Called once a second, in the loop."""
        if now - self.checked_at > UNCHECKED_SECONDS:
            self.finish(End.UNCHECKED)
        elif now - self._began_at > LONGEST_SECONDS:
            self.finish(End.AGE)
        elif self._pipes is not None and self.end is None and (end := self._pipes.tick(now)):
            self.finish(end)


def _switched(answer: PortAnswer, request: PortRequest) -> bytes:
    """The head of the 101 for the browser; empty if the program does not switch."""
    return browser_handshake(dict(request.headers), answer.headers) if answer.status == SWITCHED else b""


def _end_by(fault: BaseException | None, end: End) -> End:
    """Why one direction ended, if it is not `end`: the browser is not at fault for a connection to the program that broke."""
    if isinstance(fault, MalformedFrame):
        return End.MALFORMED
    return End.PROGRAM if isinstance(fault, DriverError) else end


class _Pipes:
    """Both directions, once the handshake is done."""

    def __init__(self, program: PortStream, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._program, self._reader, self._writer = program, reader, writer
        self.sent, self.said = Frames(), Frames()
        """What the browser sent, and what the program said."""
        self._pace = Pace(BURST_BYTES, BYTES_PER_SECOND)
        self._heard_at = self._spoke_at = monotonic()
        self._asked_at = self._closing_at = self._blocked_at = 0.0
        self._is_program_slow = False

    async def inwards(self, data: bytes) -> None:
        """From the browser to the program, until one of them ends."""
        while True:
            if data:
                self._heard_at, self._asked_at = monotonic(), 0.0
                before = self.sent.count
                self.sent.feed(data)
                BYTES.labels("to_program").inc(len(data))
                self._is_program_slow = True
                await self._program.write(data)
                self._is_program_slow = False
                await self._pace.spend(len(data) + FRAME_COST_BYTES * (self.sent.count - before))
            try:
                data = await self._reader.read(READ_BYTES)
            except OSError:
                return
            if not data:
                return

    async def outwards(self, data: bytes) -> None:
        """From the program to the browser, until one of them ends."""
        while True:
            if data:
                before = self.said.count
                self.said.feed(data)
                try:
                    await self._pass_on(data)
                except OSError:
                    return
                await self._pace.spend(len(data) + FRAME_COST_BYTES * (self.said.count - before))
            data = await self._program.read()
            if not data:
                return

    async def _pass_on(self, data: bytes) -> None:
        BYTES.labels("to_browser").inc(len(data))
        self._writer.write(data)
        self._spoke_at = self._blocked_at = monotonic()
        await self._writer.drain()
        self._blocked_at = 0.0

    def tick(self, now: float) -> End | None:
        """The end that follows from silence or from a close frame, if any."""
        if self.sent.is_closing or self.said.is_closing:
            self._closing_at = self._closing_at or now
            return End.CLOSED if now - self._closing_at > CLOSING_SECONDS else None
        if self._blocked_at:
            return End.SILENCE if now - self._blocked_at > PING_SECONDS + SILENT_SECONDS else None
        if self._is_program_slow:  # the browser is not read meanwhile
            return None
        if self._asked_at:
            return End.SILENCE if now - self._asked_at > SILENT_SECONDS else None
        if now - min(self._heard_at, self._spoke_at) > PING_SECONDS and self.said.is_between:
            self._writer.write(PING)
            self._spoke_at = self._asked_at = now
        return None

    async def say_goodbye(self, end: End) -> None:
        """Passes on the rest of the frame under way, then the gateway's close frame, unless a side has closed itself."""
        if end is End.BROWSER:
            return
        with suppress(TimeoutError, DriverError, OSError):
            async with asyncio.timeout(CLOSE_SECONDS):
                if end is not End.PROGRAM:
                    await self._end_frame()
                if self.said.is_between and not self.said.is_closing:
                    self._writer.write(close_frame(end))
                self._writer.transport.set_write_buffer_limits(high=0)
                await self._writer.drain()
                is_whole = self.sent.is_between and not self._is_program_slow
                if is_whole and not self.sent.is_closing and end is not End.PROGRAM:
                    await self._program.write(close_frame(end, is_masked=True))
        with suppress(TimeoutError, OSError):
            async with asyncio.timeout(CLOSE_SECONDS):
                self._writer.write_eof()
                while await self._reader.read(READ_BYTES):
                    pass

    async def _end_frame(self) -> None:
        while not self.said.is_between and (data := await self._program.read()):
            self._writer.write(data[: self.said.feed_to_end(data)])
            await self._writer.drain()
