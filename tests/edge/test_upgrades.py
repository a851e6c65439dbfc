"""Connections that the edge hands over: they take no thread and no place at the front, and end with the process."""

import signal

import pytest

from .conftest import THREADS, read_answer, running

pytestmark = [pytest.mark.processes, pytest.mark.django_db(transaction=True), pytest.mark.timeout(180)]
ASK = b"GET /test/socket HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"


def exactly(sock, size):
    got = b""
    while len(got) < size and (piece := sock.recv(size - len(got))):
        got += piece
    return got


def test_a_connection_is_handed_over_with_what_was_already_sent(edge):
    sock = edge.connect()
    sock.sendall(ASK + b"GET /test/smuggled")
    assert exactly(sock, 24) == b"taken:GET /test/smuggled"
    sock.sendall(b" HTTP/1.1\r\n\r\n")
    assert exactly(sock, 13) == b" HTTP/1.1\r\n\r\n"
    others = [edge.connect() for _ in range(3 * THREADS)]
    for other in others:
        other.sendall(ASK)
        assert exactly(other, 6) == b"taken:"
    assert edge.threads_are_free()
    for other in others:
        other.sendall(b"x" * 300_000)
        assert exactly(other, 300_000) == b"x" * 300_000


def test_what_follows_a_refused_upgrade_is_no_request(edge):
    refused = ASK.replace(b"/test/socket", b"/test/echo")
    received = edge.raw(refused + b"GET /test/smuggled HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert received.count(b"HTTP/1.1 200") == 1
    assert b"smuggled" not in received
    h2c = refused.replace(b"websocket", b"h2c")
    assert edge.raw(h2c + h2c).count(b"HTTP/1.1 200") == 2  # any other upgrade is ignored


def test_a_process_that_stops_ends_what_it_handed_over(tmp_path, django_db_blocker):
    with running(tmp_path, SWITCHYARD_DRAIN_SECONDS="1") as edge:
        sock = edge.connect()
        sock.sendall(ASK)
        assert exactly(sock, 6) == b"taken:"
        edge.process.send_signal(signal.SIGTERM)
        sock.sendall(b"still")
        assert exactly(sock, 5) == b"still"
        assert exactly(sock, 100) == b"goodbye"
        assert edge.process.wait(20) == 0


def test_a_failure_behind_the_upgrade_is_an_answer(edge):
    with edge.connect() as sock:
        sock.sendall(ASK.replace(b"/test/socket", b"/test/fails"))
        assert read_answer(sock).status == 500
