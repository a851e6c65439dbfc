"""Session advisory locks by name. The numbers are permanent: two releases that run side by side must use the same.

PostgreSQL keeps two-number locks apart from one-number locks, so these never conflict with a room's transaction locks.
The first number is the kind of lock (a registry: never renumber, never reuse), the second is the name's CRC-32. A
session lock ends with its connection, so no transaction-mode pooler may be in front of the database
(`foundation.sessions`).
"""

import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum

from django.db import Error, connection


class Kind(IntEnum):
    """The kind of lock."""

    ROUTINE = 1
    VISITS = 2
    """A kind of visit to one cluster. It only saves work: claims decide who may write."""


def key_of(name: str) -> int:
    """The second number of a name's lock, as PostgreSQL's signed 32 bits."""
    return int.from_bytes(zlib.crc32(name.encode()).to_bytes(4, "big"), "big", signed=True)


@contextmanager
def held(kind: Kind, name: str) -> Iterator[bool]:
    """Whether this session got the lock, which it releases at the end. Never waits.

    If the connection breaks meanwhile, the lock ends, and so does the transaction that runs under it.
    """
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_lock(%s, %s)", [kind, key_of(name)])
        is_ours = bool(cursor.fetchone()[0])
    try:
        yield is_ours
    finally:
        if is_ours:
            _unlock(kind, name)


def _unlock(kind: Kind, name: str) -> None:
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_unlock(%s, %s)", [kind, key_of(name)])
    except Error:
        # A session that cannot unlock must not continue with the lock.
        connection.close()
