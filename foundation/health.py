"""Whether this process is alive and whether it can serve. Any client may ask; responses show no detail."""

import logging
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

import psycopg
import redis
from django.conf import settings
from django.db import DatabaseError, connection
from django.db.migrations.exceptions import NodeNotFoundError
from django.db.migrations.executor import MigrationExecutor
from django.http import HttpRequest, JsonResponse
from django.views.decorators.http import require_safe

from .merged import lacking_in_part
from .plain_json import encode

logger = logging.getLogger(__name__)
REDIS_SECONDS = 1.0
DATABASE_SECONDS = 2
KEEP_SECONDS = 1.0
"""How long one check's result serves all requests on the health port."""
DRAINING = {"status": "draining"}
draining = threading.Event()
"""Set once this process was asked to end: it serves on for a while, and reports that it should get no new work."""


@require_safe
def alive(_: HttpRequest) -> JsonResponse:
    """200 as long as the process responds."""
    return JsonResponse({"status": "alive"})


@require_safe
def ready(_: HttpRequest) -> JsonResponse:
    """200 if the database responds and has every migration. Redis is reported but not required: it only
    affects speed.
    """
    if draining.is_set():
        return JsonResponse(DRAINING, status=503)
    parts = {"database": _database(), "redis": _redis()}
    is_ready = parts["database"] == "ok"
    return JsonResponse({"status": "ready" if is_ready else "not_ready", **parts}, status=200 if is_ready else 503)


def _database() -> str:
    try:
        return "ok" if is_migrated() else "not_migrated"
    except DatabaseError:
        logger.warning("the database does not answer", exc_info=True)
        return "unreachable"


def is_migrated() -> bool:
    """Whether the database has every migration of this version; DatabaseError if it does not answer."""
    try:
        executor = MigrationExecutor(connection)
    except NodeNotFoundError:
        return False  # some of what was merged: see foundation.merged
    return not executor.migration_plan(executor.loader.graph.leaf_nodes()) and not lacking_in_part(executor.loader)


def _redis() -> str:
    try:
        with redis.Redis.from_url(
            settings.REDIS_URL, socket_timeout=REDIS_SECONDS, socket_connect_timeout=REDIS_SECONDS
        ) as client:
            client.ping()
    except redis.RedisError:
        return "unreachable"
    return "ok"


class Readiness:
    """Checks database and Redis, one check at a time and each with a time limit."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._parts: dict[str, str] = {}
        self._until = 0.0
        self._is_migrated = False

    def parts(self) -> dict[str, str]:
        """The result of at most KEEP_SECONDS ago; `slow` while a check takes too long."""
        if not self._lock.acquire(timeout=DATABASE_SECONDS + REDIS_SECONDS):
            return {"database": "slow", "redis": "slow"}
        try:
            if time.monotonic() >= self._until:
                self._parts = {"database": self._look(), "redis": _redis()}
                self._until = time.monotonic() + KEEP_SECONDS
            return self._parts
        finally:
            self._lock.release()

    def _look(self) -> str:
        """As `_database`, on its own connection with short time limits; compares migrations until all are applied."""
        wanted: dict[str, Any] = connection.get_connection_params()
        wanted |= {"connect_timeout": DATABASE_SECONDS, "tcp_user_timeout": DATABASE_SECONDS * 1000}
        wanted["options"] = f"-c statement_timeout={DATABASE_SECONDS}s -c lock_timeout={DATABASE_SECONDS}s"
        try:
            with psycopg.connect(**wanted) as own:
                own.execute("SELECT 1")
        except psycopg.Error:
            return "unreachable"
        if self._is_migrated:
            return "ok"
        try:
            said = _database()
        finally:
            connection.close()
        self._is_migrated = said == "ok"
        return said


_readiness = Readiness()


def application(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    """WSGI of the health port: /healthz and /readyz for any Host, without the application's threads and locks."""
    path, status, body = environ["PATH_INFO"], "200 OK", {"status": "alive"}
    if environ["REQUEST_METHOD"] not in {"GET", "HEAD"}:
        status, body = "405 Method Not Allowed", {"status": "method_not_allowed"}
    elif path == "/readyz" and draining.is_set():
        status, body = "503 Service Unavailable", DRAINING
    elif path == "/readyz":
        parts = _readiness.parts()
        is_ready = parts["database"] == "ok"
        status, body = (
            ("200 OK", {"status": "ready"}) if is_ready else ("503 Service Unavailable", {"status": "not_ready"})
        )
        body |= parts
    elif path != "/healthz":
        status, body = "404 Not Found", {"status": "not_found"}
    text = encode(body)
    start_response(
        status,
        [("Content-Type", "application/json"), ("Content-Length", str(len(text))), ("Cache-Control", "no-store")],
    )
    return [text]
