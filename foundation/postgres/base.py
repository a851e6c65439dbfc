"""Django's PostgreSQL backend, which asks a kept connection whether it is alive only after it has rested.

A connection that answered a moment ago is not asked again: under load that question would be one statement in six. If
the server went away in that moment, the request is told so (503) and the connection is opened anew.
"""

from django.db.backends.postgresql import base

from foundation.clock import monotonic

REST_SECONDS = 1.0


class DatabaseWrapper(base.DatabaseWrapper):
    """Named by Django's convention."""

    _used_at = float("-inf")

    def close_if_health_check_failed(self) -> None:
        """Asks before the first statement of a request or task, unless the connection was in use within a second."""
        rested_seconds, self._used_at = monotonic() - self._used_at, monotonic()
        if rested_seconds < REST_SECONDS:
            # Answered for the whole request: asked in the middle of one, the question would begin a transaction.
            self.health_check_done = True
            return
        super().close_if_health_check_failed()
