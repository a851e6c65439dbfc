"""A TCP relay in front of a server, which can be cut: one way or both, without a word to either end."""

import asyncio
import contextlib
import socket
import ssl
import threading
from typing import Literal

from tests.faults.packets import let_through, swallow

CHUNK = 65536
Way = Literal["requests", "answers", "both"]


class Relay:
    """Passes everything on to a port on loopback, from a thread of its own."""

    def __init__(self, upstream_port: int, context: ssl.SSLContext | None = None) -> None:
        self.upstream_port = upstream_port
        self._cut: Way | None = None
        self._fronts: set[socket.socket] = set()
        self._backs: set[socket.socket] = set()
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=256)
        self.port = int(self._listener.getsockname()[1])
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._server = asyncio.run_coroutine_threadsafe(
            asyncio.start_server(self._serve, sock=self._listener, ssl=context), self._loop
        ).result(10)

    def cut(self, way: Way = "both") -> None:
        """Packets of clients (`requests`), of the server (`answers`), or of both vanish; connections can be made no more."""
        self._at_once(self._cut_now, way)

    def heal(self) -> None:
        """Everything passes again; what was sent meanwhile arrives, where its sender still tries."""
        self._at_once(self._heal_now)

    def close(self) -> None:
        """Ends it, connections included."""
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    def _at_once(self, work, *arguments) -> None:
        async def inside() -> None:
            work(*arguments)

        asyncio.run_coroutine_threadsafe(inside(), self._loop).result(10)

    def _cut_now(self, way: Way) -> None:
        self._heal_now()
        self._cut = way
        swallow(self._listener)
        for endpoint in (self._fronts if way != "answers" else set()) | (self._backs if way != "requests" else set()):
            if endpoint.fileno() >= 0:  # or it was closed just now, which its connection has not noticed yet
                swallow(endpoint)

    def _heal_now(self) -> None:
        if self._cut is not None:
            self._cut = None
            for endpoint in (self._listener, *self._fronts, *self._backs):
                with contextlib.suppress(OSError):  # it had no filter
                    let_through(endpoint)
            for front in self._fronts:
                with contextlib.suppress(OSError):  # it was closed just now
                    probe_the_client(front)

    async def _end(self) -> None:
        self._heal_now()
        self._server.close()
        connections = asyncio.all_tasks() - {asyncio.current_task()}
        for connection in connections:
            connection.cancel()
        await asyncio.gather(*connections, return_exceptions=True)
        # A closed transport lets go of its socket in the loop's next turns.
        await asyncio.sleep(0.1)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            upstream = await self.connect_upstream()
        except OSError:
            writer.transport.abort()
            return
        front, back = (end.get_extra_info("socket") for end in (writer, upstream[1]))
        self._fronts.add(front)
        self._backs.add(back)
        try:
            await self.pass_on(reader, writer, *upstream)
        finally:
            self._fronts.discard(front)
            self._backs.discard(back)
            for end in (writer, upstream[1]):
                end.transport.abort()

    async def connect_upstream(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A connection to the server."""
        return await asyncio.open_connection("127.0.0.1", self.upstream_port)

    async def pass_on(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        upstream_reader: asyncio.StreamReader,
        upstream_writer: asyncio.StreamWriter,
    ) -> None:
        """One connection, until either end is done."""
        await first_done(pump(reader, upstream_writer), pump(upstream_reader, writer))


def probe_the_client(front: socket.socket) -> None:
    """As the server's own keepalives would, which end at the relay: a client that went away during the cut is noticed."""
    front.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in ((socket.TCP_KEEPIDLE, 10), (socket.TCP_KEEPINTVL, 5), (socket.TCP_KEEPCNT, 2)):
        front.setsockopt(socket.IPPROTO_TCP, option, value)


async def pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    """Bytes as they come, until there are no more."""
    while chunk := await source.read(CHUNK):
        sink.write(chunk)
        await sink.drain()


async def first_done(*works) -> None:
    """Runs them side by side until one is done or fails; the others are cancelled."""
    tasks = [asyncio.create_task(work) for work in works]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
