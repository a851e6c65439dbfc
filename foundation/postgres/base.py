"""Django's PostgreSQL backend, which checks a kept connection only after it has been idle.

A connection that was used a moment ago is not checked: under load, the check would be one statement in six. If the
server ended in that moment, the request gets a 503 and the connection is reopened.
"""

from typing import Any

from django.db.backends.postgresql import base

from foundation.clock import monotonic

from . import spares

REST_SECONDS = 1.0


class DatabaseWrapper(base.DatabaseWrapper):
    """Named by Django's convention."""

    _used_at = float("-inf")

    def close_if_health_check_failed(self) -> None:
        """Checks before the first statement of a request or task, unless the connection was in use within a second."""
        rested_seconds, self._used_at = monotonic() - self._used_at, monotonic()
        if rested_seconds < REST_SECONDS:
            # Checked once for the whole request: a check in the middle of one would begin a transaction.
            self.health_check_done = True
            return
        super().close_if_health_check_failed()

    def put_aside(self) -> None:
        """See `foundation.threads.put_session_aside`."""
        if self.connection is None or self.in_atomic_block or not spares.put_aside(self.connection):
            self.close()
        self.connection = None

    def get_new_connection(self, conn_params: dict[str, Any]) -> Any:
        """A session that was put aside, or a new one."""
        return spares.take() or super().get_new_connection(conn_params)
