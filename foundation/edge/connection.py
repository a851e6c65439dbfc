"""One connection to a peer: received data, data to send, and its deadline."""

import socket
import threading
from enum import IntEnum
from typing import Any

from .framing import Body
from .upgrades import Taker


class Phase(IntEnum):
    """The phase of a connection. Only in WORK does it occupy a thread; in every other phase it takes only memory."""

    IDLE = 0
    HEAD = 1
    BODY = 2
    WORK = 3
    ANSWER = 4
    LINGER = 5
    CLOSED = 6


class Connection:
    """State, changed by the front's own thread; in WORK, by the thread that serves the request."""

    __slots__ = (
        "began", "body", "deadline", "fd", "held", "inbox", "is_last", "lock", "moved", "outbox", "peer", "phase",
        "request", "seen", "served", "server", "sock", "source", "taker",
    )  # fmt: skip

    def __init__(self, sock: socket.socket, peer: tuple[str, int], server: tuple[str, int], source: str) -> None:
        self.sock, self.fd, self.peer, self.server, self.source = sock, sock.fileno(), peer, server, source
        self.lock = threading.Lock()
        self.inbox = bytearray()
        self.outbox = bytearray()
        self.phase = Phase.IDLE
        self.deadline = self.began = 0.0
        self.seen = self.moved = self.held = self.served = 0
        self.request: Any = None
        self.taker: Taker | None = None
        self.body: Body | None = None
        self.is_last = False

    @property
    def waits(self) -> bool:
        """Whether it may be closed to free a place: none of its requests is being processed or answered."""
        return self.phase in {Phase.IDLE, Phase.HEAD, Phase.BODY, Phase.LINGER}

    def send(self, data: bytes, most: int) -> None:
        """Sends what the socket accepts now and keeps the rest.

        BrokenPipeError if the peer is gone or leaves more than `most` bytes unread.
        """
        with self.lock:
            if self.phase is Phase.CLOSED:
                raise BrokenPipeError
            sent = 0
            if not self.outbox:
                try:
                    sent = self.sock.send(data)
                except BlockingIOError:
                    sent = 0
            if sent < len(data):
                self.outbox += memoryview(data)[sent:]
            if len(self.outbox) > most:
                raise BrokenPipeError

    def flush(self) -> int:
        """Sends more of the kept data; returns the number of bytes sent."""
        with self.lock:
            if not self.outbox:
                return 0
            try:
                with memoryview(self.outbox) as view:
                    sent = self.sock.send(view[: 256 * 1024])
            except BlockingIOError:
                return 0
            del self.outbox[:sent]
            return sent


class AnswerSocket:
    """The target of gunicorn's Response: collects small pieces, so that head and body are sent together."""

    def __init__(self, connection: Connection, most: int) -> None:
        self._connection = connection
        self._most = most
        self._pieces: list[bytes] = []
        self._size = 0

    def sendall(self, data: bytes) -> None:
        self._pieces.append(data)
        self._size += len(data)
        if self._size >= 64 * 1024:
            self.flush()

    def send(self, data: bytes) -> int:
        self.sendall(data)
        return len(data)

    def flush(self) -> None:
        """Passes on the collected data."""
        pieces, self._pieces, self._size = b"".join(self._pieces), [], 0
        if pieces:
            self._connection.send(pieces, self._most)
