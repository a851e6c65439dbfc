"""Several statements in one round trip to the database."""

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import connection


@contextmanager
def one_round_trip() -> Iterator[None]:
    """Sends the block's statements without waiting for each other's results, and reads all results at its end.

    For writes whose results the caller ignores. A statement that fails raises at the end of the block, and later ones
    are not executed; so it belongs inside a transaction.
    """
    if not connection.in_atomic_block:
        raise RuntimeError("one_round_trip() belongs inside a transaction")
    with connection.wrap_database_errors, connection.connection.pipeline():
        yield
