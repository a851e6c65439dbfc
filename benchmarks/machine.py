"""The speed of this host, apart from the gateway, so that figures from different hosts can be compared.

Four fixed pieces of work, each repeated; the fastest repeat counts, because other work on the host only adds to it.
"""

import ssl
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from http.client import HTTPSConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import psycopg

from devtools.embedded import postgres, stop
from tests.apiserver import make_certificate

REPEATS = 5
LOOPS = 1_000_000
COMMITS = 100
REQUESTS = 100


def speed() -> Mapping[str, str]:
    """For a benchmark's conditions; about five seconds."""
    return {
        f"python loop of {LOOPS:,}": f"{_fastest(_python_loop):.1f} ms",
        "numpy sort of 1,000,000": f"{_fastest(_numpy_sort):.1f} ms",
        "PostgreSQL commit": f"{_commit_ms():.2f} ms",
        "TLS request": f"{_tls_request_ms():.2f} ms",
    }


def _fastest(work: Callable[[], object]) -> float:
    """Milliseconds of the fastest of some repeats."""
    took = []
    for _ in range(REPEATS):
        began = time.perf_counter()
        work()
        took.append(time.perf_counter() - began)
    return min(took) * 1000


def _python_loop() -> int:
    total = 0
    for number in range(LOOPS):
        total += number ^ 7
    return total


def _numpy_sort() -> object:
    return np.sort(np.random.default_rng(1).random(1_000_000))


def _commit_ms() -> float:
    """A row inserted and committed to disk, in a PostgreSQL as `make serve` starts it."""
    with tempfile.TemporaryDirectory(prefix="switchyard-bench-", dir="/var/tmp") as folder:
        Path(folder).chmod(0o755)
        service = postgres(Path(folder) / "home")
        process = service.start()
        try:
            with psycopg.connect(service.url, autocommit=True) as connection:
                connection.execute("CREATE TABLE lines (id bigint GENERATED ALWAYS AS IDENTITY, body text)")

                def commits() -> None:
                    for _ in range(COMMITS):
                        connection.execute("INSERT INTO lines (body) VALUES ('a line')")

                return _fastest(commits) / COMMITS
        finally:
            stop(process, first=service.stop_signal)


class _Answer(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"ok")

    def log_message(self, *_: object) -> None:
        """Discards the message."""


def _tls_request_ms() -> float:
    """A GET over a persistent TLS connection, answered by a thread of this process."""
    certificate, key = make_certificate("127.0.0.1")
    with tempfile.TemporaryDirectory(prefix="switchyard-bench-") as folder:
        pem = Path(folder) / "server.pem"
        pem.write_text(key + certificate)
        serving = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        serving.load_cert_chain(pem)
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Answer)
    server.daemon_threads = True
    server.socket = serving.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    connection = HTTPSConnection(
        "127.0.0.1", server.server_address[1], context=ssl.create_default_context(cadata=certificate)
    )
    try:

        def requests() -> None:
            for _ in range(REQUESTS):
                connection.request("GET", "/")
                connection.getresponse().read()

        return _fastest(requests) / REQUESTS
    finally:
        connection.close()
        with suppress(OSError):
            server.shutdown()
            server.server_close()
