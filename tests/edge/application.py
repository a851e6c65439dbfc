"""The gateway's own application, and below /test/ a few answers that show what the edge does."""

import json
import os
import threading
import time

from config.wsgi import application as gateway

BIG = b"x" * (4 * 1024 * 1024)
TOGETHER = threading.Barrier(int(os.environ["SWITCHYARD_WEB_THREADS"]), timeout=20)
"""Opens when every thread serves a request at the same time."""


def application(environ, start_response):
    path = environ["PATH_INFO"]
    if not path.startswith("/test/"):
        return gateway(environ, start_response)
    if path == "/test/slow":
        time.sleep(1.0)
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
