"""HTTP with a program in a pod, as values and over the bytes of a forwarded port."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

ANSWER_SECONDS = 30.0
"""From the connection to the end of the answer."""
MOST_ANSWER_BYTES = 8 * 1024 * 1024
MOST_HEADERS_BYTES = 32 * 1024
Headers = Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class PortRequest:
    """`target` is the path with its query, as sent. The headers have no length and, unless they ask for another protocol,
    nothing of a connection.
    """

    method: str
    target: str
    headers: Headers = ()
    body: bytes = b""


@dataclass(frozen=True, slots=True)
class PortAnswer:
    """The headers are all that the program sent, those of its connection included."""

    status: int
    headers: Headers = ()
    body: bytes = b""


class PortStream(Protocol):
    """The bytes of a connection to a port of a pod. Its methods raise NotAnswered once the connection is broken."""

    async def read(self) -> bytes:
        """The next bytes; empty at the end. At most 1 MiB is kept that was not read."""

    async def write(self, data: bytes) -> None:
        """Sends the bytes. Waits while the other side does not take them."""
