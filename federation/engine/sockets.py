"""WebSockets of sessions (RFC 6455): what each side gets of the other's handshake, and where one frame ends and the next begins.

The gateway relays bytes and changes none. It reads the first bytes of each frame only to know use from signs of life, and
where it may put in a frame.
"""

import base64
import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

from clusters.drivers.exchanges import Headers

from .sessions import ACCESS_SECONDS, passed_on

MOST_OF_SESSION, MOST_OF_USER = 32, 64
"""Open at a time in one web process."""
HANDSHAKE_SECONDS = 15.0
CHECK_SECONDS = 5.0
"""Whether a WebSocket may stay open is read from the database once in this time."""
UNCHECKED_SECONDS = 30.0
"""A WebSocket is ended if this could not be read for so long."""
LONGEST_SECONDS = float(ACCESS_SECONDS)
PING_SECONDS = 30.0
"""After this time without a byte in either direction, the browser is asked for a sign of life."""
SILENT_SECONDS = 30.0
"""For the browser to answer that, or to take what was sent."""
CLOSE_SECONDS = 2.0
"""For the frame under way to end, and for the browser to answer a close frame."""
CLOSING_SECONDS = 10.0
"""From a close frame of either side to the end of the connection."""
PING = b"\x89\x00"
_MAGIC = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_KEY = re.compile(r"[A-Za-z0-9+/]{22}==")
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_ASKED = ("sec-websocket-key", "sec-websocket-protocol", "sec-websocket-extensions")
_LONGEST_OFFER = 4096
_PLAIN = re.compile(r"[\x20-\x7e]*")
_SHORT, _TWO_BYTES, _EIGHT_BYTES = 125, 126, 127
_CLOSE = 8


class End(Enum):
    """Why a WebSocket ended: the status code and the reason of the close frame that the gateway sends, if it sends one."""

    BROWSER = (0, "the browser ended the connection")
    PROGRAM = (1014, "the program ended the connection")
    RIGHT = (1008, "the session is no longer open")
    AGE = (1008, "the session was opened an hour ago")
    UNCHECKED = (1013, "the gateway cannot reach its database")
    RESTART = (1012, "the gateway restarts")
    SILENCE = (0, "the browser is silent")
    CLOSED = (0, "a side closed it and the other did not answer")
    MALFORMED = (1002, "malformed frame")


class NotSwitched(Exception):
    """A program's 101 is none that the browser could use. The message says what is wrong."""


def is_asked_for(headers: Mapping[str, str]) -> bool:
    """Whether a request asks for a WebSocket and nothing else. `headers` have names in lower case.

    Any other `Upgrade`, such as h2c, is ignored, as HTTP allows: it never reaches a program.
    """
    return headers.get("upgrade", "").strip().lower() == "websocket" and "upgrade" in _words(headers, "connection")


def handshake_fault(method: str, headers: Mapping[str, str], length: int) -> str:
    """What is wrong with such a request; empty if it may reach a program."""
    if method != "GET" or length:
        return "A WebSocket is opened with GET, without a body."
    if headers.get("sec-websocket-version", "").strip() != "13":
        return "Sessions speak version 13 of the WebSocket protocol."
    if not _KEY.fullmatch(headers.get("sec-websocket-key", "").strip()):
        return "Sec-WebSocket-Key must be 16 bytes in base64."
    offers = [headers.get(name, "") for name in ("sec-websocket-protocol", "sec-websocket-extensions")]
    if any(len(offer) > _LONGEST_OFFER or not _PLAIN.fullmatch(offer) for offer in offers):
        return "The offered protocols or extensions are not well-formed."
    if not all(_TOKEN.fullmatch(word) for word in _listed(offers[0])):
        return "The offered protocols are not well-formed."
    return ""


def program_handshake(headers: Mapping[str, str], host: str) -> Headers:
    """The headers for the program: those of any request, and those of the handshake."""
    own = [("connection", "Upgrade"), ("upgrade", "websocket"), ("sec-websocket-version", "13")]
    asked = ((name, headers.get(name, "").strip()) for name in _ASKED)
    return [*passed_on(headers, host, ""), *own, *(one for one in asked if one[1])]


