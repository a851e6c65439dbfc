"""Sessions serve one actor after the other, and a run finds nothing that an earlier one has left in them."""

from types import SimpleNamespace

from psycopg.pq import TransactionStatus

from devtools.simulation.core.sessions import FORGET, Sessions


class Raw:
    def __init__(self, status=TransactionStatus.IDLE):
        self.closed = False
        self.said = []
        self.pgconn = SimpleNamespace(transaction_status=status)

    def close(self):
        self.closed = True

    def execute(self, statement, **_):
        self.said.append(statement)


def test_the_same_sessions_serve_first_in_each_run():
    sessions, first, second = Sessions(), Raw(), Raw()
    for raw in (first, second):
        assert sessions.take() is None
        sessions.add(raw)
    sessions.give_back(first)
    sessions.give_back(second)
    assert sessions.take() is first, "it has planned the most statements"
    sessions.begin_run()
    assert [sessions.take(), sessions.take(), sessions.take()] == [first, second, None]


def test_a_session_forgets_plans_and_locks_once_in_a_run():
    """A run that was ended in the middle of a statement does not know which locks it had."""
    sessions, raw = Sessions(), Raw()
    sessions.add(raw)
    for _ in range(2):
        sessions.begin_run()
        sessions.forget_plans(raw)
        sessions.forget_plans(raw)
    assert raw.said == [FORGET, FORGET]
    assert "pg_advisory_unlock_all" in FORGET


def test_a_session_that_a_run_left_in_a_transaction_ends():
    sessions, left, idle = Sessions(), Raw(TransactionStatus.INTRANS), Raw()
    sessions.add(left)
    sessions.add(idle)
    sessions.begin_run()
    assert left.closed
    assert (sessions.take(), sessions.take()) == (idle, None)
