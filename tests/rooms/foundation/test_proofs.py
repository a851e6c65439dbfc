"""Questions without an answer: how they are planned."""

import pytest
from django.db import connection

from foundation.proofs import _as_text, findings

pytestmark = pytest.mark.django_db
SAME_VALUE = "SELECT a.id FROM lines AS a JOIN lines AS b ON b.value = a.value WHERE a.id < b.id ORDER BY a.id"


def test_a_question_is_planned_to_run_to_its_end():
    with connection.cursor() as cursor:
        cursor.execute("CREATE TEMP TABLE lines (id bigint PRIMARY KEY, value bigint)")
        cursor.execute("INSERT INTO lines SELECT n, n % 9973 FROM generate_series(1, 20000) AS n")
        cursor.execute("CREATE INDEX ON lines (value)")
        cursor.execute("ANALYZE lines")

        def plan(query):
            cursor.execute(f"EXPLAIN (COSTS OFF) {query}", {"most_findings": 1000})
            return "\n".join(row[0].strip() for row in cursor.fetchall())

        assert "Nested Loop" in plan(f"{SAME_VALUE} LIMIT 1000")
        assert "Nested Loop" not in plan(SAME_VALUE)
        assert "Nested Loop" not in plan(_as_text(SAME_VALUE))


@pytest.mark.parametrize("together", [False, True])
def test_a_query_that_fails_on_a_row_is_a_finding_and_the_others_run(together):
    proofs = [
        ("{0} is odd", "SELECT 1 AS n"),
        ("{0} is a number", "SELECT text::int FROM (VALUES ('x')) AS row(text)"),
        ("{0} of {1}", "SELECT 2 AS n, %(whose)s::text AS whose"),
    ]
    first, second, third = findings(proofs, {"whose": "acme"}, together=together)
    assert (first, third) == ("1 is odd", "2 of acme")
    assert second.startswith('could not check whether "{0} is a number": a row makes the query fail')


def test_quick_proofs_together_are_one_transaction(django_assert_num_queries):
    proofs = [("{0}", "SELECT 1 AS n WHERE false")] * 5
    with django_assert_num_queries(5 + 3):
        assert findings(proofs, together=True) == []
