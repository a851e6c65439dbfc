"""The gateway's own application, and below /test/ a few answers that show what the edge does."""

import asyncio
import contextlib
import json
import os
import socket
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import parse_qsl
from uuid import NAMESPACE_URL, uuid5

from clusters.drivers import DriverError, PortRequest
from clusters.drivers.simulated.programs import Program
from config.wsgi import application as gateway
from federation.drivers.relays import Whose
from federation.drivers.switchboard import Switchboard
from federation.engine.sockets import program_handshake
from federation.web.session_places import Places
from foundation.edge.upgrades import UPGRADE, hold

BIG = b"x" * (4 * 1024 * 1024)
TOGETHER = threading.Barrier(int(os.environ["SWITCHYARD_WEB_THREADS"]), timeout=20)
"""Opens when every thread serves a request at the same time."""


class Echoes:
    """Takes connections, returns what arrives on them, and says goodbye when the process stops."""

    def __init__(self):
        self.open = []

    def take(self, sock, early):
        sock.setblocking(True)
        sock.sendall(b"taken:" + early)
        self.open.append(sock)
        threading.Thread(target=self._serve, args=[sock], daemon=True).start()

    def _serve(self, sock):
        with contextlib.suppress(OSError):
            while data := sock.recv(65536):
                sock.sendall(data)
        self.open.remove(sock)

    def stop(self):
        for sock in self.open:
            sock.sendall(b"goodbye")
            sock.shutdown(socket.SHUT_RDWR)

    def wait(self, seconds):
        """Nothing is left to wait for."""


ECHOES = Echoes()
hold(ECHOES)


async def _nothing(*_):
    await asyncio.Event().wait()


RUNNING: Any = SimpleNamespace(answer=lambda *_: None)
HANGING: Any = SimpleNamespace(write=_nothing, read=_nothing)
BOARD = Switchboard(int(os.environ.get("SWITCHYARD_SESSION_SOCKETS", "256")), lambda tickets, used: frozenset(tickets))
PLACES = Places(int(os.environ["SWITCHYARD_WEB_THREADS"]))
hold(BOARD)


@contextlib.asynccontextmanager
async def port(is_hanging):
    """A program that returns the frames that it gets, or one on a cluster that never answers."""
    yield HANGING if is_hanging else Program(RUNNING, 8888)


def relayed(environ, start_response):
    """A WebSocket to a program, as sessions have it; the query names its user and session."""
    asked = dict(parse_qsl(environ["QUERY_STRING"]))
    user, session = (uuid5(NAMESPACE_URL, asked[name]) for name in ("user", "session"))
    sent = {name[5:].replace("_", "-").lower(): value for name, value in environ.items() if name.startswith("HTTP_")}
    status = "503 Service Unavailable"
    if PLACES.take(session, user):
        try:
            relay = BOARD.begin(Whose(uuid5(session, asked["user"]), user, session))
            if relay is not None:
                request = PortRequest("GET", "/", program_handshake(sent, "localhost"))
                BOARD.open(relay, port("hangs" in asked), request)
                environ[UPGRADE].taker = relay.take
                status = "101 Switching Protocols"
        except DriverError as error:
            status = f"{error.status} No"
        finally:
            PLACES.give_back(session, user)
    start_response(status, [("Content-Length", "0")])
    return []


def counted():
    """What the process has open."""
    return {
        "sockets": len(BOARD),
        "descriptors": sum(1 for _ in Path("/proc/self/fd").iterdir()),
        "threads": threading.active_count(),
    }


def application(environ, start_response):
    path = environ["PATH_INFO"]
    if not path.startswith("/test/"):
        return gateway(environ, start_response)
    if path == "/test/relay":
        return relayed(environ, start_response)
    if path == "/test/slow":
        time.sleep(1.0)
    if path == "/test/socket":
        environ[UPGRADE].taker = ECHOES.take
        start_response("101 Switching Protocols", [])
        return []
    if path == "/test/together":
        TOGETHER.wait()
    if path == "/test/fails":
        raise RuntimeError("a defect")
    if path == "/test/big":
        body = BIG
    elif path == "/test/open":
        body = json.dumps(counted()).encode()
    elif path == "/test/pieces":
        start_response("200 OK", [("Content-Type", "text/plain")])
        return (piece for piece in (b"one,", b"", b"two,", b"three"))
    else:
        told = ("REQUEST_METHOD", "PATH_INFO", "REMOTE_ADDR", "wsgi.url_scheme", "CONTENT_LENGTH", "QUERY_STRING")
        read = environ["wsgi.input"].read()
        body = json.dumps({name: environ.get(name, "") for name in told} | {"body": read.decode("latin-1")}).encode()
    start_response("200 OK", [("Content-Type", "application/json"), ("Content-Length", str(len(body)))])
    return [body]
