"""Connections that are no sessions of their own stop the boot. PgBouncer itself is not here: its effects are."""

import os
from urllib.parse import quote

import pytest
from django.db import connection

from devtools.serve import NEEDS, ROLES
from foundation.sessions import DROPS, demand_sessions, fault_of_sessions, is_shared
from tests.devtools.test_least_secrets import GIVEN, boot

pytestmark = pytest.mark.django_db(transaction=True)


def test_connections_to_postgresql_itself_are_sessions():
    assert fault_of_sessions(connection.get_connection_params()) == ""
    demand_sessions()


def test_settings_that_do_not_arrive_are_noticed():
    parameters = connection.get_connection_params()
    parameters.pop("options")
    assert DROPS in fault_of_sessions(parameters)


@pytest.mark.parametrize(
    ("pids", "shared"),
    [((7, 8, 7), False), ((7, 7, 7), True), ((7, 8, 9), True), ((7, 8, 8), True)],
)
def test_one_backend_for_two_connections_or_two_for_one_is_a_pooler(pids, shared):
    assert is_shared(*pids) is shared


@pytest.mark.parametrize("process", ROLES)
def test_a_process_behind_one_does_not_start_and_says_why(process):
    secrets = {name: GIVEN[name] for name in NEEDS[process] if name in GIVEN}
    emptied = f"{os.environ['DATABASE_URL']}?options={quote('-c switchyard.session=')}"
    said = "\n".join(boot(process, {**secrets, "DATABASE_URL": emptied}))
    assert DROPS in said
    assert "Connect to PostgreSQL directly" in said
    assert "\nup" not in said


def test_a_database_that_does_not_answer_stops_no_boot(monkeypatch, caplog):
    parameters = connection.get_connection_params() | {"host": "127.0.0.1", "port": 1, "connect_timeout": 1}
    monkeypatch.setattr(connection, "get_connection_params", lambda: parameters)
    demand_sessions()
    assert "whether sessions are kept is not known" in caplog.text
