"""A real web process, as production starts it, and plain sockets that misbehave. Everything stays on loopback."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote, urlsplit

import pytest
from django.db import connection

from devtools.embedded import free_port
from devtools.serve import PROJECT
from foundation.processes import die_with_parent

STRANGER = "127.0.0.2"
"""Another address on loopback, from which attacks come."""
PATIENCE_SECONDS = 30
THREADS = 8


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    def json(self):
        return json.loads(self.body)


@dataclass
class Edge:
    """A running web process and the sockets that a test opened to it."""

    process: subprocess.Popen
    port: int
    health_port: int
    log: Path
    opened: list[socket.socket] = field(default_factory=list)

    def connect(self, source: str = "127.0.0.1", port: int | None = None, receive_buffer: int = 0) -> socket.socket:
        sock = socket.socket()
        self.opened.append(sock)
        sock.settimeout(PATIENCE_SECONDS)
        if receive_buffer:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        sock.bind((source, 0))
        sock.connect(("127.0.0.1", port or self.port))
        return sock

    def crowd(
        self, count: int, *, first: bytes = b"", source: str = STRANGER, receive_buffer: int = 0
    ) -> list[socket.socket]:
        """So many connections, each with its first bytes sent."""
        sockets = []
        for _ in range(count):
            sock = self.connect(source, receive_buffer=receive_buffer)
            if first:
                with contextlib.suppress(OSError):
                    sock.sendall(first)
            sockets.append(sock)
        return sockets

    def raw(self, data: bytes, source: str = "127.0.0.1", port: int | None = None) -> bytes:
        """All that comes back until the web process closes or falls silent for a second."""
        with self.connect(source, port) as sock:
            sock.sendall(data)
            sock.settimeout(1.5)
            received = b""
            with contextlib.suppress(TimeoutError, ConnectionResetError):
                while piece := sock.recv(65536):
                    received += piece
            return received

    def ask(
        self,
        path: str,
        *,
        source: str = "127.0.0.1",
        port: int | None = None,
        seconds: float = PATIENCE_SECONDS,
        **headers: str,
    ) -> Answer:
        """One GET on a connection of its own."""
        with self.connect(source, port) as sock:
            sock.settimeout(seconds)
            lines = [
                f"GET {path} HTTP/1.1",
                "Host: localhost",
                "Connection: close",
                *(f"{k.replace('_', '-')}: {v}" for k, v in headers.items()),
            ]
            sock.sendall("\r\n".join([*lines, "", ""]).encode())
            return read_answer(sock)

    def forget(self) -> None:
        for sock in self.opened:
            sock.close()
        self.opened.clear()

    def threads_are_free(self) -> bool:
        """Whether every thread serves: each of these requests is answered only while all others are served too."""
        sockets = [self.connect() for _ in range(THREADS)]
        for sock in sockets:
            sock.sendall(b"GET /test/together HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        return all(read_answer(sock).status == 200 for sock in sockets)


def read_answer(sock: socket.socket) -> Answer:
    """One answer with a length, or up to the end of the connection."""
    received = b""
    while b"\r\n\r\n" not in received:
        piece = sock.recv(65536)
        assert piece, f"the connection ended after {received!r}"
        received += piece
    head, _, body = received.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}
    length = int(headers.get("content-length", -1))
    while length < 0 or len(body) < length:
        piece = sock.recv(65536)
        if not piece:
            break
        body += piece
    return Answer(int(first.split(" ")[1]), headers, body)


@contextlib.contextmanager
def running(folder: Path, **settings: str) -> Iterator[Edge]:
    """A web process with these settings on the tests' own database."""
    parts = urlsplit(os.environ["DATABASE_URL"])
    database = parts._replace(path="/" + quote(connection.settings_dict["NAME"])).geturl()
    port, health_port = free_port(), free_port()
    environment = {
        **os.environ,
        "DATABASE_URL": database,
        "SWITCHYARD_PORT": str(port),
        "SWITCHYARD_HEALTH_PORT": str(health_port),
        "SWITCHYARD_WEB_WORKERS": "1",
        "SWITCHYARD_WEB_THREADS": str(THREADS),
        **settings,
    }
    log = folder / "web.log"
    with log.open("wb") as sink:
        command = [
            sys.executable,
            "-m",
            "gunicorn",
            "--config",
            "python:config.gunicorn",
            "tests.edge.application:application",
        ]
        process = subprocess.Popen(
            command,
            cwd=PROJECT,
            env=environment,
            stdout=sink,
            stderr=sink,
            process_group=0,
            preexec_fn=die_with_parent,  # noqa: PLW1509 - it calls the kernel once and takes no lock
        )
    edge = Edge(process, port, health_port, log)
    try:
        _wait_until_it_answers(edge)
        yield edge
    finally:
        edge.forget()
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _wait_until_it_answers(edge: Edge) -> None:
    deadline = time.monotonic() + 60
    while True:
        assert edge.process.poll() is None, edge.log.read_text()
        try:
            if edge.ask("/healthz", seconds=5).status == 200:
                return
        except (OSError, AssertionError):
            assert time.monotonic() < deadline, edge.log.read_text()
            time.sleep(0.1)


@pytest.fixture(scope="package")
def one_edge(django_db_setup, django_db_blocker, tmp_path_factory):
    with django_db_blocker.unblock():
        connection.ensure_connection()
        connection.close()
    strict = {
        "SWITCHYARD_HEAD_SECONDS": "3",
        "SWITCHYARD_TRANSFER_SECONDS": "4",
        "SWITCHYARD_STRANGER_REQUESTS": "0",
        "SWITCHYARD_SOURCE_REQUESTS": "0",
        "SWITCHYARD_SOURCE_CONNECTIONS": "1000",
        "SWITCHYARD_TRUSTED_PROXIES": "127.0.0.9/32",
    }
    with running(tmp_path_factory.mktemp("edge"), **strict) as edge:
        yield edge


@pytest.fixture
def edge(one_edge):
    yield one_edge
    one_edge.forget()
