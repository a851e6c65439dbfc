"""WebSockets relayed in this process, with real sockets and programs that misbehave. No database: what it says is given."""

import asyncio
import socket
import time
from contextlib import asynccontextmanager
from threading import Thread
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest

from clusters.drivers import NotAnswered, PortRequest, Unreachable
from clusters.drivers.connections import start
from clusters.drivers.simulated.programs import Program
from federation.drivers import relays, switchboard
from federation.drivers.relays import Whose
from federation.drivers.switchboard import Switchboard
from federation.engine.sockets import MOST_OF_SESSION, MOST_OF_USER, accept_of, program_handshake
from tests.engine.test_sockets import ASKED, KEY, frame

REQUEST = PortRequest("GET", "/api/kernels/1/channels", program_handshake(ASKED, "a.example"))
HEAD = f"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: {accept_of(KEY)}\r\n"
SWITCH = f"{HEAD}\r\n".encode()
MIB = 1024 * 1024


class Script:
    """A program that says these pieces, whatever it gets, and then waits or ends."""

    def __init__(self, *said, ends=False):
        self.said, self.ends, self.got, self.read_bytes = iter(said), ends, b"", 0

    async def write(self, data):
        self.got += data

    async def read(self):
        piece = next(self.said, None)
        if piece is not None:
            self.read_bytes += len(piece)
            return piece
        if not self.ends:
            await asyncio.Event().wait()
        return b""


@asynccontextmanager
async def port(program):
    if isinstance(program, Exception):
        raise program
    yield program


@pytest.fixture
def quick(monkeypatch):
    """Checks and closes without the waits of production."""
    monkeypatch.setattr(switchboard, "TICK_SECONDS", 0.02)
    monkeypatch.setattr(switchboard, "CHECK_SECONDS", 0.05)
    monkeypatch.setattr(relays, "CLOSE_SECONDS", 0.3)


class Line:
    """A board, and the browser's ends of its WebSockets."""

    def __init__(self):
        self.in_force, self.fails, self.used = True, False, set()
        self.board = Switchboard(100, self.check)
        self.ends, self.relay = [], None

    def check(self, tickets, used):
        self.used |= used
        if self.fails:
            raise OSError("no database")
        return frozenset(tickets) if self.in_force else frozenset()

    def whose(self, user=None, attempt=None):
        return Whose(uuid4(), user or uuid4(), attempt or uuid4())

    def shake(self, program, whose=None):
        self.relay = self.board.begin(whose or self.whose())
        return self.board.open(self.relay, port(program), REQUEST)

    def open(self, program, early=b""):
        assert self.shake(program).status == 101
        browser, own = socket.socketpair()
        self.ends.append(browser)
        browser.settimeout(10)
        own.setblocking(False)
        self.relay.take(own, early)
        return browser

    def wait(self):
        self.board.wait(10)
        assert len(self.board) == 0
        return self.relay and self.relay.end and self.relay.end.name


@pytest.fixture
def line(quick):
    found = Line()
    yield found
    for browser in found.ends:
        browser.close()
    found.board.stop()
    found.wait()


def echo():
    """A program that returns what it gets."""
    running: Any = SimpleNamespace(answer=lambda *_: None)
    return Program(running, 8888)


def exactly(browser, wanted):
    """What the browser receives next, which is this."""
    got = bytearray()
    while len(got) < len(wanted):
        piece = browser.recv(len(wanted) - len(got))
        assert piece, got[:1000]
        got += piece
    assert got == wanted


def rest(browser):
    got = b""
    try:
        while piece := browser.recv(65_536):
            got += piece
    except ConnectionResetError:
        pass
    return got


def until(condition):
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def closed_with(got, code):
    return got[:1] == b"\x88" and got[2:4] == code.to_bytes(2, "big")


def test_frames_pass_both_ways_and_data_is_use(line):
    browser = line.open(echo(), early=frame(1, b"", is_masked=True))
    exactly(browser, HEAD.encode() + b"Sec-WebSocket-Protocol: v1.kernel.websocket.jupyter.org\r\n\r\n" + frame(1, b""))
    until(lambda: line.used == {line.relay.whose.attempt_id})
    line.used.clear()
    ping = frame(9, b"", is_masked=True)
    browser.sendall(ping)
    exactly(browser, frame(9, b""))
    time.sleep(0.15)
    assert line.used == set()  # an open tab that is not used
    browser.sendall(
        b"\x82\xff" + (10 * MIB).to_bytes(8, "big") + bytes(4 + 2 * MIB)
    )  # it keeps a MiB of a frame, and ends
    assert closed_with(rest(browser), 1014)
    assert line.wait() == "PROGRAM"


