"""Threads that come after others go on with their sessions."""

from tests.live_fixtures import kept_sessions

__all__ = ["kept_sessions"]
