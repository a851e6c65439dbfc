"""gunicorn's worker with the front before its threads: gunicorn provides the processes, the parser and the
responses.
"""

import hashlib
import logging
import math
import os
import re
import resource
import threading
import time
from collections.abc import Callable, Iterable
from http import HTTPStatus
from io import BytesIO
from typing import Any
from urllib.parse import unquote

from django.conf import settings
from gunicorn.http import wsgi
from gunicorn.workers.base import Worker

from foundation.health import application as health
from foundation.health import draining
from foundation.problems import InternalError, RateLimited
from foundation.requests import KNOWN_CALLER

from . import upgrades
from .bounds import Bounds
from .connection import AnswerSocket, Connection
from .front import Front
from .meters import Meter, Ticket
from .peers import Caller, Trust, address_of, caller_of, source_of
from .refusals import refusal
from .upgrades import UPGRADE, Upgrade

log = logging.getLogger(__name__)
HEALTH_BOUNDS = Bounds(connections=64, source_connections=32, head_seconds=2, idle_seconds=5, body_bytes=0)
HEALTH_THREADS = 2
STOP_SECONDS = 6.0
"""For the connections that were handed over to end properly."""
Application = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


class BufferedWorker(Worker):  # type: ignore[misc]  # gunicorn has no types
    """The first listener is the application's; further ones report only this process's health."""

    _serves_until = math.inf

    def handle_exit(self, sig: int, frame: object) -> None:  # noqa: ARG002 - a signal handler's arguments
        """SIGTERM: continues to serve while senders learn from `/readyz` to send requests elsewhere."""
        if not draining.is_set():
            self._serves_until = time.monotonic() + settings.DRAIN_SECONDS
            draining.set()

    def run(self) -> None:
        """Serves until a stop is requested, then answers pending requests."""
        _raise_file_limit()
        bounds: Bounds = settings.EDGE_BOUNDS
        own, *for_health = [listener.sock for listener in self.sockets]
        door = Door(self.wsgi, self.cfg, Meter(settings.EDGE_RATES, self.cfg.workers), settings.EDGE_TRUST)
        front = Front([own], bounds, cfg=self.cfg, judge=door.judge, is_exempt=door.is_proxy, on_stop=upgrades.stop_all)
        told = Front(for_health, HEALTH_BOUNDS, cfg=self.cfg)
        start_threads(self.cfg.threads, front, door.serve)
        start_threads(HEALTH_THREADS, told, Door(health, self.cfg).serve)
        teller = threading.Thread(target=told.run, args=[lambda: self.alive], name="health", daemon=True)
        teller.start()
        front.run(lambda: self._goes_on(door))
        upgrades.wait_for_all(STOP_SECONDS)
        teller.join(1)

    def _goes_on(self, door: "Door") -> bool:
        self.notify()
        if self.ppid != os.getppid():
            self.log.info("Parent changed, shutting down: %s", self)
            self.alive = False
        if self.alive and door.served >= self.max_requests:
            self.log.info("Autorestarting worker after %s requests.", door.served)
            self.alive = False
        if time.monotonic() >= self._serves_until:
            self.alive = False
        return bool(self.alive)


