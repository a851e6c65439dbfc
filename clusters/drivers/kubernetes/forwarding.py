"""Connections to a port of a pod, over the port forwarding of Kubernetes.

The kubelet connects to the loopback address inside the pod, so the program needs no address that others could reach, and the
network policy of its namespace stays closed. Each request has its own connection: nothing of one user's is left for another.

Each message of the WebSocket begins with its channel: 0 for data, 1 for an error of the connection. The first message of a
channel repeats the port, in two bytes.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import aiohttp

from clusters.drivers.exchanges import ANSWER_SECONDS, PortAnswer, PortRequest
from clusters.drivers.port import NotAnswered, Refused
from clusters.drivers.port_http import exchange

from .wire import Wire

MAY_NOT_REACH = (
    "the gateway's account may not reach pods on the cluster; its administrator has to apply cluster-access.yaml again"
)
PROTOCOL = "v4.channel.k8s.io"
DATA, TROUBLE = 0, 1
_PORT_BYTES = 2
_FRAME_BYTES = 32 * 1024
_FORBIDDEN = 403
_NO_ANSWER = 502
_TOO_LATE = 504


async def ask(wire: Wire, pod_path: str, port: int, request: PortRequest) -> PortAnswer:
    """The program's answer. Raises what `ClusterDriver.ask_pod` does."""
    try:
        with _plain_refusal():
            async with asyncio.timeout(ANSWER_SECONDS), wire.socket(_target(pod_path, port), PROTOCOL) as socket:
                answer, _ = await exchange(ForwardedPort(socket), request)
                return answer
    except TimeoutError:
        raise NotAnswered(f"no answer within {ANSWER_SECONDS:g} s", status=_TOO_LATE) from None


@asynccontextmanager
async def open_port(wire: Wire, pod_path: str, port: int) -> AsyncIterator["ForwardedPort"]:
    """A connection for as long as the block lasts. Raises what `ClusterDriver.open_port` does."""
    with _plain_refusal():
        async with wire.socket(_target(pod_path, port), PROTOCOL, is_long=True) as socket:
            yield ForwardedPort(socket)


class ForwardedPort:
    """The bytes of the data channel."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._left = {DATA: _PORT_BYTES, TROUBLE: _PORT_BYTES}
        """The bytes of the port that a channel still begins with."""

    async def read(self) -> bytes:
        """The next bytes; empty at the end. Raises NotAnswered for an error of the connection."""
        while True:
            message = await self._socket.receive()
            if message.type is not aiohttp.WSMsgType.BINARY:
                return b""
            channel, data = message.data[0] if message.data else -1, message.data[1:]
            if channel not in self._left:
                continue
            cut = min(self._left[channel], len(data))
            self._left[channel] -= cut
            if len(data) == cut:
                continue
            if channel == TROUBLE:
                raise NotAnswered("nothing answers on this port of the pod", status=_NO_ANSWER)
            return bytes(data[cut:])

    async def write(self, data: bytes) -> None:
        """Sends the bytes."""
        try:
            for first in range(0, len(data), _FRAME_BYTES):
                await self._socket.send_bytes(bytes([DATA]) + data[first : first + _FRAME_BYTES])
        except (aiohttp.ClientError, OSError):
            raise NotAnswered("the connection to the pod broke", status=_NO_ANSWER) from None


def _target(pod_path: str, port: int) -> str:
    return f"{pod_path}/portforward?ports={int(port)}"


@contextmanager
def _plain_refusal() -> Iterator[None]:
    """A refusal by the cluster's rights says what its administrator can do."""
    try:
        yield
    except Refused as error:
        if error.status == _FORBIDDEN:
            raise Refused(MAY_NOT_REACH, status=_FORBIDDEN) from None
        raise
