import threading

import pytest
from django.db import connection

from foundation import advisory
from foundation.models import Routine
from foundation.routines import run_exclusively

pytestmark = pytest.mark.django_db(transaction=True)


def in_thread(call):
    """The call's result, from a thread with a database session of its own."""
    found = []

    def run():
        try:
            found.append(call())
        finally:
            connection.close()

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(10)
    return found[0]


def ring(name):
    Routine.objects.get_or_create(name=name)
    with connection.cursor() as cursor:
        cursor.execute("UPDATE foundation_routine SET rung_at = clock_timestamp() WHERE name = %s", [name])


def test_a_run_leaves_its_record():
    assert run_exclusively("cycle", lambda: None)
    routine = Routine.objects.get(name="cycle")
    assert routine.started_at <= routine.finished_at
    assert routine.error == ""
    assert routine.seconds >= 0


def test_a_second_run_is_skipped_while_the_first_is_at_work():
    ran = []
    assert run_exclusively(
        "cycle", lambda: ran.append(in_thread(lambda: run_exclusively("cycle", lambda: ran.append("twice"))))
    )
    assert ran == [False]


def test_different_routines_run_side_by_side():
    ran = []
    run_exclusively("cycle", lambda: ran.append(in_thread(lambda: run_exclusively("dispatch", lambda: None))))
    assert ran == [True]


def test_a_ring_during_the_run_makes_it_run_once_more():
    runs = []

    def work():
        runs.append(len(runs))
        if len(runs) == 1:
            in_thread(lambda: ring("cycle"))

    assert run_exclusively("cycle", work)
    assert runs == [0, 1]


def test_a_ring_before_the_run_is_answered_by_it():
    ring("cycle")
    runs = []
    run_exclusively("cycle", lambda: runs.append(1))
    routine = Routine.objects.get()
    assert runs == [1]
    assert routine.started_at > routine.rung_at


def test_a_failed_run_answers_nothing_and_keeps_only_the_first_line_of_its_error():
    def work():
        raise ValueError("first line\nkey (password)=(hunter2)")

    with pytest.raises(ValueError, match="first line"):
        run_exclusively("cycle", work)
    routine = Routine.objects.get(name="cycle")
    assert routine.error == "ValueError: first line"
    assert routine.started_at is None
    assert routine.finished_at is not None
    assert run_exclusively("cycle", lambda: None)
    assert Routine.objects.get(name="cycle").error == ""


def test_a_broken_connection_gives_the_lock_back_and_stops_the_work():
    def work():
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_backend_pid()")
            pid = cursor.fetchone()[0]
        in_thread(lambda: kill(pid))
        Routine.objects.count()

    def kill(pid):
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_terminate_backend(%s)", [pid])

    with pytest.raises(Exception, match=r"terminat|closed"):
        run_exclusively("cycle", work)
    connection.close()
    assert run_exclusively("cycle", lambda: None)


def test_lock_numbers_never_change():
    assert advisory.Kind.ROUTINE == 1
    assert advisory.key_of("cycle") == -1_333_341_805
