"""Everything that the gateway's database writes has the simulated time."""

import pytest
from django.db import connection

from devtools.simulation.core.database import OWN_PATHS

PATHS = """
SELECT p.proname, setting FROM pg_proc AS p CROSS JOIN unnest(p.proconfig) AS setting
 WHERE p.pronamespace = current_schema()::regnamespace AND starts_with(setting, 'search_path=') ORDER BY 1
"""


@pytest.mark.django_db
def test_functions_with_their_own_search_path_are_given_the_simulated_clock():
    """`foundation/rights.py` gives some triggers their owner's rights, and a search path that begins with PostgreSQL's functions."""
    with connection.cursor() as cursor:
        cursor.execute(PATHS)
        before = dict(cursor.fetchall())
        cursor.execute(OWN_PATHS)
        for (statement,) in cursor.fetchall():
            cursor.execute(statement)
        cursor.execute(PATHS)
        after = dict(cursor.fetchall())
    assert "clusters_record_history" in before, "the history of the fleet is written by such a trigger"
    assert after == dict.fromkeys(before, "search_path=public, simulation, pg_catalog, pg_temp")
