"""Whether this process is alive and whether it can serve. Both answer anyone and tell no detail."""

import logging

import redis
from django.conf import settings
from django.db import DatabaseError, connection
from django.db.migrations.executor import MigrationExecutor
from django.http import HttpRequest, JsonResponse
from django.views.decorators.http import require_safe

logger = logging.getLogger(__name__)
REDIS_SECONDS = 1.0


@require_safe
def alive(_: HttpRequest) -> JsonResponse:
    """200 as long as the process answers at all."""
    return JsonResponse({"status": "alive"})


@require_safe
def ready(_: HttpRequest) -> JsonResponse:
    """200 when the database answers and has every migration; Redis is told but not needed, only speed hangs on it."""
    parts = {"database": _database(), "redis": _redis()}
    is_ready = parts["database"] == "ok"
    return JsonResponse({"status": "ready" if is_ready else "not_ready", **parts}, status=200 if is_ready else 503)


def _database() -> str:
    try:
        executor = MigrationExecutor(connection)
        return "not_migrated" if executor.migration_plan(executor.loader.graph.leaf_nodes()) else "ok"
    except DatabaseError:
        logger.warning("the database does not answer", exc_info=True)
        return "unreachable"


def _redis() -> str:
    try:
        with redis.Redis.from_url(
            settings.REDIS_URL, socket_timeout=REDIS_SECONDS, socket_connect_timeout=REDIS_SECONDS
        ) as client:
            client.ping()
    except redis.RedisError:
        return "unreachable"
    return "ok"
