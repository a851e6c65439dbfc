"""Leases with fencing tokens, by the database's clock: a holder's own clock may be wrong, or the holder frozen."""

from collections.abc import Sequence

from django.db import connection


def acquire(name: str, holder: str, *, ttl_seconds: float) -> int | None:
    """The fencing token of a new tenure, or None while somebody (or this holder's former self) still holds the lease.

    Tokens only ever grow. Put the token in the WHERE of every write made under the lease.
    """
    return _one(
        "INSERT INTO foundation_lease AS lease (name, holder, token, expires_at)"
        " VALUES (%s, %s, nextval('foundation_lease_token'), clock_timestamp() + make_interval(secs => %s))"
        " ON CONFLICT (name) DO UPDATE SET holder = excluded.holder, expires_at = excluded.expires_at,"
        # Drawn again under the row's lock: the one drawn before waiting may be older than the present holder's.
        " token = nextval('foundation_lease_token')"
        " WHERE lease.expires_at <= clock_timestamp() RETURNING token",
        [name, holder, ttl_seconds],
    )


def renew(name: str, token: int, *, ttl_seconds: float) -> bool:
    """Whether the tenure goes on for another `ttl_seconds`. False = lost: stop writing at once."""
    return (
        _one(
            "UPDATE foundation_lease SET expires_at = clock_timestamp() + make_interval(secs => %s)"
            " WHERE name = %s AND token = %s AND expires_at > clock_timestamp() RETURNING token",
            [ttl_seconds, name, token],
        )
        is not None
    )


def release(name: str, token: int) -> bool:
    """Whether there was a tenure to end: the next holder need not wait for its expiry."""
    return (
        _one(
            "UPDATE foundation_lease SET expires_at = clock_timestamp()"
            " WHERE name = %s AND token = %s AND expires_at > clock_timestamp() RETURNING token",
            [name, token],
        )
        is not None
    )


def _one(statement: str, values: Sequence[str | int | float]) -> int | None:
    with connection.cursor() as cursor:
        cursor.execute(statement, values)
        row = cursor.fetchone()
        return int(row[0]) if row else None
