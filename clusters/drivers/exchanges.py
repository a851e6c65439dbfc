"""One HTTP request to a program in a pod, and its answer, as values."""

from collections.abc import Sequence
from dataclasses import dataclass

ANSWER_SECONDS = 30.0
"""From the connection to the end of the answer."""
MOST_ANSWER_BYTES = 8 * 1024 * 1024
MOST_HEADERS_BYTES = 32 * 1024
Headers = Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class PortRequest:
    """`target` is the path with its query, as sent. The headers have no length and nothing of a connection."""

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