def browser_handshake(asked: Mapping[str, str], answered: Iterable[tuple[str, str]]) -> bytes:
    """The head of the 101 for the browser. Raises NotSwitched if the program did not switch to what was asked for."""
    found: dict[str, list[str]] = {}
    for name, value in answered:
        found.setdefault(name.lower(), []).append(value)
    said = {name: ",".join(values) for name, values in found.items()}
    if said.get("upgrade", "").strip().lower() != "websocket" or "upgrade" not in _words(said, "connection"):
        raise NotSwitched("it does not switch to a WebSocket")
    accept = accept_of(asked.get("sec-websocket-key", "").strip())
    if said.get("sec-websocket-accept", "").strip() != accept:
        raise NotSwitched("it does not accept the key")
    lines = ["HTTP/1.1 101 Switching Protocols", "Upgrade: websocket", "Connection: Upgrade", f"Sec-WebSocket-Accept: {accept}"]  # fmt: skip
    if protocol := said.get("sec-websocket-protocol", "").strip():
        if protocol not in _listed(asked.get("sec-websocket-protocol", "")):
            raise NotSwitched("it chose a protocol that was not offered")
        lines.append(f"Sec-WebSocket-Protocol: {protocol}")
    if extensions := said.get("sec-websocket-extensions", "").strip():
        offered = {_name_of(one) for one in _listed(asked.get("sec-websocket-extensions", ""))}
        if not _PLAIN.fullmatch(extensions) or not {_name_of(one) for one in _listed(extensions)} <= offered:
            raise NotSwitched("it chose an extension that was not offered")
        lines.append(f"Sec-WebSocket-Extensions: {extensions}")
    return "\r\n".join([*lines, "", ""]).encode()


def accept_of(key: str) -> str:
    """What a server answers to a key, to show that it speaks the protocol."""
    return base64.b64encode(hashlib.sha1(key.encode() + _MAGIC, usedforsecurity=False).digest()).decode()


def close_frame(end: End, *, is_masked: bool = False) -> bytes:
    """The gateway's close frame; empty if there is none for this end. Frames to the program are masked, with zeros."""
    code, reason = end.value
    if not code:
        return b""
    content = code.to_bytes(2, "big") + reason.encode()
    mask = b"\x00" * 4 if is_masked else b""
    return bytes([0x80 | _CLOSE, len(content) | (0x80 if is_masked else 0)]) + mask + content


class MalformedFrame(ValueError):
    """The first bytes of a frame have a length that no frame has."""


@dataclass(slots=True)
class Frames:
    """Follows one direction of a WebSocket, however its bytes are cut."""

    count: int = 0
    data: int = 0
    """Frames with data. Pings, pongs and closes are no use of a session."""
    is_closing: bool = False
    """Whether a close frame has begun."""
    _left: int = 0
    _head: bytes = b""

    @property
    def is_between(self) -> bool:
        """Whether the last byte was the last one of a frame."""
        return not self._left and not self._head

    def feed(self, data: bytes) -> None:
        """Follows the next bytes."""
        at = 0
        while at < len(data):
            at = self._step(data, at)

    def feed_to_end(self, data: bytes) -> int:
        """Follows the next bytes to the end of the frame under way, at most; returns their number."""
        at = 0
        while at < len(data) and not self.is_between:
            at = self._step(data, at)
        return at

    def _step(self, data: bytes, at: int) -> int:
        """Follows more of one frame: its head, or what it contains. Returns where the bytes after that begin."""
        if self._left:
            step = min(self._left, len(data) - at)
            self._left -= step
            return at + step
        head = self._head
        while len(head) < (wanted := _head_length(head)):
            more = data[at : at + wanted - len(head)]
            if not more:
                break
            head, at = head + more, at + len(more)
        self._head = head
        if len(head) == wanted:
            self._begin(head)
        return at

    def _begin(self, head: bytes) -> None:
        self._head = b""
        length = head[1] & 0x7F
        if length >= _TWO_BYTES:
            length = int.from_bytes(head[2 : 4 if length == _TWO_BYTES else 10], "big")
        if length >= 1 << 63:
            raise MalformedFrame
        self._left = length
        self.count += 1
        opcode = head[0] & 0x0F
        self.data += opcode < _CLOSE
        self.is_closing |= opcode == _CLOSE


def _head_length(head: bytes) -> int:
    """The length of a frame's head, of which the first bytes are known."""
    if len(head) < 2:  # noqa: PLR2004 - the length is in the second
        return 2
    length = head[1] & 0x7F
    return 2 + (0 if length <= _SHORT else 2 if length == _TWO_BYTES else 8) + (4 if head[1] & 0x80 else 0)


def _words(headers: Mapping[str, str], name: str) -> set[str]:
    return {word.lower() for word in _listed(headers.get(name, ""))}


def _listed(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def _name_of(extension: str) -> str:
    return extension.partition(";")[0].strip().lower()
