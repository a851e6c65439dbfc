"""Statements that stay prepared from one test to the next, as they do in a process that serves for hours.

psycopg prepares a statement at its sixth use, and forgets all that a session has prepared at each ROLLBACK, with which most tests
end: the server parsed and planned nearly every statement of a test for that test alone.
"""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import pytest
from django.db import connection
from django.db.backends.postgresql.base import DatabaseWrapper
from psycopg import _queries
from psycopg._preparing import Prepare, PrepareManager
from psycopg.pq.abc import PGresult

from tests.near import near, stay_near

USES_BEFORE = 1
"""A text that comes only once, such as that of a savepoint, is never prepared."""
MOST = 1000
"""Each takes some tens of KB of the server's memory."""
PARSED, LONGEST = 4096, 2**15
"""psycopg parses a text again unless it is short and one of the last 128: all tests have some thousands."""
CHANGES = re.compile(rb"(?:CREATE|DROP|ALTER|DISCARD ALL|DEALLOCATE ALL)\b")
"""What the server answers to commands after which a prepared statement may fail."""
_new = DatabaseWrapper.get_new_connection


class KeptStatements(PrepareManager):
    """What a session has prepared. It is forgotten at a ROLLBACK only if a table was changed before."""

    prepare_threshold = USES_BEFORE
    prepared_max = MOST

    def __init__(self) -> None:
        super().__init__()
        self._is_changed = False

    def clear(self) -> bool:
        """After a ROLLBACK."""
        return self._is_changed and self.forget()

    def forget(self) -> bool:
        """What `clear` is elsewhere."""
        self._is_changed = False
        return super().clear()

    def _should_discard(self, prep: Prepare, results: Sequence[PGresult], *_: Any) -> bool:
        answers = [result.command_status or b"" for result in results]
        if any(CHANGES.match(answer) for answer in answers):
            self.forget()
            self._is_changed = True
            return True
        return b"ROLLBACK" in answers and self.clear()


@contextmanager
def statements_are_kept() -> Iterator[None]:
    """Meanwhile new sessions use the server's socket (`tests/near.py`), and keep what they have prepared, if they prepare at all."""

    def opened(self: DatabaseWrapper, parameters: dict[str, Any]) -> Any:
        session = _new(self, near(parameters))
        stay_near(session)
        if session.prepare_threshold is not None:
            session._prepared = KeptStatements()
        return session

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DatabaseWrapper, "get_new_connection", opened)
        patch.setattr(_queries, "_query2pg", lru_cache(PARSED)(_queries._query2pg_nocache))
        patch.setattr(_queries, "MAX_CACHED_STATEMENT_LENGTH", LONGEST)
        yield


def forget_statements() -> None:
    """The session of this thread has prepared nothing yet, and until the end of the test it plans as those of the gateway do."""
    connection.ensure_connection()
    connection.connection._prepared.forget()
    with connection.cursor() as cursor:
        cursor.execute("SET plan_cache_mode = auto")
