"""Leases with fencing tokens, on the database's clock: a holder's own clock may be wrong, or the holder frozen."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from django.db import connection, transaction


class LeaseLost(Exception):
    """The caller does not have the lease any more: it must write nothing more."""


@dataclass(frozen=True, slots=True)
class Tenure:
    """The time in which one holder has a lease."""

    name: str
    token: int

    @contextmanager
    def fence(self) -> Iterator[None]:
        """A transaction of this tenure: LeaseLost if it has ended; no other holder can take the lease before the
        commit.
        """
        with transaction.atomic():
            held = _one(
                "SELECT token FROM foundation_lease"
                " WHERE name = %s AND token = %s AND expires_at > clock_timestamp() FOR SHARE",
                [self.name, self.token],
            )
            if held is None:
                raise LeaseLost(self.name)
            yield


def acquire(name: str, holder: str, *, ttl_seconds: float) -> int | None:
    """The fencing token of a new tenure, or None while a holder (even an earlier process of this one) has the lease.

    Tokens only ever increase. Put the token in the WHERE of every write made under the lease.
    """
    return _one(
        "INSERT INTO foundation_lease AS lease (name, holder, token, expires_at)"
        " VALUES (%s, %s, nextval('foundation_lease_token'), clock_timestamp() + make_interval(secs => %s))"
        " ON CONFLICT (name) DO UPDATE SET holder = excluded.holder, expires_at = excluded.expires_at,"
        # Drawn again under the row's lock: a token drawn before waiting may be older than the current holder's.
        " token = nextval('foundation_lease_token')"
        " WHERE lease.expires_at <= clock_timestamp() RETURNING token",
        [name, holder, ttl_seconds],
    )


def renew(name: str, token: int, *, ttl_seconds: float) -> bool:
    """Whether the tenure continues for another `ttl_seconds`. False = lost: stop writing immediately."""
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


def renew_all(tokens: Mapping[str, int], *, ttl_seconds: float) -> dict[str, int]:
    """The tenures (token by name) that continue for another `ttl_seconds`. The others are lost.

    An expired tenure continues if no holder has taken the lease since: every holder draws a new token. While it was
    expired, no write under it was possible.
    """
    rows = _all(
        "UPDATE foundation_lease AS lease SET expires_at = clock_timestamp() + make_interval(secs => %s)"
        " FROM (SELECT lease.name FROM foundation_lease AS lease"
        "       JOIN unnest(%s::text[], %s::bigint[]) AS held(name, token) USING (name, token)"
        "       ORDER BY lease.name FOR NO KEY UPDATE OF lease) AS ours"
        " WHERE lease.name = ours.name RETURNING lease.name, lease.token",
        [ttl_seconds, list(tokens), list(tokens.values())],
    )
    return dict(rows)


def acquire_free(names: Sequence[str], holder: str, *, ttl_seconds: float, most: int) -> dict[str, int]:
    """Tokens of new tenures by name, up to a limit, for leases without a holder."""
    rows = _all(
        "INSERT INTO foundation_lease AS lease (name, holder, token, expires_at)"
        " SELECT free.name, %s, nextval('foundation_lease_token'), clock_timestamp() + make_interval(secs => %s)"
        "   FROM (SELECT wanted.name FROM unnest(%s::text[]) AS wanted(name)"
        "         LEFT JOIN foundation_lease AS known ON known.name = wanted.name"
        "         WHERE known.name IS NULL OR known.expires_at <= clock_timestamp() LIMIT %s) AS free ORDER BY free.name"
        " ON CONFLICT (name) DO UPDATE SET holder = excluded.holder, expires_at = excluded.expires_at,"
        " token = nextval('foundation_lease_token')"
        " WHERE lease.expires_at <= clock_timestamp() RETURNING name, token",
        [holder, ttl_seconds, list(names), most],
    )
    return dict(rows)


def release_all(tokens: Mapping[str, int]) -> None:
    """Ends the tenures that still exist."""
    _all(
        "UPDATE foundation_lease AS lease SET expires_at = clock_timestamp()"
        " FROM unnest(%s::text[], %s::bigint[]) AS held(name, token)"
        " WHERE lease.name = held.name AND lease.token = held.token AND lease.expires_at > clock_timestamp()"
        " RETURNING lease.name, lease.token",
        [list(tokens), list(tokens.values())],
    )


def count_held(prefix: str) -> int:
    """The number of held leases whose names have this prefix. Deletes those without a holder for an hour."""
    with connection.cursor() as cursor:
        cursor.execute(
            "DELETE FROM foundation_lease WHERE starts_with(name, %s) AND expires_at < clock_timestamp() - interval '1 hour'",
            [prefix],
        )
        cursor.execute(
            "SELECT count(*) FROM foundation_lease WHERE starts_with(name, %s) AND expires_at > clock_timestamp()",
            [prefix],
        )
        return int(cursor.fetchone()[0])


def _all(statement: str, values: Sequence[Any]) -> list[tuple[str, int]]:
    with connection.cursor() as cursor:
        cursor.execute(statement, values)
        return list(cursor.fetchall())


def _one(statement: str, values: Sequence[str | int | float]) -> int | None:
    with connection.cursor() as cursor:
        cursor.execute(statement, values)
        row = cursor.fetchone()
        return int(row[0]) if row else None
