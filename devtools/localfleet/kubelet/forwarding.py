"""A port of a pod over a WebSocket, as a kubelet forwards it: channel 0 has the data, channel 1 errors, and the first message of
each repeats the port.
"""

import asyncio
from collections.abc import Callable, Coroutine

from aiohttp import WSMsgType, web

PROTOCOL = "v4.channel.k8s.io"
_PIECE = 32 * 1024


async def forward(request: web.Request) -> web.StreamResponse:
    """Pods have the host's network, so their loopback address is the host's."""
    ports = request.query.get("port", "")
    if not ports.isdigit():
        raise web.HTTPBadRequest(text="one port is forwarded at a time")
    port = int(ports)
    socket = web.WebSocketResponse(protocols=(PROTOCOL,))
    await socket.prepare(request)
    for channel in (0, 1):
        await socket.send_bytes(bytes([channel]) + port.to_bytes(2, "little"))
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError as error:
        await socket.send_bytes(b"\x01" + f"cannot connect to port {port}: {error.strerror}".encode())
        await socket.close()
        return socket
    try:
        await _until_one_ends(_inwards(socket, writer.write), _outwards(socket, reader))
    finally:
        writer.close()
        await socket.close()
    return socket


async def _inwards(socket: web.WebSocketResponse, write: Callable[[bytes], None]) -> None:
    async for message in socket:
        if message.type is WSMsgType.BINARY and message.data[:1] == b"\x00":
            write(message.data[1:])


async def _outwards(socket: web.WebSocketResponse, reader: asyncio.StreamReader) -> None:
    while piece := await reader.read(_PIECE):
        await socket.send_bytes(b"\x00" + piece)


async def _until_one_ends(*ways: Coroutine[None, None, None]) -> None:
    tasks = [asyncio.create_task(way) for way in ways]
    _, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in pending:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