class Door:
    """Connects the front and the application: identifies the caller, applies rate limits, and answers."""

    def __init__(self, application: Application, cfg: Any, meter: Meter | None = None, trust: Trust = Trust()) -> None:  # noqa: B008 - a frozen value
        self._application, self._cfg, self._meter, self._trust = application, cfg, meter, trust
        self._lock = threading.Lock()
        self.served = 0

    def is_proxy(self, address: str) -> bool:
        """Whether a connection from this address carries requests of many clients."""
        parsed = address_of(address)
        return parsed is not None and self._trust.covers(parsed)

    def judge(self, connection: Connection) -> None:
        """Identifies the caller; RateLimited if it has exceeded its rate."""
        request = connection.request
        request.caller = caller_of(connection.peer[0], request.headers, self._trust)
        request.ticket = None
        if self._meter is None:
            return
        is_free = request.method in {"GET", "HEAD"} and request.path.startswith(settings.STATIC_URL)
        source = source_of(request.caller.address)
        with self._lock:
            judged = self._meter.admit(
                source,
                "" if is_free else _credential(request.headers),
                is_sign_in=request.method == "POST" and unquote(request.path) == settings.EDGE_SIGN_IN_PATH,
                is_free=is_free,
                now=time.monotonic(),
            )
        if isinstance(judged, float):
            raise RateLimited(retry_after_seconds=max(1, math.ceil(judged)))
        request.ticket = judged

    def serve(self, front: Front, connection: Connection) -> None:
        """Answers one request in its own thread; a failure of the application is a 500 and does not end the worker."""
        out = AnswerSocket(connection, front.bounds.held_bytes)
        self.served += 1
        try:
            # A draining process closes each connection with its response, so that the next request goes elsewhere.
            is_last = self._answer(connection, out, is_stopping=front.is_stopping or draining.is_set())
            out.flush()
        except OSError:
            is_last = True  # the peer is gone
        connection.is_last = is_last

    def _answer(self, connection: Connection, out: AnswerSocket, *, is_stopping: bool) -> bool:
        """Whether the connection ends with this response."""
        response = None
        try:
            response, environ = self._prepare(connection, out)
            # What follows a WebSocket's request that was refused is no request.
            if is_stopping or environ.get("HTTP_UPGRADE", "").lower() == "websocket":
                response.force_close()
            upgrade = environ[UPGRADE] = Upgrade()
            pieces = self._application(environ, response.start_response)
            connection.taker = upgrade.taker
            try:
                if upgrade.taker is None:
                    for piece in pieces:
                        response.write(piece)
                    response.close()
                    out.flush()
            finally:
                if hasattr(pieces, "close"):
                    pieces.close()
            self._note(getattr(connection.request, "ticket", None), environ, response.status_code)
        except OSError:
            raise
        except Exception:
            log.exception("a request failed outside the application's own handling")
            connection.taker = None
            if response is None or not response.headers_sent:
                out.sendall(refusal(InternalError()))
            return True
        return connection.taker is None and bool(response.should_close())

    def _prepare(self, connection: Connection, out: AnswerSocket) -> tuple[Any, dict[str, Any]]:
        """Gunicorn's response and WSGI environment, with the received body and the identified caller."""
        request, body = connection.request, connection.body
        assert body is not None
        response, environ = wsgi.create(request, out, connection.peer, connection.server, self._cfg)
        caller: Caller = getattr(request, "caller", None) or Caller(connection.peer[0])
        environ["wsgi.multithread"] = True
        environ["wsgi.input"] = BytesIO(body.content)
        if environ.pop("HTTP_TRANSFER_ENCODING", None):
            environ["CONTENT_LENGTH"] = str(len(body.content))
        environ["REMOTE_ADDR"] = caller.address
        if caller.scheme:
            environ["wsgi.url_scheme"] = caller.scheme
        return response, environ

    def _note(self, ticket: Ticket | None, environ: dict[str, Any], status: int) -> None:
        if ticket is None or self._meter is None:
            return
        with self._lock:
            if environ.get(KNOWN_CALLER):
                self._meter.note_known(ticket, time.monotonic())
            elif status == HTTPStatus.UNAUTHORIZED:
                self._meter.note_unknown(ticket)


def _credential(headers: Iterable[tuple[str, str]]) -> str:
    """A digest of the caller's token or session; empty without either."""
    for name, value in headers:
        if name == "AUTHORIZATION":
            return hashlib.sha256(value.encode()).hexdigest()
    cookies = "; ".join(value for name, value in headers if name == "COOKIE")
    for known in (settings.SESSION_COOKIE_NAME, *settings.EDGE_CREDENTIAL_COOKIES):
        session = re.search(rf"(?:^|; ?){re.escape(known)}=([^;]+)", cookies)
        if session:
            return hashlib.sha256(session[1].encode()).hexdigest()
    return ""


def start_threads(count: int, front: Front, serve: Callable[[Front, Connection], None]) -> None:
    """A fixed number of daemon threads that answer the front's requests."""

    def work() -> None:
        while (connection := front.requests.get()) is not None:
            serve(front, connection)
            front.done(connection)

    for number in range(count):
        threading.Thread(target=work, name=f"request-{number}", daemon=True).start()


def _raise_file_limit() -> None:
    """Connections are file descriptors: raises the limit to the system's maximum."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
