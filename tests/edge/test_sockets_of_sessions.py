"""WebSockets of sessions in a real web process: one user with 500, and a process that stops while many are open."""

import signal
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from federation.engine.sockets import MOST_OF_SESSION, MOST_OF_USER
from tests.engine.test_sockets import KEY, frame

from .conftest import PATIENCE_SECONDS, running

pytestmark = [pytest.mark.processes, pytest.mark.django_db(transaction=True), pytest.mark.timeout(240)]
OPEN = {
    "SWITCHYARD_DRAIN_SECONDS": "1",
    "SWITCHYARD_STRANGER_REQUESTS": "0",
    "SWITCHYARD_SOURCE_REQUESTS": "0",
    "SWITCHYARD_SOURCE_CONNECTIONS": "2000",
}
GRACE_SECONDS = 11
"""The time until gunicorn kills a process that drains for a second."""
MANY, AT_A_TIME = 500, 20
SWITCHED, TOO_MANY = 101, 503


def ask(edge, user, session, more=""):
    """The connection of a WebSocket that is asked for."""
    sock = edge.connect()
    lines = (
        f"GET /test/relay?user={user}&session={session}{more} HTTP/1.1", "Host: localhost", "Connection: Upgrade",
        "Upgrade: websocket", "Sec-WebSocket-Version: 13", f"Sec-WebSocket-Key: {KEY}", "", "",
    )  # fmt: skip
    sock.sendall("\r\n".join(lines).encode())
    return sock


def head(sock):
    """The status of the answer, byte by byte: frames may follow."""
    got = b""
    while not got.endswith(b"\r\n\r\n"):
        piece = sock.recv(1)
        assert piece, got
        got += piece
    return int(got.split(b" ")[1])


def opened(edge, user, session, more=""):
    sock = ask(edge, user, session, more)
    return sock, head(sock)


def returns(sock, text=b"hello"):
    """Whether the program is reached."""
    wanted, got = frame(1, text), b""
    sock.sendall(frame(1, text, is_masked=True).replace(b"mask", bytes(4)))
    while len(got) < len(wanted) and (piece := sock.recv(len(wanted) - len(got))):
        got += piece
    return got == wanted


def rest(sock):
    got = b""
    try:
        while piece := sock.recv(65_536):
            got += piece
    except ConnectionResetError:
        pass
    return got


def counted(edge, wanted=lambda _: True):
    deadline = time.monotonic() + 20
    while not wanted(found := edge.ask("/test/open").json()):
        assert time.monotonic() < deadline, found
        time.sleep(0.1)
    return found


def test_500_of_one_user_leave_room_for_others_and_nothing_behind(edge):
    with ThreadPoolExecutor(AT_A_TIME) as crowd:
        ours, _ = opened(edge, "bob", "b")
        before = counted(edge)
        asked = [crowd.submit(opened, edge, "eve", f"e{number % 16}") for number in range(MANY)]
        slowest = 0.0
        while not all(one.done() for one in asked):
            began = time.monotonic()
            assert returns(ours)
            assert edge.ask("/test/echo").status == 200
            slowest = max(slowest, time.monotonic() - began)
        found = [one.result() for one in asked]
        statuses = [status for _, status in found]
        assert set(statuses) == {SWITCHED, TOO_MANY}
        assert statuses.count(SWITCHED) == MOST_OF_USER
        assert slowest < PATIENCE_SECONDS / 3
        other, status = opened(edge, "ann", "a")
        assert (status, returns(other)) == (SWITCHED, True)
        for sock, _ in (*found, (other, 0)):
            sock.close()
        after = counted(edge, lambda now: now["sockets"] == 1 and now["descriptors"] <= before["descriptors"] + 2)
        assert after["threads"] <= before["threads"] + 2
        again = [opened(edge, "eve", "e")[1] for _ in range(MOST_OF_SESSION + 1)]
        assert again == [SWITCHED] * MOST_OF_SESSION + [TOO_MANY]
        assert returns(ours)
        edge.forget()
        counted(edge, lambda now: not now["sockets"])


def test_a_process_that_stops_closes_all_so_that_clients_reconnect_elsewhere(tmp_path, django_db_blocker):
    """Also while clusters do not answer the handshakes of a user, who meanwhile takes no places of others."""
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    with running(tmp_path / "one", **OPEN) as edge, running(tmp_path / "two", **OPEN) as next_one:
        found = [opened(edge, f"user-{number % 4}", f"s{number % 8}") for number in range(100)]
        assert {status for _, status in found} == {SWITCHED}
        deaf = [opened(edge, "deaf", "d")[0] for _ in range(5)]
        for sock in deaf:  # takes nothing more
            sock.sendall(b"\x82\xfe\xff\xff" + bytes(4) + bytes(65_535))
        hanging = [ask(edge, "eve", f"e{number}", "&hangs=1") for number in range(40)]
        time.sleep(0.5)
        began = time.monotonic()
        for number in range(3):
            sock, status = opened(edge, "ann", f"a{number}")
            assert (status, returns(sock)) == (SWITCHED, True)
        assert time.monotonic() - began < 10, "less than the handshakes take that hang"
        asked_at = time.monotonic()
        edge.process.send_signal(signal.SIGTERM)
        assert returns(found[0][0]), "it goes on until its port is closed"
        for sock, _ in found:
            assert rest(sock)[:4] == b"\x88\x16\x03\xf4", "1012: it restarts"
            sock.close()
        assert {head(sock) for sock in hanging} == {TOO_MANY}
        assert edge.process.wait(20) == 0
        assert time.monotonic() - asked_at < GRACE_SECONDS
        again = [opened(next_one, f"user-{number % 4}", f"s{number % 8}") for number in range(100)]
        assert {status for _, status in again} == {SWITCHED}
        assert all(returns(sock) for sock, _ in again[:5])
