"""Questions without an answer: how they are planned."""

import pytest
from django.db import connection

from foundation.proofs import _as_text

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
