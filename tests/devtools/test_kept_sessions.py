"""Tests that commit share one session of the database, and nothing else."""

import os
import threading

import psycopg
import pytest
from django.db import connection, transaction

from federation.models import PriorityClass
from tenancy.models import Tenant
from tests.builders import make_tenant
from tests.emptying import empty_tables, needs_new_session
from tests.kept_sessions import end_sessions, sessions_are_kept
from tests.kept_statements import forget_statements
from tests.kept_threads import KeptPools
from tests.near import SOCKETS

STATE = """
SELECT pg_backend_pid(), current_setting('statement_timeout'), current_setting('session_replication_role'), current_setting('TimeZone'),
       current_user, to_regclass('pg_temp.left_behind'), (SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()),
       (SELECT count(*) FROM pg_listening_channels())
"""


def state():
    with connection.cursor() as cursor:
        cursor.execute(STATE)
        return cursor.fetchone()


@pytest.mark.django_db(transaction=True)
def test_a_session_that_is_kept_has_nothing_of_the_test_before():
    before = state()
    with connection.cursor() as cursor:
        for statement in (
            "SET statement_timeout = 1234567", "SET TIME ZONE 'Asia/Tokyo'", "LISTEN anything", "CREATE TEMP TABLE left_behind (x int)",
            "SELECT pg_advisory_lock(7)", "SET session_replication_role = replica", "SET ROLE pg_monitor",
        ):  # fmt: skip
            cursor.execute(statement)
    changed = [was != now for was, now in zip(before, state(), strict=True)]
    assert changed == [False, True, True, True, True, True, True, True]
    assert not needs_new_session()
    assert state() == before


@pytest.mark.django_db(transaction=True)
def test_a_session_that_broke_or_is_in_a_transaction_is_not_kept():
    connection.set_autocommit(False)
    state()
    assert needs_new_session()
    connection.rollback()
    connection.set_autocommit(True)
    connection.ensure_connection()
    connection.connection.close()
    assert needs_new_session()
    connection.close()


@pytest.mark.django_db(transaction=True)
def test_threads_that_are_kept_have_ended_their_work_and_serve_the_next_owner():
    pools, may_end, seen = KeptPools(), threading.Event(), []

    def work():
        may_end.wait(10)
        seen.append(threading.get_ident())

    try:
        first = pools.open("some", 1)
        first.submit(work)
        threading.Timer(0.05, may_end.set).start()
        first.close()
        assert len(seen) == 1
        second = pools.open("some", 1)
        assert second is first
        assert pools.open("some", 1) is not first, "two owners at the same time share none"
        second.submit(work).result(10)
        assert seen[0] == seen[1]
        assert pools.kept("more", 1) is pools.kept("more", 1)
        assert pools.kept("more", 2) is not pools.kept("more", 1)
    finally:
        pools.end()


def prepared():
    """How often this session has used each of its prepared statements about numbers."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT generic_plans + custom_plans FROM pg_prepared_statements WHERE statement LIKE '%%numbers%%'"
        )
        return [count for (count,) in cursor.fetchall()]


def numbers():
    with connection.cursor() as cursor:
        cursor.execute("SELECT * FROM numbers ORDER BY x")
        return cursor.fetchall()


@pytest.mark.django_db(transaction=True)
def test_statements_stay_prepared_after_a_rollback_and_a_changed_table_is_seen():
    with connection.cursor() as cursor:
        cursor.execute("CREATE TABLE numbers (x int)")
    forget_statements()
    try:
        for _ in range(3):
            with transaction.atomic():
                with connection.cursor() as cursor:
                    cursor.execute("INSERT INTO numbers VALUES (1)")
                assert numbers() == [(1,)]
                transaction.set_rollback(True)
        assert prepared() == [2, 2]
        with transaction.atomic():
            with connection.cursor() as cursor:
                cursor.execute("ALTER TABLE numbers ADD COLUMN y int DEFAULT 7")
                cursor.execute("INSERT INTO numbers VALUES (1)")
            assert [numbers() for _ in range(3)] == [[(1, 7)]] * 3
            transaction.set_rollback(True)
        assert numbers() == []
        forget_statements()
        assert prepared() == []
    finally:
        with connection.cursor() as cursor:
            cursor.execute("DROP TABLE numbers")


@pytest.mark.django_db(transaction=True)
def test_sessions_of_this_process_use_the_socket_of_a_server_that_the_tests_started():
    asked, is_ours = "SELECT inet_server_addr() IS NULL", SOCKETS in os.environ
    for _ in range(2):
        with connection.cursor() as cursor:
            cursor.execute(asked)
            assert cursor.fetchone() == (is_ours,)
        assert not needs_new_session()
    with psycopg.connect(os.environ["DATABASE_URL"]) as session:
        assert session.execute(asked).fetchone() == (False,), "processes of the gateway do not"


@pytest.mark.django_db(transaction=True)
def test_what_a_test_wrote_is_gone_however_it_ended_and_what_an_installation_begins_with_is_there():
    make_tenant("acme/research")
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM federation_priorityclass WHERE name = 'low'")
    connection.set_autocommit(False)
    make_tenant("other")
    empty_tables()
    connection.set_autocommit(True)
    assert Tenant.objects.count() == 0
    assert sorted(PriorityClass.objects.values_list("name", flat=True)) == ["high", "low", "normal"]
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'"
        )
    make_tenant("acme")
    empty_tables()
    assert Tenant.objects.count() == 0


def in_a_thread(work):
    """What the work returns in a thread, which ends its sessions."""
    found = []

    def run():
        try:
            found.append(work())
        finally:
            end_sessions()

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(30)
    return found[0]


@pytest.mark.django_db(transaction=True)
def test_a_thread_goes_on_with_the_session_of_one_before_and_finds_nothing_of_it():
    def leave_something():
        before = state()
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_lock(7)")
            cursor.execute("SET statement_timeout = 1234567")
            cursor.execute("CREATE TEMP TABLE left_behind (x int)")
        return before

    with sessions_are_kept():
        assert in_a_thread(state) == in_a_thread(leave_something) == in_a_thread(state)
        first = in_a_thread(state)[0]
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_terminate_backend(%s, 10000)", [first])
        assert in_a_thread(state)[0] != first, "one that broke is not lent"
    assert in_a_thread(state)[0] != in_a_thread(state)[0]


@pytest.mark.django_db(transaction=True)
def test_a_session_in_a_transaction_or_with_other_parameters_is_not_lent():
    def begin():
        connection.set_autocommit(False)
        return state()[0]

    def with_other_parameters():
        connection.settings_dict = {
            **connection.settings_dict,
            "OPTIONS": {**connection.settings_dict["OPTIONS"], "application_name": "other"},
        }
        return state()[0]

    with sessions_are_kept():
        first = in_a_thread(begin)
        second = in_a_thread(state)[0]
        assert len({first, second, in_a_thread(with_other_parameters)}) == 3
        assert in_a_thread(state)[0] == second
