"""The web server's settings: it uses threads, because requests mostly wait for PostgreSQL and for clusters.

The edge (`foundation.edge`) comes before the threads: it reads whole requests and writes whole responses without one.
"""

from pathlib import Path
from typing import Any

from django.conf import settings

from config import environment as env
from foundation import figures
from foundation.processes import die_with_parent

figures.share()  # before the application defines its metrics

from config.wsgi import application as application  # noqa: E402 - sets Django up, which the worker's class needs
from federation.api.metrics import web_figures  # noqa: E402 - likewise
from federation.drivers.relay_figures import OPEN  # noqa: E402 - likewise
from foundation.scraping import open_port, serve_port  # noqa: E402 - likewise

wsgi_app = "config.wsgi:application"
bind = [env.text("SWITCHYARD_BIND", f"127.0.0.1:{env.number('SWITCHYARD_PORT', 8000, least=1, most=65535)}")]
# The second address serves only /healthz and /readyz, from its own threads.
_health_port = env.number("SWITCHYARD_HEALTH_PORT", 8001, least=0, most=65535)
_health = env.text("SWITCHYARD_HEALTH_BIND", f"127.0.0.1:{_health_port}" if _health_port else "")
if _health:
    bind.append(_health)
backlog = 1024
# Everything is imported once, before the workers are forked: they start immediately and share its memory.
preload_app = True
worker_class = "foundation.edge.worker.BufferedWorker"
workers = env.number("SWITCHYARD_WEB_WORKERS", 2, least=1, most=64)
threads = settings.WEB_THREADS
keepalive = 30
# Only the edge decides which proxies are trusted.
forwarded_allow_ips = ""
secure_scheme_headers: dict[str, str] = {}
sendfile = False
timeout = 60
# Requests still running after the drain have this long.
graceful_timeout = settings.DRAIN_SECONDS + 10
max_requests = 50_000
max_requests_jitter = 5_000
# Workers prove that they are alive by touching a file: never on a disk that may stall.
worker_tmp_dir = "/dev/shm" if Path("/dev/shm").is_dir() else None  # noqa: S108 - made by mkstemp there
control_socket_disable = True
proc_name = "switchyard web"


# Opened once and shared by the workers: each can report the counts of all.
_metrics = open_port("web")


def post_worker_init(_worker: Any) -> None:
    """Once a worker can serve, it also serves its figures. It has none of the WebSockets of the one before."""
    OPEN.set(0)
    if _metrics is not None:
        serve_port(_metrics, web_figures)


def post_fork(_server: Any, worker: Any) -> None:
    """Requests must not outlive a killed master: its successor serves the same port."""
    die_with_parent(worker.ppid)
