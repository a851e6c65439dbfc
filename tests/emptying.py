"""Empties the database after a test that commits, at a fraction of what Django's TRUNCATE of every table costs.

A test fills a few of the tables, and a few rows of each are deleted sooner than new files are made for all tables and
their indexes. Django's own rows, of content types and permissions, are the same before and after: they remain, instead
of being written again for each test.
"""

from functools import cache
from pathlib import Path
from typing import Any

from django.db import connection, transaction
from psycopg import sql

from foundation.transactions import retried

KEPT = {"django_content_type", "auth_permission"}
MOST_BYTES = 2**20
"""A table that grew beyond this is truncated, with all others: nothing of it remains that the next test would read past."""
TABLES = (Path(__file__).parent.parent / "federation/migrations/0001_tables.sql").read_text()
SEED = TABLES[TABLES.index("INSERT INTO federation_priorityclass") :].partition(";")[0] + " ON CONFLICT DO NOTHING"
"""Rows that a new installation begins with."""
EMPTY = """
DO $$
DECLARE
    one regclass;
    is_large boolean := false;
BEGIN
    FOREACH one IN ARRAY {tables}::regclass[] LOOP
        CONTINUE WHEN pg_relation_size(one) = 0;
        is_large := is_large OR pg_relation_size(one) > {most_bytes};
        EXECUTE format('DELETE FROM %s', one);
    END LOOP;
    IF is_large THEN
        TRUNCATE {names};
    END IF;
END $$
"""
CLEAN = """
SET SESSION AUTHORIZATION DEFAULT; RESET ALL; UNLISTEN *; DISCARD TEMP; DISCARD SEQUENCES; SELECT pg_advisory_unlock_all()
"""
"""As `DISCARD ALL`, but statements stay prepared and the session keeps what it knows of the tables."""


def needs_new_session(*_: Any) -> bool:
    """Whether the next test needs a new session. Django gives one to each: to learn of all tables again costs as much as the
    rest of most tests. This one keeps no setting, lock or subscription of the test.
    """
    session = connection.connection
    if session is None:
        return False
    if connection.in_atomic_block or not connection.get_autocommit() or not connection.is_usable():
        return True
    session.execute(CLEAN, prepare=False)
    connection.ensure_timezone()
    return False


@retried  # a page that a closed window had asked for may still be read
def empty_tables(*_: Any) -> None:
    """Leaves no row that a test can have written. Waits for all transactions that still use a table, as TRUNCATE does."""
    names = sql.SQL(", ").join(sql.Identifier(name) for name in _filled_by_tests())
    tables = sql.Literal([f'"{name}"' for name in _filled_by_tests()])
    with transaction.atomic(), connection.cursor() as cursor:
        # Triggers on append-only tables refuse; a replica's session skips them.
        cursor.execute("SET LOCAL session_replication_role = replica")
        cursor.execute(sql.SQL("LOCK TABLE {} IN ACCESS EXCLUSIVE MODE").format(names))
        cursor.execute(sql.SQL(EMPTY).format(tables=tables, names=names, most_bytes=sql.Literal(MOST_BYTES)))
        cursor.execute(SEED)


@cache
def _filled_by_tests() -> tuple[str, ...]:
    tables = connection.introspection.django_table_names(only_existing=True, include_views=False)
    return tuple(sorted(set(tables) - KEPT))
