"""What a simulated session prepares stays prepared, and names that never come again are not prepared."""

from types import SimpleNamespace

import pytest
from psycopg._preparing import Prepare
from psycopg.pq import ExecStatus

from devtools.simulation.core.statements import Statements


def query(text):
    return SimpleNamespace(query=text, types=())


def prepared(statements, text):
    wanted, name = statements.get(query(text))
    if wanted == Prepare.SHOULD:
        key = statements.maybe_add_to_cache(query(text), wanted, name)
        statements.validate(
            key, wanted, name, [SimpleNamespace(status=ExecStatus.TUPLES_OK, command_status=b"SELECT 1")]
        )
    return wanted


def test_a_statement_is_prepared_at_its_first_use_and_stays_so_after_a_rollback():
    statements = Statements()
    assert prepared(statements, b"SELECT 1") == Prepare.SHOULD
    rollback = SimpleNamespace(status=ExecStatus.COMMAND_OK, command_status=b"ROLLBACK")
    statements.validate(None, Prepare.NO, b"", [rollback])
    statements.clear()
    assert prepared(statements, b"SELECT 1") == Prepare.YES


@pytest.mark.parametrize("text", [b'SAVEPOINT "s1_x2"', b'RELEASE SAVEPOINT "s1_x2"', b'ROLLBACK TO SAVEPOINT "s1_x2"'])
def test_savepoints_are_not_prepared(text):
    statements = Statements()
    for _ in range(3):
        assert prepared(statements, text) == Prepare.NO
        statements.maybe_add_to_cache(query(text), Prepare.NO, b"")
    assert not statements._counts


def test_no_statement_is_forgotten_for_others():
    statements = Statements()
    for number in range(2000):
        prepared(statements, f"SELECT {number}".encode())
    assert prepared(statements, b"SELECT 0") == Prepare.YES
