import os
from types import SimpleNamespace

import pytest
from django.db import connection, connections

from tests.near import SOCKETS, stay_near, stay_on_a_core

CORES = sorted(os.sched_getaffinity(0))


@pytest.fixture
def cores():
    """Those of this process, which are as before at the end."""
    yield CORES
    os.sched_setaffinity(0, CORES)


@pytest.mark.django_db(transaction=True)
def test_where_the_tests_stay_on_a_core_their_sessions_do_too(cores):
    assert os.environ[SOCKETS]
    connection.close()
    with connection.cursor():
        assert os.sched_getaffinity(connection.connection.info.backend_pid) == set(cores)
    connection.close()
    os.sched_setaffinity(0, {cores[-1]})
    with connection.cursor():
        assert os.sched_getaffinity(connection.connection.info.backend_pid) == {cores[-1]}
    connections.close_all()


def test_workers_stay_each_on_a_core_of_this_process(cores):
    for number in range(len(cores) + 1):
        os.sched_setaffinity(0, cores)
        stay_on_a_core(f"gw{number}")
        assert os.sched_getaffinity(0) == {cores[number % len(cores)]}


def test_no_process_is_moved_for_a_session_of_another_server(cores, monkeypatch):
    monkeypatch.setattr(os, "sched_setaffinity", lambda *given: pytest.fail(f"{given}"))
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0})
    stay_near(SimpleNamespace(info=SimpleNamespace(host="database.example", backend_pid=os.getpid())))
    monkeypatch.undo()
