"""A small port next to a process's own work: the same front as the web's, with the limits of the health port."""

import socket
import threading

from gunicorn.config import Config
from gunicorn.util import parse_address

from .front import Front
from .worker import HEALTH_BOUNDS, HEALTH_THREADS, Application, Door, start_threads


def listen(address: str) -> socket.socket:
    """A socket that listens at `host:port`. OSError if the address is not available."""
    host, port = parse_address(address)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, port), family=family, backlog=HEALTH_BOUNDS.connections)


def serve(listener: socket.socket, application: Application) -> None:
    """Serves the application there from daemon threads, until the process ends."""
    cfg = Config()
    front = Front([listener], HEALTH_BOUNDS, cfg=cfg)
    start_threads(HEALTH_THREADS, front, Door(application, cfg).serve)
    threading.Thread(target=front.run, args=[lambda: True], name="metrics", daemon=True).start()
