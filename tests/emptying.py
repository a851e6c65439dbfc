"""Empties the database after a test that commits, at a fraction of what Django's TRUNCATE of every table costs.

A test fills a few of the tables, and a few rows of each are deleted sooner than new files are made for all tables and
their indexes. Django's own rows, of content types and permissions, are the same before and after: they remain, instead
of being written again for each test.
"""

import re
from functools import cache
from pathlib import Path
from typing import Any

import psycopg
from django.db import connection
from psycopg import sql

from tests.near import near

KEPT = {"django_content_type", "auth_permission"}
NOT_OURS = {"context", "cursor_factory", "prepare_threshold"}
"""Parameters of Django's sessions that this one has otherwise."""
MOST_BYTES = 2**20
"""A table that grew beyond this is truncated, with all others: nothing of it remains that the next test would read past."""
FIRST_ROWS = re.compile(r"^INSERT INTO \w+ \([^;]*;", re.MULTILINE)
SEED = [
    f"{found.group().rstrip(';')} ON CONFLICT DO NOTHING"
    for path in sorted(Path(__file__).parent.parent.glob("*/migrations/0001_tables.sql"))
    for found in FIRST_ROWS.finditer(path.read_text())
]
"""Rows that a new installation begins with."""
MOST_TRIES = 4
IS_LARGE = "SELECT max(pg_relation_size(name)) > %s FROM unnest(%s::regclass[]) name"
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


def empty_tables(*_: Any) -> None:
    """Leaves no row that a test can have written. Waits for all transactions that still use a table, as TRUNCATE does."""
    if connection.connection is not None and not connection.connection.closed:
        connection.connection.rollback()  # what a test left open would be waited for without end
    for _number in range(MOST_TRIES):
        session = _session()
        try:
            _empty(session)
        except psycopg.errors.DeadlockDetected:
            continue  # a page that a closed window had asked for may still be read
        except psycopg.OperationalError:
            if not session.closed:  # else the test ended all sessions
                raise
        else:
            return
    _empty(_session())


def _empty(session: psycopg.Connection[Any]) -> None:
    with session.transaction():
        session.execute(_lock())
        [is_large] = session.execute(IS_LARGE, [MOST_BYTES, _names()]).fetchone()
        session.execute(_truncate() if is_large else _delete())
        for statement in SEED:
            session.execute(statement)


def close_emptying_session() -> None:
    """Before the tests' database is dropped."""
    while _sessions:
        _sessions.pop().close()


_sessions: list[psycopg.Connection[Any]] = []


def _session() -> psycopg.Connection[Any]:
    """One for this alone: triggers on append-only tables refuse, a replica's session skips them, and one that becomes a replica's
    or ceases to be one plans all its statements again.
    """
    if not _sessions or _sessions[0].closed:
        _sessions.clear()
        given = {name: value for name, value in connection.get_connection_params().items() if name not in NOT_OURS}
        session = psycopg.connect(**near(given), autocommit=True, prepare_threshold=0)
        session.execute("SET session_replication_role = replica", prepare=False)
        _sessions.append(session)
    return _sessions[0]


@cache
def _names() -> list[str]:
    tables = connection.introspection.django_table_names(only_existing=True, include_views=False)
    return sorted(set(tables) - KEPT)


@cache
def _lock() -> sql.Composed:
    return sql.SQL("LOCK TABLE {} IN ACCESS EXCLUSIVE MODE").format(_identifiers())


@cache
def _truncate() -> sql.Composed:
    return sql.SQL("TRUNCATE {}").format(_identifiers())


@cache
def _delete() -> sql.Composed:
    """One statement, which is planned once."""
    each = [
        sql.SQL("{} AS (DELETE FROM {})").format(sql.Identifier(f"d{number}"), sql.Identifier(name))
        for number, name in enumerate(_names())
    ]
    return sql.SQL("WITH {} SELECT").format(sql.SQL(", ").join(each))


def _identifiers() -> sql.Composed:
    return sql.SQL(", ").join(sql.Identifier(name) for name in _names())
