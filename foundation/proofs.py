"""Queries that must return no rows: each row is an error in the data.

They run over whatever the tables contain, including rows that violate constraints. So every value is read as text. A
query that fails on a row is itself a finding, and the others still run.
"""

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from django.db import DatabaseError, OperationalError, connection, transaction
from django.db.backends.utils import CursorWrapper

Proof: TypeAlias = tuple[str, str]
"""A sentence, and the query whose rows fill it."""
MOST_FINDINGS = 1000
"""Per proof: more findings add no information."""


def findings(proofs: Sequence[Proof], given: Mapping[str, Any] | None = None, *, together: bool = False) -> list[str]:
    """The findings, as sentences, in the order of the proofs. Queries write their parameters as %(name)s.

    `together`: in one transaction, for proofs that take milliseconds. Long ones do not keep their tables locked for each other.
    """
    if together:
        try:
            with transaction.atomic(), connection.cursor() as cursor:
                cursor.execute("SET LOCAL statement_timeout = 0")
                return [found for proof in proofs for found in _found(cursor, proof, given)]
        except OperationalError:
            raise
        except DatabaseError:
            pass  # one of them fails on a row: apart, the others still run
    return [found for proof in proofs for found in _apart(proof, given)]


def _apart(proof: Proof, given: Mapping[str, Any] | None) -> list[str]:
    try:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("SET LOCAL statement_timeout = 0")
            return _found(cursor, proof, given)
    except OperationalError:
        raise  # the database is gone or busy, which is no error in its rows
    except DatabaseError as error:
        first = (str(error).splitlines() or [""])[0]
        return [f'could not check whether "{proof[0]}": a row makes the query fail ({first})']


def _found(cursor: CursorWrapper, proof: Proof, given: Mapping[str, Any] | None) -> list[str]:
    sentence, query = proof
    cursor.execute(_as_text(query), {**(given or {}), "most_findings": MOST_FINDINGS})
    return [sentence.format(*row) for (row,) in cursor.fetchall()]


def _as_text(query: str) -> str:
    """The query's rows as text, up to a limit, planned as if all were wanted.

    For a query under a LIMIT, the planner expects rows soon and chooses the plan that finds the first ones soonest,
    which compares every pair of rows. These queries find none, and so run to their end.
    """
    return (
        f"WITH found AS MATERIALIZED ({query})"
        " SELECT ARRAY(SELECT coalesce(value, 'nothing') FROM json_each_text(row_to_json(found)))"
        " FROM found LIMIT %(most_findings)s"
    )
