"""`/metrics` of every long-running process, on its own port and for any Host: scrapers address pods, not names."""

import hmac
import ipaddress
import logging
import socket
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from django.conf import settings
from prometheus_client import CONTENT_TYPE_LATEST

from .edge.listener import listen, serve
from .figures import counted

log = logging.getLogger(__name__)
FORWARDED = ("HTTP_X_FORWARDED_FOR", "HTTP_FORWARDED", "HTTP_X_REAL_IP")
PORTS = {"web": 0, "worker": 1, "beat": 2, "observer": 3}
"""The port of each process, counted from SWITCHYARD_METRICS_PORT: one of each fits on one host."""


def may_scrape(environ: Mapping[str, Any]) -> bool:
    """Whether a request with this WSGI environment may read figures.

    With SWITCHYARD_METRICS_TOKEN set, anyone who sends it (`Authorization: Bearer …`). Without it, only peers on
    loopback that came without a proxy: figures by cluster are for operators.
    """
    if settings.METRICS_TOKEN:
        given = str(environ.get("HTTP_AUTHORIZATION", ""))
        return hmac.compare_digest(given.encode(), f"Bearer {settings.METRICS_TOKEN}".encode())
    try:
        peer = ipaddress.ip_address(environ.get("REMOTE_ADDR", ""))
    except ValueError:
        return False
    return peer.is_loopback and not any(header in environ for header in FORWARDED)


def serve_metrics(process: str) -> None:
    """Serves this process's figures until it ends. If the port is in use, the process runs without."""
    listener = open_port(process)
    if listener is not None:
        serve_port(listener, counted)


def open_port(process: str) -> socket.socket | None:
    """The process's port, listening; None if it is disabled, or if it is in use, which is logged."""
    address = settings.METRICS_BIND or _own_port(process)
    if not address:
        return None
    try:
        return listen(address)
    except OSError as error:
        log.error("%s cannot serve /metrics at %s: %s", process, address, error.strerror)  # noqa: TRY400 - the stack says nothing
        return None


def serve_port(listener: socket.socket, figures: Callable[[], bytes]) -> None:
    """Answers GET /metrics there with `figures()`; 404 to anything else and to those who may not read them."""

    def application(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        status, kind, body = "404 Not Found", "text/plain; charset=utf-8", b"not found\n"
        if environ["REQUEST_METHOD"] == "GET" and environ["PATH_INFO"] == "/metrics" and may_scrape(environ):
            status, kind, body = "200 OK", CONTENT_TYPE_LATEST, figures()
        start_response(
            status, [("Content-Type", kind), ("Content-Length", str(len(body))), ("Cache-Control", "no-store")]
        )
        return [body]

    serve(listener, application)


def _own_port(process: str) -> str:
    return f"127.0.0.1:{settings.METRICS_PORT + PORTS[process]}" if settings.METRICS_PORT else ""
