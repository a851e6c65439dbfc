"""Which statements a simulated process's session prepares: all that may come again, for as long as the session lives."""

from psycopg._preparing import Key, Prepare, PrepareManager
from psycopg._queries import PostgresQuery

ONCE = (b"SAVEPOINT ", b"RELEASE ", b"ROLLBACK ")
"""Each has another name: to prepare them would cost a round trip and keep them for good."""


class Statements(PrepareManager):
    """Psycopg forgets all of them at each ROLLBACK, in case that took a table back: no table changes in a run."""

    prepare_threshold = 0

    def __init__(self) -> None:
        super().__init__()
        self.prepared_max = 2**31

    def get(self, query: PostgresQuery, prepare: bool | None = None) -> tuple[Prepare, bytes]:  # noqa: FBT001 - as psycopg calls it
        """Whether the statement is prepared, or is to be, and its name."""
        return super().get(query, prepare=False if query.query.startswith(ONCE) else prepare)

    def maybe_add_to_cache(self, query: PostgresQuery, prep: Prepare, name: bytes) -> Key | None:
        """Keeps what is prepared. How often others came need not be counted."""
        return None if prep is Prepare.NO else super().maybe_add_to_cache(query, prep, name)

    def clear(self) -> bool:
        """At a ROLLBACK: nothing is forgotten."""
        return False
