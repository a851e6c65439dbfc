"""The loop that owns every connection of a worker: it reads whole requests, passes them to threads, and sends
responses.

One thread, epoll, no blocking call. A silent, slow or vanished peer takes only its own memory until its deadline. Each
descriptor is armed for one event at a time (EPOLLONESHOT), so the loop reads nothing from a peer whose request is being
processed.
"""

import logging
import os
import select
import socket
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from queue import SimpleQueue

from foundation.problems import Overloaded, Problem, RequestTimeout

from .bounds import Bounds
from .connection import Connection, Phase
from .framing import body_of, parse_head, take_head
from .peers import address_of, source_of
from .refusals import CONTINUE, refusal
from .upgrades import Taker

log = logging.getLogger(__name__)
IN = select.EPOLLIN | select.EPOLLONESHOT
OUT = select.EPOLLOUT | select.EPOLLONESHOT
SWEEP_SECONDS = 0.5
HEAD_BYTES, BODY_BYTES = 16 * 1024, 256 * 1024
MOST_WAITING = 1024
"""The number of connections in the kernel's queue that a stopping front still accepts."""
STOP_LINGER_SECONDS = 2.0
"""How long a stopping front still accepts a request on a kept connection: its sender cannot know of the stop yet."""


class Front:
    """`judge(connection)` may refuse a request by its head with a Problem; complete requests are put into
    `requests`.
    """

    def __init__(
        self,
        listeners: Sequence[socket.socket],
        bounds: Bounds,
        *,
        cfg: object,
        judge: Callable[[Connection], None] = lambda _: None,
        is_exempt: Callable[[str], bool] = lambda _: False,
        on_stop: Callable[[], None] = lambda: None,
    ) -> None:
        self.bounds, self.cfg, self.judge, self.is_exempt, self.on_stop = bounds, cfg, judge, is_exempt, on_stop
        self.listeners = {listener.fileno(): listener for listener in listeners}
        self.requests: SimpleQueue[Connection | None] = SimpleQueue()
        self.connections: dict[int, Connection] = {}
        self.sources: dict[str, set[Connection]] = {}
        self.held = 0
        self.lock = threading.Lock()
        self.is_stopping = False
        self._epoll = select.epoll()
        self._done: SimpleQueue[Connection] = SimpleQueue()
        self._wake_fd, self._waker_fd = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._epoll.register(self._wake_fd, select.EPOLLIN)

    def run(self, goes_on: Callable[[], bool]) -> None:
        """Serves until `goes_on` returns false (checked twice a second), then until pending requests are answered."""
        for fd, listener in self.listeners.items():
            listener.setblocking(False)
            self._epoll.register(fd, select.EPOLLIN)
        sweep_at, stop_at = 0.0, 0.0
        while True:
            for fd, _ in self._epoll.poll(SWEEP_SECONDS):
                self._turn(fd)
            now = time.monotonic()
            if now >= sweep_at:
                sweep_at = now + SWEEP_SECONDS
                self._sweep(now)
                if not self.is_stopping and not goes_on():
                    self._stop_accepting()
                    stop_at = now + STOP_LINGER_SECONDS
            if self.is_stopping and self._is_finished(past_linger=now >= stop_at):
                return

    def done(self, connection: Connection) -> None:
        """Takes a connection back from the thread that answered its request. That thread calls it."""
        if (
            connection.outbox
            or connection.inbox
            or connection.is_last
            or self.is_stopping
            or connection.held
            or connection.taker
        ):
            self._done.put(connection)
            self._wake()
        else:
            self._await_request(connection)

    def keep(self, connection: Connection, size: int) -> None:
        """Adds (or subtracts) bytes in memory on behalf of a connection."""
        with self.lock:
            connection.held += size
            self.held += size

    def close(self, connection: Connection) -> None:
        """Drops the connection. Not while a thread uses it."""
        if self._forget(connection):
            connection.sock.close()

    def _forget(self, connection: Connection) -> bool:
        """The connection is no longer the front's; False if it was not."""
        if self.connections.get(connection.fd) is not connection:
            return False
        del self.connections[connection.fd]
        siblings = self.sources[connection.source]
        siblings.discard(connection)
        if not siblings:
            del self.sources[connection.source]
        self.keep(connection, -connection.held)
        with connection.lock:
            connection.phase = Phase.CLOSED
        return True

    def _turn(self, fd: int) -> None:
        if fd in self.listeners:
            self._accept(self.listeners[fd])
        elif fd == self._wake_fd:
            os.read(self._wake_fd, 4096)
            while not self._done.empty():
                self._answered(self._done.get())
        elif (connection := self.connections.get(fd)) is not None:
            try:
                if connection.phase is Phase.ANSWER:
                    self._send_more(connection)
                elif connection.phase is not Phase.WORK:
                    self._receive(connection)
            except OSError:
                self.close(connection)
            except Exception:
                # A failure with one peer must not end the other connections.
                log.exception("a connection was given up")
                self.close(connection)

    def _wake(self) -> None:
        with suppress(BlockingIOError):  # the pipe is already full of wake-ups
            os.write(self._waker_fd, b"\0")

    # --- coming in

    def _accept(self, listener: socket.socket) -> bool:
        """Accepts one connection per turn, so that other workers get theirs; False if none waits."""
        try:
            sock, peer = listener.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return False
        except OSError as error:
            log.warning("cannot accept: %s", error)
            self._make_room(self.connections.values())
            return False
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        address = str(address_of(peer[0]) or peer[0])
        source = source_of(address)
        siblings = self.sources.get(source, set())
        is_full = len(siblings) >= self.bounds.source_connections and not self.is_exempt(address)
        if (is_full and not self._make_room(siblings)) or (
            len(self.connections) >= self.bounds.connections and not self._make_room(self._largest_source())
        ):
            sock.close()
            return True
        connection = Connection(sock, (address, peer[1]), listener.getsockname()[:2], source)
        connection.deadline = time.monotonic() + self.bounds.head_seconds
        self.connections[connection.fd] = connection
        self.sources.setdefault(source, set()).add(connection)
        self._epoll.register(connection.fd, IN)
        return True

    def _make_room(self, among: object) -> bool:
        """Closes the waiting connection that is nearest to its deadline; False if there is none."""
        waiting = [connection for connection in among if connection.waits]  # type: ignore[attr-defined]
        if not waiting:
            return False
        self.close(min(waiting, key=lambda connection: connection.deadline))
        return True

    def _largest_source(self) -> list[Connection]:
        by_size = sorted(self.sources.values(), key=len, reverse=True)
        return [connection for siblings in by_size[:3] for connection in siblings]

    def _receive(self, connection: Connection) -> None:
        try:
            data = connection.sock.recv(BODY_BYTES if connection.phase is Phase.BODY else HEAD_BYTES)
        except BlockingIOError:
            self._epoll.modify(connection.fd, IN)
            return
        if not data:
            self.close(connection)
            return
        if connection.phase is Phase.LINGER:
            self._epoll.modify(connection.fd, IN)
            return
        connection.inbox += data
        if connection.phase is Phase.BODY:
            connection.moved += len(data)
            self.keep(connection, len(data))
        self._advance(connection)

    def _advance(self, connection: Connection) -> None:
        """Processes the received data as far as possible."""
        try:
            if connection.phase is Phase.IDLE:
                connection.phase = Phase.HEAD
                connection.seen = 0
                connection.deadline = time.monotonic() + self.bounds.head_seconds
            if connection.phase is Phase.HEAD and not self._read_head(connection):
                self._epoll.modify(connection.fd, IN)
                return
            assert connection.body is not None
            if not connection.body.take(connection.inbox):
                self._await_body(connection)
                return
        except Problem as problem:
            self._refuse(connection, problem)
            return
        if self._is_full_for(connection):
            self._refuse(connection, Overloaded(retry_after_seconds=1))
            return
        connection.phase = Phase.WORK
        connection.served += 1
        self.requests.put(connection)

    def _is_full_for(self, connection: Connection) -> bool:
        """Whether too many requests wait for a thread; one source may have half of them."""
        waiting, most = self.requests.qsize(), self.bounds.waiting_requests
        if waiting < most // 2:
            return False
        if waiting >= most or self.is_exempt(connection.peer[0]):
            return waiting >= most
        return sum(sibling.phase is Phase.WORK for sibling in self.sources[connection.source]) >= most // 2

    def _read_head(self, connection: Connection) -> bool:
        head = take_head(connection.inbox, connection.seen, self.bounds.head_bytes)
        connection.seen = len(connection.inbox)
        if head is None:
            return False
        connection.request = parse_head(self.cfg, head, connection.peer)
        self.judge(connection)
        connection.body = body_of(connection.request, self.bounds.body_limit(connection.request.path))
        connection.phase = Phase.BODY
        connection.began = time.monotonic()
        connection.moved = len(connection.inbox)
        if connection.request._expected_100_continue:  # noqa: SLF001 - gunicorn would send it when the body is already here
            connection.request._expected_100_continue = False  # noqa: SLF001 - likewise
            if not connection.inbox:
                connection.send(CONTINUE, len(CONTINUE))
        return True

    def _await_body(self, connection: Connection) -> None:
        if self.held > self.bounds.held_bytes:
            raise Overloaded(retry_after_seconds=5)
        self._pace(connection)
        self._epoll.modify(connection.fd, IN)

    def _pace(self, connection: Connection) -> None:
        """The deadline of a transfer: it moves with the number of bytes transferred."""
        bounds = self.bounds
        connection.deadline = connection.began + bounds.transfer_seconds + connection.moved / bounds.bytes_per_second

    # --- going out

    def _answered(self, connection: Connection) -> None:
        """A thread has answered; the front owns the connection again, or hands it over."""
        if connection.taker is not None:
            self._hand_over(connection, connection.taker)
            return
        self.keep(connection, len(connection.outbox) - connection.held)
        connection.is_last |= self.is_stopping
        connection.phase, connection.moved, connection.began = Phase.ANSWER, 0, time.monotonic()
        if self.held > self.bounds.held_bytes:
            self._drop_untaken()
        if self.connections.get(connection.fd) is connection:
            try:
                self._send_more(connection)
            except OSError:
                self.close(connection)

    def _hand_over(self, connection: Connection, taker: Taker) -> None:
        self._epoll.unregister(connection.fd)
        if self._forget(connection):
            try:
                taker(connection.sock, bytes(connection.inbox))
            except Exception:
                log.exception("a connection could not be handed over")
                connection.sock.close()

    def _drop_untaken(self) -> None:
        """Frees memory by closing the connection with the most unread response bytes."""
        untaken = [c for c in self.connections.values() if c.phase is Phase.ANSWER and c.outbox]
        if untaken:
            self.close(max(untaken, key=lambda connection: len(connection.outbox)))

    def _send_more(self, connection: Connection) -> None:
        sent = connection.flush()
        connection.moved += sent
        self.keep(connection, -min(sent, connection.held))
        if connection.outbox:
            self._pace(connection)
            self._epoll.modify(connection.fd, OUT)
        elif connection.is_last:
            self._say_goodbye(connection)
        elif connection.inbox:
            connection.phase = Phase.IDLE
            self._advance(connection)
        else:
            self._await_request(connection)

    def _await_request(self, connection: Connection) -> None:
        """Ready for the next request. The thread that answered also calls this: it sets the phase last,
        before arming.
        """
        connection.request = connection.body = None
        connection.deadline = time.monotonic() + self.bounds.idle_seconds
        connection.phase = Phase.IDLE
        with suppress(OSError):  # it was closed meanwhile to free a place
            self._epoll.modify(connection.fd, IN)

    def _refuse(self, connection: Connection, problem: Problem) -> None:
        """Responds without a thread and accepts nothing more from this connection."""
        self.keep(connection, -connection.held)
        connection.inbox.clear()
        connection.request = connection.body = None
        connection.is_last = True
        connection.phase = Phase.ANSWER
        connection.began, connection.moved = time.monotonic(), 0
        try:
            connection.send(refusal(problem), 64 * 1024)
            self._send_more(connection)
        except OSError:
            self.close(connection)

    def _say_goodbye(self, connection: Connection) -> None:
        """Ends our side and continues to read briefly: an immediate close would reset data that the peer has not read
        yet.
        """
        connection.phase = Phase.LINGER
        connection.deadline = time.monotonic() + self.bounds.linger_seconds
        connection.sock.shutdown(socket.SHUT_WR)
        self._epoll.modify(connection.fd, IN)

    # --- time

    def _sweep(self, now: float) -> None:
        for connection in list(self.connections.values()):
            if connection.deadline > now or connection.phase is Phase.WORK:
                continue
            if connection.phase is Phase.BODY or (connection.phase is Phase.HEAD and connection.inbox):
                self._refuse(connection, RequestTimeout())
            else:
                self.close(connection)

    def _stop_accepting(self) -> None:
        self.is_stopping = True
        for fd, listener in self.listeners.items():
            self._epoll.unregister(fd)
            # The kernel has accepted these for us: closing them with the listener would reset them.
            for _ in range(MOST_WAITING):
                if not self._accept(listener):
                    break
            listener.close()
        self.listeners = {}
        self.on_stop()

    def _is_finished(self, *, past_linger: bool) -> bool:
        if past_linger:
            for connection in [c for c in self.connections.values() if c.phase in {Phase.IDLE, Phase.LINGER}]:
                self.close(connection)
        return not self.connections
