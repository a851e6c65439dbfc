"""HTTP with a program in a pod, over the port forwarding of Kubernetes.

The kubelet connects to the loopback address inside the pod, so the program needs no address that others could reach, and the
network policy of its namespace stays closed. Each request has its own connection: nothing of one user's is left for another.

Each message of the WebSocket begins with its channel: 0 for data, 1 for an error of the connection. The first message of a
channel repeats the port, in two bytes.
"""

import asyncio

import aiohttp
import h11

from clusters.drivers.exchanges import ANSWER_SECONDS, MOST_ANSWER_BYTES, MOST_HEADERS_BYTES, PortAnswer, PortRequest
from clusters.drivers.port import NotAnswered, Refused

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
        async with (
            asyncio.timeout(ANSWER_SECONDS),
            wire.socket(f"{pod_path}/portforward?ports={int(port)}", PROTOCOL) as socket,
        ):
            return await _hold(socket, request)
    except Refused as error:
        if error.status == _FORBIDDEN:
            raise Refused(MAY_NOT_REACH, status=_FORBIDDEN) from None
        raise
    except TimeoutError:
        raise NotAnswered(f"no answer within {ANSWER_SECONDS:g} s", status=_TOO_LATE) from None
    except h11.RemoteProtocolError:
        raise NotAnswered("the answer is not HTTP, or not complete", status=_NO_ANSWER) from None
    except h11.LocalProtocolError:
        raise NotAnswered("the request cannot be passed on", status=_NO_ANSWER) from None


async def _hold(socket: aiohttp.ClientWebSocketResponse, request: PortRequest) -> PortAnswer:
    """Sends the request, and reads until the answer is complete."""
    http = h11.Connection(h11.CLIENT, max_incomplete_event_size=MOST_HEADERS_BYTES)
    headers = [*request.headers, ("Connection", "close"), ("Content-Length", str(len(request.body)))]
    sent = http.send(h11.Request(method=request.method, target=request.target, headers=headers)) or b""
    sent += (http.send(h11.Data(data=request.body)) or b"") if request.body else b""
    sent += http.send(h11.EndOfMessage()) or b""
    for first in range(0, len(sent), _FRAME_BYTES):
        await socket.send_bytes(bytes([DATA]) + sent[first : first + _FRAME_BYTES])
    source = _Source(socket)
    head: h11.Response | None = None
    parts: list[bytes] = []
    size = 0
    while True:
        match http.next_event():
            case h11.NEED_DATA:
                http.receive_data(await source.read())
            case h11.Response() as head:
                pass
            case h11.Data(data=part):
                size += len(part)
                if size > MOST_ANSWER_BYTES:
                    raise NotAnswered(f"the answer is larger than {MOST_ANSWER_BYTES} bytes", status=_NO_ANSWER)
                parts.append(bytes(part))
            case h11.InformationalResponse():
                pass
            case _:  # its end, or that of the connection
                break
    if head is None or http.their_state not in (h11.DONE, h11.MUST_CLOSE):
        raise NotAnswered("the connection ended before the answer was complete", status=_NO_ANSWER)
    found = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in head.headers]
    return PortAnswer(head.status_code, found, b"".join(parts))


class _Source:
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
