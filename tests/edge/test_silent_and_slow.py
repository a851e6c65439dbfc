"""What silent, slow and vanished peers cost: memory for a while, never a thread."""

import socket
import struct
import time

import psutil
import pytest

from .conftest import PATIENCE_SECONDS, STRANGER, read_answer, running

pytestmark = [pytest.mark.processes, pytest.mark.django_db(transaction=True), pytest.mark.timeout(180)]
HEAD = b"GET /test/echo HTTP/1.1\r\nHost: localhost\r\n"
SLOW_BODY = b"POST /test/echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n\r\n{"
BIG = b"GET /test/big HTTP/1.1\r\nHost: localhost\r\n\r\n"
CROWD = 600


def others_are_served(edge):
    """Health on its port, the application on its own, and every thread of it."""
    assert edge.ask("/healthz", port=edge.health_port).json() == {"status": "alive"}
    deadline = time.monotonic() + PATIENCE_SECONDS
    while edge.ask("/readyz", port=edge.health_port).json()["status"] != "ready":  # a busy database answers late
        assert time.monotonic() < deadline
    assert edge.ask("/test/echo").status == 200
    return edge.threads_are_free()


def ended(sock, seconds=15.0):
    """What came before the other side closed, within so many seconds."""
    sock.settimeout(seconds)
    received = b""
    try:
        while piece := sock.recv(65536):
            received += piece
    except ConnectionResetError:
        pass
    return received


@pytest.mark.parametrize("count", [60, CROWD])
def test_silent_sockets_cost_nobody_a_thread_and_are_closed(edge, count):
    silent = edge.crowd(count)
    assert others_are_served(edge)
    assert ended(silent[-1]) == b""


def test_heads_that_drip_cost_nobody_a_thread_and_are_told_408(edge):
    slow = edge.crowd(CROWD, first=HEAD)
    for _ in range(3):
        for sock in slow:
            sock.sendall(b"X-Drip: 1\r\n")
        assert others_are_served(edge)
    assert ended(slow[-1]).startswith(b"HTTP/1.1 408 ")


def test_bodies_that_drip_cost_nobody_a_thread_and_are_told_408(edge):
    slow = edge.crowd(CROWD, first=SLOW_BODY)
    for _ in range(3):
        for sock in slow:
            sock.sendall(b" ")
        assert others_are_served(edge)
    assert ended(slow[-1]).startswith(b"HTTP/1.1 408 ")


def test_a_drip_cannot_put_its_end_off_for_ever(edge):
    [sock] = edge.crowd(1, first=SLOW_BODY)
    began = time.monotonic()
    with pytest.raises(OSError):  # noqa: PT012 - either call may meet the end
        while time.monotonic() - began < 60:
            sock.sendall(b" ")
            time.sleep(0.2)
    assert time.monotonic() - began < 50


def test_readers_that_never_read_cost_nobody_a_thread_and_are_dropped(edge):
    deaf = edge.crowd(CROWD, first=BIG, receive_buffer=4096)
    time.sleep(1)
    assert others_are_served(edge)
    [worker] = psutil.Process(edge.process.pid).children()
    assert worker.memory_info().rss < 600 * 1024 * 1024
    time.sleep(8)
    unread = ended(deaf[-1])
    assert len(unread) < 4 * 1024 * 1024


def test_vanished_peers_cost_nobody_a_thread(edge):
    for first in (b"", HEAD, SLOW_BODY, BIG):
        for sock in edge.crowd(150, first=first):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            sock.close()
    assert others_are_served(edge)


def test_a_slow_reader_that_does_read_gets_all_of_a_large_answer(edge):
    sock = edge.connect(receive_buffer=4096)
    sock.sendall(BIG)
    time.sleep(1)
    answer = read_answer(sock)
    assert (answer.status, len(answer.body)) == (200, 4 * 1024 * 1024)


MOST, MOST_OF_A_SOURCE, PROXY = 60, 50, "127.0.0.3"


@pytest.fixture(scope="module")
def bounded(django_db_setup, tmp_path_factory):
    """A web process with few connections."""
    bounds = {
        "SWITCHYARD_SOURCE_CONNECTIONS": str(MOST_OF_A_SOURCE),
        "SWITCHYARD_CONNECTIONS": str(MOST),
        "SWITCHYARD_TRUSTED_PROXIES": PROXY,
        "SWITCHYARD_HEAD_SECONDS": "60",
    }
    with running(tmp_path_factory.mktemp("bounded"), **bounds) as edge:
        yield edge


def test_one_source_cannot_take_all_connections(bounded):
    silent = bounded.crowd(200)
    deadline = time.monotonic() + PATIENCE_SECONDS
    while len(alive := [sock for sock in silent if is_open(sock)]) > MOST_OF_A_SOURCE:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert alive == silent[-MOST_OF_A_SOURCE:], "the longest waiting make room"
    assert bounded.ask("/test/echo", source=STRANGER, seconds=5).status == 200
    assert bounded.ask("/test/echo", seconds=5).status == 200
    bounded.forget()


def test_a_trusted_proxy_may_hold_more_connections_than_a_source(bounded):
    silent = bounded.crowd(100, source=PROXY)
    deadline = time.monotonic() + PATIENCE_SECONDS
    while (alive := sum(map(is_open, silent))) > MOST:
        assert time.monotonic() < deadline, f"{alive} are open"
    assert alive == MOST
    assert bounded.ask("/test/echo", seconds=5).status == 200
    bounded.forget()


def is_open(sock):
    sock.settimeout(0.02)
    try:
        return sock.recv(1) != b""
    except TimeoutError:
        return True
    except ConnectionResetError:
        return False
