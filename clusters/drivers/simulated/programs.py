"""The programs of simulated pods: a WebSocket that returns what it gets, at every path, and the request as text for any other."""

import asyncio
import base64
import hashlib

from clusters.drivers.exchanges import PortRequest

from .objects import Pod

_MAGIC = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_CLOSE = 8
_MOST_BYTES = 1024 * 1024


class Program:
    """A connection to the program on a port of a pod."""

    def __init__(self, pod: Pod, port: int) -> None:
        pod.answer(port, PortRequest("GET", "/"))  # raises if it does not run
        self._pod, self._port = pod, port
        self._inbox = bytearray()
        self._said: asyncio.Queue[bytes] = asyncio.Queue()
        self._is_switched = False

    async def read(self) -> bytes:
        """What it says next; empty once it has closed the connection."""
        return await self._said.get()

    async def write(self, data: bytes) -> None:
        """It answers each request and each frame."""
        self._inbox += data
        if len(self._inbox) > _MOST_BYTES:
            self._said.put_nowait(b"")
        elif not self._is_switched:
            self._read_head()
        if self._is_switched:
            while self._read_frame():
                pass

    def _read_head(self) -> None:
        head, end, rest = bytes(self._inbox).partition(b"\r\n\r\n")
        if not end:
            return
        self._inbox = bytearray(rest)
        first, *lines = head.decode("latin-1").split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        if headers.get("upgrade", "").lower() != "websocket":
            method, target, _ = first.split(" ")
            body = self._pod.answer(self._port, PortRequest(method, target, list(headers.items()))).body
            self._said.put_nowait(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
            return
        accept = base64.b64encode(hashlib.sha1(headers["sec-websocket-key"].encode() + _MAGIC).digest()).decode()  # noqa: S324 - RFC 6455
        answer = f"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: {accept}\r\n"
        if offered := headers.get("sec-websocket-protocol", ""):
            answer += f"Sec-WebSocket-Protocol: {offered.split(',')[0].strip()}\r\n"
        self._said.put_nowait(f"{answer}\r\n".encode())
        self._is_switched = True

    def _read_frame(self) -> bool:
        """Returns a frame of the other side, without its mask; whether it was complete."""
        found = self._inbox
        if len(found) < 2:  # noqa: PLR2004 - the length is in the second
            return False
        more = {126: 2, 127: 8}.get(found[1] & 0x7F, 0)
        length = int.from_bytes(found[2 : 2 + more], "big") if more else found[1] & 0x7F
        start = 2 + more + (4 if found[1] & 0x80 else 0)
        if len(found) < start + length:
            return False
        mask, content = bytes(found[2 + more : start]) or bytes(4), found[start : start + length]
        plain = bytes(one ^ mask[place % 4] for place, one in enumerate(content))
        self._said.put_nowait(bytes([found[0], found[1] & 0x7F]) + bytes(found[2 : 2 + more]) + plain)
        if found[0] & 0x0F == _CLOSE:
            self._said.put_nowait(b"")
        del found[: start + length]
        return True
