"""Database sessions that are put aside: the next thread goes on with one, and nobody gets one that is spoilt."""

import threading

import pytest
from django.db import connection

from foundation.postgres import spares
from foundation.threads import close_kept_threads, put_session_aside

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def none_left():
    close_kept_threads()
    own_pid()
    yield
    close_kept_threads()


def own_pid():
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        return cursor.fetchone()[0]


def in_a_thread(work):
    found = []

    def live():
        try:
            found.append(work())
        finally:
            connection.close()

    thread = threading.Thread(target=live)
    thread.start()
    thread.join()
    return found[0]


def leave_one():
    pid = own_pid()
    put_session_aside()
    return pid


def test_the_next_thread_goes_on_with_a_session_that_was_put_aside():
    assert in_a_thread(leave_one) == in_a_thread(own_pid)


def test_a_thread_that_put_its_session_aside_gets_one_when_it_needs_it():
    def work():
        first = leave_one()
        return first, own_pid()

    first, then = in_a_thread(work)
    assert first == then


def test_two_threads_never_have_the_same_session():
    def work():
        put_session_aside()
        meanwhile = in_a_thread(lambda: (own_pid(), put_session_aside())[0])
        mine = own_pid()
        return mine, meanwhile, in_a_thread(own_pid)

    mine, meanwhile, later = in_a_thread(work)
    assert mine == meanwhile, "the other put it aside again"
    assert later != mine, "now it is in use"


def test_a_session_that_the_server_ended_meanwhile_is_not_given_to_anyone(monkeypatch):
    monkeypatch.setattr(spares, "CHECKED_AFTER_SECONDS", -1)
    gone = in_a_thread(leave_one)
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_terminate_backend(%s)", [gone])
    assert in_a_thread(own_pid) != gone


def test_an_old_session_is_not_used_again(monkeypatch):
    monkeypatch.setattr(spares, "OLDEST_SECONDS", -1)
    assert in_a_thread(leave_one) != in_a_thread(own_pid)


def test_a_session_in_a_transaction_is_closed_instead(monkeypatch):
    def work():
        connection.set_autocommit(False)
        return leave_one()

    assert in_a_thread(work) != in_a_thread(own_pid)


def test_no_more_than_a_few_are_kept():
    def leave_in_turn(depth):
        pid = own_pid()
        if depth:
            in_a_thread(lambda: leave_in_turn(depth - 1))
        put_session_aside()
        return pid

    in_a_thread(lambda: leave_in_turn(2 * spares.MOST))
    assert len(spares._spares) == spares.MOST
