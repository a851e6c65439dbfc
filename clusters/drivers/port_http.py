"""One HTTP request over the bytes of a forwarded port, and its answer."""

from collections.abc import Iterator
from contextlib import contextmanager

import h11

from .exchanges import MOST_ANSWER_BYTES, MOST_HEADERS_BYTES, PortAnswer, PortRequest, PortStream
from .port import NotAnswered

SWITCHED = 101
_NO_ANSWER = 502


async def exchange(stream: PortStream, request: PortRequest) -> tuple[PortAnswer, bytes]:
    """The answer. If it is 101 to a request with `Upgrade`, also the first bytes of the other protocol. Raises NotAnswered."""
    http = h11.Connection(h11.CLIENT, max_incomplete_event_size=MOST_HEADERS_BYTES)
    with _faults():
        await stream.write(_sent(http, request))
        return await _read(http, stream)


def _sent(http: h11.Connection, request: PortRequest) -> bytes:
    headers = list(request.headers)
    if not any(name.lower() == "upgrade" for name, _ in headers):
        headers += [("Connection", "close"), ("Content-Length", str(len(request.body)))]
    sent = http.send(h11.Request(method=request.method, target=request.target, headers=headers)) or b""
    sent += (http.send(h11.Data(data=request.body)) or b"") if request.body else b""
    return sent + (http.send(h11.EndOfMessage()) or b"")


async def _read(http: h11.Connection, stream: PortStream) -> tuple[PortAnswer, bytes]:
    head: h11.Response | None = None
    parts: list[bytes] = []
    size = 0
    while True:
        match http.next_event():
            case h11.NEED_DATA:
                http.receive_data(await stream.read())
            case h11.Response() as head:
                pass
            case h11.Data(data=part):
                size += len(part)
                if size > MOST_ANSWER_BYTES:
                    raise NotAnswered(f"the answer is larger than {MOST_ANSWER_BYTES} bytes", status=_NO_ANSWER)
                parts.append(bytes(part))
            case h11.InformationalResponse(status_code=code) as switched if code == SWITCHED:
                return PortAnswer(SWITCHED, _texts(switched)), http.trailing_data[0]
            case h11.InformationalResponse():
                pass
            case _:  # its end, or that of the connection
                break
    if head is None or http.their_state not in (h11.DONE, h11.MUST_CLOSE):
        raise NotAnswered("the connection ended before the answer was complete", status=_NO_ANSWER)
    return PortAnswer(head.status_code, _texts(head), b"".join(parts)), b""


def _texts(head: h11.Response | h11.InformationalResponse) -> list[tuple[str, str]]:
    return [(name.decode("latin-1"), value.decode("latin-1")) for name, value in head.headers]


@contextmanager
def _faults() -> Iterator[None]:
    try:
        yield
    except h11.RemoteProtocolError:
        raise NotAnswered("the answer is not HTTP, or not complete", status=_NO_ANSWER) from None
    except h11.LocalProtocolError:
        raise NotAnswered("the request cannot be passed on", status=_NO_ANSWER) from None
