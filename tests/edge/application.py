"""The gateway's own application, and below /test/ a few answers that show what the edge does."""

import contextlib
import json
import os
import socket
import threading
import time

from config.wsgi import application as gateway
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


def application(environ, start_response):
    path = environ["PATH_INFO"]
    if not path.startswith("/test/"):
        return gateway(environ, start_response)
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
    elif path == "/test/pieces":
        start_response("200 OK", [("Content-Type", "text/plain")])
        return (piece for piece in (b"one,", b"", b"two,", b"three"))
    else:
        told = ("REQUEST_METHOD", "PATH_INFO", "REMOTE_ADDR", "wsgi.url_scheme", "CONTENT_LENGTH", "QUERY_STRING")
        read = environ["wsgi.input"].read()
        body = json.dumps({name: environ.get(name, "") for name in told} | {"body": read.decode("latin-1")}).encode()
    start_response("200 OK", [("Content-Type", "application/json"), ("Content-Length", str(len(body)))])
    return [body]
