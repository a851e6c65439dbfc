"""Identifiers: UUIDv7, so that ids sort by their creation time."""

from datetime import datetime
from uuid import UUID

from .host import host


def new_id() -> UUID:
    """A new UUIDv7 (RFC 9562)."""
    return host().uuid7()


def id_at(at: datetime) -> UUID:
    """A new UUIDv7 that sorts as if created at that time, for rows about the past."""
    return host().uuid7(int(at.timestamp() * 1_000_000) * 1_000)
