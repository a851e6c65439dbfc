"""Questions that must have no answer: each row that comes back is something wrong.

They are asked of whatever stands in the tables, also of rows that no constraint would let in: every value is read as text, and
a question that breaks over a row is itself a finding, while the others are asked on.
"""

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from django.db import DatabaseError, OperationalError, connection, transaction

Proof: TypeAlias = tuple[str, str]
"""A sentence, and the query whose rows fill it."""
MOST_FINDINGS = 1000
"""Of one proof: who has more has seen enough."""


def findings(proofs: Sequence[Proof], given: Mapping[str, Any] | None = None) -> list[str]:
    """What is wrong, in sentences, in the order of the proofs. Queries write their parameters as %(name)s."""
    found: list[str] = []
    for sentence, query in proofs:
        try:
            with transaction.atomic(), connection.cursor() as cursor:
                cursor.execute("SET LOCAL statement_timeout = 0")
                cursor.execute(_as_text(query), {**(given or {}), "most_findings": MOST_FINDINGS})
                found += [sentence.format(*row) for (row,) in cursor.fetchall()]
        except OperationalError:
            raise  # the database is gone or busy, which says nothing of its rows
        except DatabaseError as error:
            first = (str(error).splitlines() or [""])[0]
            found.append(f'could not check whether "{sentence}": a row makes the query fail ({first})')
    return found


def _as_text(query: str) -> str:
    """The query's rows as text, at most so many, planned as if all were wanted.

    Of a query under a LIMIT the planner expects rows soon and takes the plan that finds the first ones soonest, which compares
    each row with each. These queries find none, and so run to their end.
    """
    return (
        f"WITH found AS MATERIALIZED ({query})"  # noqa: S608
        " SELECT ARRAY(SELECT coalesce(value, 'nothing') FROM json_each_text(row_to_json(found)))"
        " FROM found LIMIT %(most_findings)s"
    )