def test_a_frame_of_10_mib_passes_whole_and_a_close_of_the_program_is_passed_on(line):
    large = frame(2, b"x" * (10 * MIB))
    pieces = [large[at : at + 32_768] for at in range(0, len(large), 32_768)]
    closed = frame(8, b"\x0f\xa0bye")
    browser = line.open(Script(SWITCH + pieces[0], *pieces[1:], closed, ends=True))
    exactly(browser, SWITCH + large + closed)
    assert browser.recv(100) == b""  # no second close frame
    browser.close()
    assert line.wait() == "PROGRAM"


def test_a_close_of_the_browser_is_passed_on(line):
    browser = line.open(echo())
    browser.sendall(b"\x88\x82\0\0\0\0\x03\xe8")
    assert rest(browser).endswith(b"\x88\x02\x03\xe8")
    browser.close()
    assert line.wait() == "PROGRAM"


@pytest.mark.parametrize(
    ("program", "words"),
    [
        (Script(b"hello, I am no HTTP\r\n\r\n"), "not HTTP"), (Script(b"HTTP/1.1 101 x\r\n\r\n"), "does not switch"),
        (Script(b"", ends=True), "not HTTP|before the answer"), (Script(SWITCH.replace(b"Accept: ", b"Accept: x")), "does not accept"),
        (Script(f"{HEAD}Sec-WebSocket-Protocol: evil\r\n\r\n".encode()), "protocol that was not offered"),
        (Script(b"HTTP/1.1 101 x\r\nUpgrade: h2c\r\nConnection: upgrade\r\n\r\n"), "does not switch"),
        (Script(b"HTTP/1.1 101 x\r\n" + b"a: b\r\n" * 20_000), "not HTTP"), (Unreachable("calls are paused"), "paused"),
        (NotAnswered("nothing answers", status=502), "nothing"),
    ],
)  # fmt: skip
def test_a_program_that_does_not_switch_as_asked_is_said(line, program, words):
    with pytest.raises((NotAnswered, Unreachable), match=words):
        line.shake(program)
    assert line.wait() is None


def test_another_answer_than_101_is_that_of_the_program(line):
    answer = line.shake(Script(b"HTTP/1.1 403 No\r\nContent-Length: 2\r\n\r\nno"))
    assert (answer.status, answer.body) == (403, b"no")
    assert line.wait() is None


def test_a_program_that_does_not_answer_and_a_browser_that_is_gone_free_the_place(line, monkeypatch):
    monkeypatch.setattr(relays, "HANDSHAKE_SECONDS", 0.05)
    with pytest.raises(NotAnswered, match="no answer within"):
        line.shake(Script())
    monkeypatch.setattr(relays, "HANDSHAKE_SECONDS", 5)
    monkeypatch.setattr(relays, "TAKE_SECONDS", 0.05)
    assert line.shake(Script(SWITCH)).status == 101  # and nothing takes it
    line.wait()
    browser, own = socket.socketpair()
    line.relay.take(own, b"")
    until(lambda: own.fileno() == -1)
    browser.close()
    monkeypatch.setattr(relays, "TAKE_SECONDS", 5)
    line.open(Script(SWITCH)).close()
    assert line.wait() == "BROWSER"


def test_a_browser_that_does_not_read_holds_little_memory_and_is_given_up(line, monkeypatch):
    monkeypatch.setattr(relays, "PING_SECONDS", 0.3)
    monkeypatch.setattr(relays, "SILENT_SECONDS", 0.3)
    piece = frame(2, b"x" * 65_000)
    program = Script(SWITCH, *[piece] * 5000)
    line.open(program)
    assert line.wait() == "SILENCE"
    assert program.read_bytes < MIB  # with what the kernel keeps of both sockets


def test_a_program_that_does_not_read_stops_its_browser(line):
    class Deaf(Script):
        async def write(self, data):
            self.got += data
            if len(self.got) > 1000:
                await asyncio.Event().wait()

    program = Deaf(SWITCH)
    browser = line.open(program)
    browser.settimeout(0.3)
    with pytest.raises(TimeoutError):
        browser.sendall(bytes(4 * MIB))
    assert len(program.got) < MIB


def test_a_silent_browser_is_asked_for_a_sign_of_life(line, monkeypatch):
    monkeypatch.setattr(relays, "PING_SECONDS", 0.1)
    monkeypatch.setattr(relays, "SILENT_SECONDS", 0.2)
    program = Script(SWITCH)
    browser = line.open(program)
    for _ in range(2):
        exactly(browser, SWITCH + b"\x89\x00" if _ == 0 else b"\x89\x00")
        browser.sendall(b"\x8a\x80mask")
    assert rest(browser) == b"\x89\x00"  # no answer
    assert line.wait() == "SILENCE"
    assert program.got.endswith(b"\x8a\x80mask" * 2)


