"""What the database itself refuses of those who would open dispatch on a changed history."""

import pytest
from django.db import DatabaseError, IntegrityError, connection, transaction

from federation.models import Standstill
from federation.operations.histories import watch_history
from federation.queries.standstill import circumstances
from tests.processes_role import as_processes
from tests.refusals import constraint_of
from tests.rooms.federation.test_histories import restored

pytestmark = pytest.mark.django_db(transaction=True)
ATTACKS = {
    "history forgotten": ("DELETE FROM federation_databasehistory", ""),
    "histories emptied": ("TRUNCATE federation_databasehistory", ""),
    "another row": (
        "INSERT INTO federation_databasehistory (id, accepted) VALUES (2, federation_database_history())",
        "one_history_is_accepted",
    ),
    "invented history": (
        "UPDATE federation_databasehistory SET accepted = 'mine'",
        "only_the_present_history_is_accepted",
    ),
    "no history": ("UPDATE federation_databasehistory SET accepted = NULL", "only_the_present_history_is_accepted"),
    "accepted without a standstill": (
        "UPDATE federation_databasehistory SET accepted = federation_database_history()",
        "another_history_is_accepted_in_a_standstill",
    ),
    "judge replaced": (
        "CREATE OR REPLACE FUNCTION federation_database_history() RETURNS text LANGUAGE sql AS 'SELECT 1'",
        "",
    ),
    "no more operator": (
        "INSERT INTO federation_standstill (reason, ended_by) VALUES ('x', ''); UPDATE federation_standstill SET needs_operator = false",
        "a_standstill_needs_its_operator_to_the_end",
    ),
    "ended before anything was compared": (
        (
            "INSERT INTO federation_standstill (reason, ended_by, needs_operator) VALUES ('x', '', false);"
            " UPDATE federation_standstill SET ended_at = now(), ended_by = 'me'"
        ),
        "a_standstill_ends_itself_when_nothing_was_found",
    ),
    "ended with a comparison of another history": (
        (
            "INSERT INTO federation_standstill (reason, ended_by, needs_operator) VALUES ('x', '', false);"
            " INSERT INTO federation_comparedcluster (standstill_id, cluster_id, strangers, history)"
            " SELECT s.id, c.id, 0, 'mine' FROM federation_standstill s, clusters_cluster c;"
            " UPDATE federation_standstill SET ended_at = now(), ended_by = 'me'"
        ),
        "a_standstill_ends_itself_when_nothing_was_found",
    ),
    "ended with something found": (
        (
            "INSERT INTO federation_standstill (reason, ended_by, needs_operator) VALUES ('x', '', false);"
            " INSERT INTO federation_comparedcluster (standstill_id, cluster_id, strangers, adopted, history)"
            " SELECT s.id, c.id, 0, 1, federation_database_history() FROM federation_standstill s, clusters_cluster c;"
            " UPDATE federation_standstill SET ended_at = now(), ended_by = 'me'"
        ),
        "a_standstill_ends_itself_when_nothing_was_found",
    ),
}


def attack(statements):
    with transaction.atomic(), connection.cursor() as cursor:
        for statement in statements.split(";"):
            cursor.execute(statement)


@pytest.mark.django_db(transaction=False)
def test_the_database_refuses_the_processes_role(processes_role, cluster):
    restored()
    with as_processes():
        assert circumstances().is_history_known, "the processes' role may ask for it"
        for name, (statements, constraint) in ATTACKS.items():
            with pytest.raises(DatabaseError) as refused:
                attack(statements)
            assert constraint_of(refused.value) == constraint, name


def test_a_standstill_of_the_gateway_cannot_be_ended_while_a_cluster_is_not_compared(cluster):
    restored()
    watch_history()
    with pytest.raises(IntegrityError), transaction.atomic():
        Standstill.objects.update(ended_at="2026-01-01T00:00Z", ended_by="x")
