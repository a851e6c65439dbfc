"""Watches of an API server that go wrong, as one connection of a proxy tells them."""

import asyncio
import json
from collections.abc import Awaitable, Callable

_BEGINNING = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
_GONE = {
    "type": "ERROR",
    "object": {
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": "so says the proxy",
        "reason": "Expired", "code": 410,
    },
}  # fmt: skip
_DELETED = b'{"type":"DELETED"'
Connect = Callable[[], Awaitable[tuple[asyncio.StreamReader, asyncio.StreamWriter]]]


async def spoil(way: str, head: bytes, writer: asyncio.StreamWriter, connect: Connect) -> None:
    """Answers one watch: `gone`, `junk`, `stall` or `lost`. A stalled one ends only with its connection."""
    if way == "lost":
        await _without_deletions(head, writer, connect)
        return
    writer.write(_BEGINNING)
    if way == "gone":
        writer.write(_chunk(json.dumps(_GONE).encode() + b"\n") + b"0\r\n\r\n")
    elif way == "junk":
        writer.write(_chunk(b'{"type":"MODIFIED","object":{"kind":\n'))
    await writer.drain()
    if way == "stall":
        await asyncio.Event().wait()


async def _without_deletions(head: bytes, writer: asyncio.StreamWriter, connect: Connect) -> None:
    """The server's own events, asked for on another connection, but for those of deletions."""
    reader, upstream = await connect()
    try:
        upstream.write(head)
        writer.write(await reader.readuntil(b"\r\n\r\n"))
        rest = b""
        while size := int(await reader.readuntil(b"\r\n"), 16):
            *lines, rest = (rest + (await reader.readexactly(size + 2))[:-2]).split(b"\n")
            if kept := b"".join(line + b"\n" for line in lines if not line.startswith(_DELETED)):
                writer.write(_chunk(kept))
                await writer.drain()
        writer.write(b"0\r\n\r\n")
        await writer.drain()
    finally:
        upstream.transport.abort()


def _chunk(data: bytes) -> bytes:
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"