def test_a_websocket_ends_with_the_right_to_it(line):
    program = Script(SWITCH)
    browser = line.open(program)
    exactly(browser, SWITCH)
    line.in_force = False
    assert closed_with(rest(browser), 1008)
    assert line.wait() == "RIGHT"
    assert closed_with(program.got[program.got.index(b"\r\n\r\n") + 4 :].replace(b"\0" * 4, b"", 1), 1008)


def test_it_ends_when_the_right_is_not_known_for_long_and_at_its_greatest_age(line, monkeypatch):
    monkeypatch.setattr(relays, "UNCHECKED_SECONDS", 0.3)
    line.fails = True
    browser = line.open(Script(SWITCH))
    exactly(browser, SWITCH)
    assert closed_with(rest(browser), 1013)
    assert line.wait() == "UNCHECKED"
    line.fails = False
    monkeypatch.setattr(relays, "LONGEST_SECONDS", 0.2)
    browser = line.open(Script(SWITCH))
    exactly(browser, SWITCH)
    assert closed_with(rest(browser), 1008)
    assert line.wait() == "AGE"


def test_a_process_that_stops_ends_the_frame_under_way_and_closes(line):
    one = frame(2, b"x" * 1000)
    gate = asyncio.Event()

    class Halting(Script):
        async def read(self):
            if self.read_bytes >= len(SWITCH) + 500:
                await gate.wait()
            return await super().read()

    browser = line.open(Halting(SWITCH, one[:500], one[500:] + one, one))
    exactly(browser, SWITCH + one[:500])
    line.board.stop()
    until(lambda: line.relay.end is not None)
    time.sleep(0.05)  # now it reads only to the end of this frame
    start(_set(gate))
    got = rest(browser)
    assert got[: len(one) - 500] == one[500:]
    assert closed_with(got[len(one) - 500 :], 1012)
    assert line.wait() == "RESTART"
    late = line.open(Script(SWITCH))
    assert closed_with(rest(late).removeprefix(SWITCH), 1012)


async def _set(gate):
    gate.set()


def test_what_is_no_frame_ends_it(line):
    browser = line.open(Script(SWITCH))
    exactly(browser, SWITCH)
    browser.sendall(b"\x82\xff" + b"\xff" * 12)
    assert closed_with(rest(browser), 1002)
    assert line.wait() == "MALFORMED"


def test_a_program_that_is_gone_is_a_close(line):
    browser = line.open(Script(SWITCH, ends=True))
    assert closed_with(rest(browser).removeprefix(SWITCH), 1014)
    assert line.wait() == "PROGRAM"


def test_a_connection_to_the_program_that_breaks_while_the_browser_sends_is_a_close(line):
    class Broken(Script):
        async def write(self, data):
            if self.got:
                raise NotAnswered("the connection to the pod broke", status=502)
            self.got += data

    browser = line.open(Broken(SWITCH))
    exactly(browser, SWITCH)
    browser.sendall(frame(1, b"x", is_masked=True))
    assert closed_with(rest(browser), 1014)
    assert line.wait() == "PROGRAM"


def test_a_handshake_under_way_does_not_hold_up_a_process_that_stops(line):
    began, answers = time.monotonic(), []
    thread = Thread(target=lambda: answers.append(_refusal(line)))
    thread.start()
    until(lambda: line.relay is not None and line.relay._shaking is not None)
    line.board.stop()
    thread.join(10)
    [refused] = answers
    assert (refused.status, "restarts" in refused.reason) == (503, True)
    late = _refusal(line)
    assert (late.status, time.monotonic() - began < 5) == (503, True)
    assert line.wait() == "RESTART"


def _refusal(line):
    with pytest.raises(NotAnswered) as refused:
        line.shake(Script())
    return refused.value


def test_a_session_a_user_and_a_process_have_so_many(line):
    one, two = uuid4(), uuid4()
    places = [line.board.begin(line.whose(user=one, attempt=two)) for _ in range(MOST_OF_SESSION + 1)]
    assert places.index(None) == MOST_OF_SESSION
    places += [line.board.begin(line.whose(user=one)) for _ in range(500)]
    assert sum(place is not None for place in places) == MOST_OF_USER
    places += [line.board.begin(line.whose()) for _ in range(100)]
    assert sum(place is not None for place in places) == 100
    for place in places:
        line.board.leave(place)
    assert Switchboard(0, line.check).begin(line.whose()) is None
