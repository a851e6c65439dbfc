"""WebSockets of sessions at the gateway's door: which requests become one, and what keeps it open."""

import socket
from contextlib import asynccontextmanager
from typing import Any

import pytest
from django.test import Client

from federation.drivers import switchboard
from federation.models import SessionTicket, SessionUse
from federation.operations.session_sockets import keep_open
from foundation.edge.upgrades import UPGRADE, Upgrade
from tenancy.models import AuditEntry
from tests.engine.test_sockets import ASKED, frame

from .test_relays import echo, exactly
from .test_session_use import aged
from .test_sessions import COOKIE, LOSSES, Program, attempt, opened, origins, program, running, user

pytestmark = pytest.mark.django_db
assert attempt  # fixtures
assert origins
assert program
assert user
HANDSHAKE = {
    name: ASKED[name]
    for name in ("upgrade", "connection", "sec-websocket-version", "sec-websocket-key", "sec-websocket-protocol")
}


@pytest.fixture(autouse=True)
def sockets(monkeypatch):
    """Programs return what they get. What keeps a WebSocket open is tried by itself: its thread does not see a test's rows."""
    connections = []

    @asynccontextmanager
    async def open_port(self, namespace, pod, port):
        connections.append((namespace, pod, port))
        yield echo()

    monkeypatch.setattr(Program, "open_port", open_port, raising=False)
    monkeypatch.setattr("federation.web.session_door.keep_open", lambda tickets, used: frozenset(tickets))
    monkeypatch.setattr(switchboard, "TICK_SECONDS", 0.02)
    return connections


def ask(browser, target="/api/kernels/1/channels?session_id=x", handover=None, origin=None, body=None, **changes):
    headers = {**HANDSHAKE, "Origin": origin or f"https://{browser.host}", **changes}
    more: dict[str, Any] = {} if handover is None else {UPGRADE: handover}
    kind = {"content_type": "text/plain"} if body else {}
    return browser.generic("GET", target, body or b"", headers={k: v for k, v in headers.items() if v}, **kind, **more)


def test_a_request_of_the_sessions_own_page_becomes_a_websocket(user, attempt, sockets):
    browser = opened(user, attempt)
    aged(attempt, 300)
    for _ in range(2):
        upgrade = Upgrade()
        answer = ask(browser, handover=upgrade)
        assert (answer.status_code, upgrade.taker is not None) == (101, True)
        ours, theirs = socket.socketpair()
        ours.settimeout(10)
        theirs.setblocking(False)
        upgrade.taker(theirs, b"")
        ours.sendall(frame(1, b"hello", is_masked=True).replace(b"mask", bytes(4)))
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            head += ours.recv(1)
        assert b"Sec-WebSocket-Protocol: v1.kernel.websocket.jupyter.org\r\n" in head
        assert b"ookie" not in head
        exactly(ours, frame(1, b"hello"))
        ours.close()
    assert sockets == [("swy-1", "pod-1", 8888)] * 2
    assert SessionUse.objects.get(attempt=attempt).last_used_at >= SessionTicket.objects.get().created_at
    [entry] = AuditEntry.objects.filter(action="session.socket")  # the first of this access
    assert (entry.object_id, entry.actor_name) == (str(attempt.job_id), user.email)
    assert entry.detail == {"attempt": str(attempt.id), "ticket": str(SessionTicket.objects.get().id)}


def test_no_other_page_session_or_browser_opens_a_websocket(user, attempt, sockets):
    browser, other = opened(user, attempt), running(user)
    for origin in (
        f"https://{other.id.hex}.sessions.example",
        "https://evil.example",
        "null",
        f"http://{browser.host}",
        " ",
    ):
        upgrade = Upgrade()
        assert ask(browser, handover=upgrade, origin=origin).status_code == 403
        assert upgrade.taker is None
    stolen = type(browser)(other)
    stolen.cookies[COOKIE] = browser.cookies[COOKIE].value
    assert ask(stolen, handover=Upgrade()).status_code == 401
    assert ask(type(browser)(attempt), handover=Upgrade()).status_code == 401
    upgrade = Upgrade()
    more: dict[str, Any] = {UPGRADE: upgrade}
    assert Client().generic("GET", "/jobs/", headers=HANDSHAKE, **more).status_code == 302
    assert upgrade.taker is None
    assert sockets == []


def test_what_is_no_websocket_does_not_become_one(user, attempt, sockets, program):
    browser = opened(user, attempt)
    assert ask(browser).status_code == 501  # a server that hands over no connections
    for changes in ({"body": b"GET / HTTP/1.1\r\n\r\n"}, {"sec-websocket-version": "8"}, {"sec-websocket-key": "x"}):
        upgrade = Upgrade()
        answer = ask(browser, handover=upgrade, **changes)
        assert (answer.status_code, upgrade.taker) == (400, None)
    assert program.asked == []
    for changes in ({"upgrade": "h2c", "http2-settings": "x"}, {"connection": "close"}, {"upgrade": "h2c, websocket"}):
        upgrade = Upgrade()
        assert ask(browser, handover=upgrade, **changes).status_code == 200  # HTTP, and the program gets no upgrade
        sent = {name for name, _ in program.asked.pop()[3].headers}
        assert not sent & {"upgrade", "connection", "http2-settings", "sec-websocket-key", "sec-websocket-version"}
        assert upgrade.taker is None
    assert sockets == []


def test_too_many_are_refused_before_a_program_is_asked(user, attempt, sockets, monkeypatch):
    browser = opened(user, attempt)
    monkeypatch.setattr(switchboard, "MOST_OF_USER", 0)
    answer = ask(browser, handover=Upgrade())
    assert (answer.status_code, answer.content[:8]) == (503, b"Too many")
    assert sockets == []


def test_use_is_noted_for_websockets_that_had_data(user, attempt):
    opened(user, attempt)
    mine = SessionTicket.objects.get().id
    aged(attempt, 300)
    before = SessionUse.objects.get(attempt=attempt).last_used_at
    assert keep_open({mine}, set()) == {mine}
    assert SessionUse.objects.get(attempt=attempt).last_used_at == before
    assert keep_open({mine}, {attempt.id}) == {mine}
    assert SessionUse.objects.get(attempt=attempt).last_used_at > before


@pytest.mark.parametrize("loss", LOSSES)
def test_nothing_keeps_a_websocket_open_and_nothing_is_use_once(user, attempt, loss):
    opened(user, attempt)
    mine = SessionTicket.objects.get().id
    assert keep_open({mine}, set()) == {mine}
    LOSSES[loss](user, attempt)
    aged(attempt, 300)
    before = SessionUse.objects.get(attempt=attempt).last_used_at
    assert keep_open({mine}, {attempt.id}) == frozenset()
    assert SessionUse.objects.get(attempt=attempt).last_used_at == before
