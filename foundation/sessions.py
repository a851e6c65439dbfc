"""Whether a connection to the database is one session from its beginning to its end.

Advisory locks, LISTEN and the time limits of a session need that. A pooler that gives each transaction another session,
such as PgBouncer in transaction mode, would run routines twice and lose announcements, without any error.
"""

import logging
from typing import Any

import psycopg
from django.core.exceptions import ImproperlyConfigured
from django.db import connection

log = logging.getLogger(__name__)
MARK = "switchyard.session"
"""A setting that every connection begins with (`config.database`), like its time limits."""
ROUNDS = 3
DROPS = "something between the gateway and PostgreSQL drops the settings that a connection begins with"
SHARES = "something between the gateway and PostgreSQL shares one session among several connections"
ADVICE = (
    "DATABASE_URL: {}, as PgBouncer does. Advisory locks, LISTEN and time limits need a session for each connection."
    " Connect to PostgreSQL directly (docs/reference/settings.md)."
)
REFUSED = "unsupported startup parameter"
"""PgBouncer's message for a setting that it does not pass on."""


def demand_sessions() -> None:
    """Stops the boot (ImproperlyConfigured) behind such a pooler. If the database does not respond, the
    boot continues.
    """
    try:
        fault = fault_of_sessions(connection.get_connection_params())
    except psycopg.Error as error:
        log.warning("the database does not answer (%s); whether sessions are kept is not known", type(error).__name__)
        return
    if fault:
        raise ImproperlyConfigured(fault)


def fault_of_sessions(parameters: dict[str, Any]) -> str:
    """What is wrong with connections made from these parameters, and what to do; empty if each is a separate session.

    While one connection is in a transaction, it asks another for its session: then a pooler must reveal that it shares.
    """
    plain = {name: value for name, value in parameters.items() if name not in {"cursor_factory", "context"}}
    plain["autocommit"] = True
    try:
        with psycopg.connect(**plain) as one, psycopg.connect(**plain) as other:
            if not _value(one, "SELECT current_setting(%s, true)", MARK):
                return ADVICE.format(DROPS)
            for _ in range(ROUNDS):
                before = _value(one, "SELECT pg_backend_pid()")
                with other.transaction():
                    others = _value(other, "SELECT pg_backend_pid()")
                    # Not asked again if they are the same: a pool of one session could not respond.
                    after = _value(one, "SELECT pg_backend_pid()") if others != before else before
                if is_shared(before, others, after):
                    return ADVICE.format(SHARES)
    except psycopg.OperationalError as error:
        if REFUSED in str(error):
            return ADVICE.format(DROPS)
        raise
    return ""


def is_shared(before: int, others: int, after: int) -> bool:
    """Whether a connection had the backend `before`, and `after` while another was in a transaction on `others`: pooled."""
    return before == others or before != after


def _value(session: psycopg.Connection[Any], statement: str, *arguments: str) -> Any:
    row = session.execute(statement, arguments).fetchone()
    return row[0] if row else None
