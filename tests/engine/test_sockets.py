"""WebSockets as values: the handshake's two sides, and frames however their bytes are cut."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from federation.engine.sockets import (
    PING,
    End,
    Frames,
    MalformedFrame,
    NotSwitched,
    accept_of,
    browser_handshake,
    close_frame,
    handshake_fault,
    is_asked_for,
    program_handshake,
)

KEY = "dGhlIHNhbXBsZSBub25jZQ=="
ASKED = {
    "upgrade": "websocket", "connection": "keep-alive, Upgrade", "sec-websocket-version": "13", "sec-websocket-key": KEY,
    "sec-websocket-protocol": "v1.kernel.websocket.jupyter.org, v4.channel.k8s.io",
    "sec-websocket-extensions": "permessage-deflate; client_max_window_bits", "origin": "https://a.example",
    "cookie": "__Host-switchyard-session=x", "authorization": "Bearer swy_x", "x-forwarded-for": "1",
}  # fmt: skip
ANSWERED = [("Upgrade", "WebSocket"), ("connection", "upgrade"), ("Sec-WebSocket-Accept", accept_of(KEY))]


@pytest.mark.parametrize(
    ("headers", "is_socket"),
    [
        ({"upgrade": "websocket", "connection": "Upgrade"}, True), ({"upgrade": " WebSocket ", "connection": "keep-alive, upgrade"}, True),
        ({"upgrade": "websocket"}, False), ({"upgrade": "websocket", "connection": "close"}, False), ({"connection": "upgrade"}, False),
        ({"upgrade": "h2c", "connection": "Upgrade, HTTP2-Settings"}, False), ({"upgrade": "h2c, websocket", "connection": "upgrade"}, False),
        ({"upgrade": "websocket,websocket", "connection": "upgrade"}, False), ({}, False),
    ],
)  # fmt: skip
def test_only_a_websocket_and_nothing_else_is_a_websocket(headers, is_socket):
    assert is_asked_for(headers) is is_socket


@pytest.mark.parametrize(
    ("method", "length", "changes", "words"),
    [
        ("GET", 0, {}, ""), ("POST", 0, {}, "with GET"), ("GET", 1, {}, "without a body"), ("GET", 0, {"sec-websocket-version": "8"}, "13"),
        ("GET", 0, {"sec-websocket-version": ""}, "13"), ("GET", 0, {"sec-websocket-key": ""}, "base64"),
        ("GET", 0, {"sec-websocket-key": KEY[:-1]}, "base64"), ("GET", 0, {"sec-websocket-key": f"{KEY},{KEY}"}, "base64"),
        ("GET", 0, {"sec-websocket-protocol": "a b"}, "protocols"), ("GET", 0, {"sec-websocket-protocol": "a\r\nb: c"}, "well-formed"),
        ("GET", 0, {"sec-websocket-extensions": "x" * 5000}, "well-formed"), ("GET", 0, {"sec-websocket-protocol": ""}, ""),
    ],
)  # fmt: skip
def test_a_handshake_that_is_not_well_formed_reaches_no_program(method, length, changes, words):
    fault = handshake_fault(method, ASKED | changes, length)
    assert bool(fault) is bool(words)
    assert words in fault


def test_a_program_gets_the_handshake_and_no_credential():
    assert program_handshake(ASKED, "a.example") == [
        ("host", "a.example"), ("accept-encoding", "identity"), ("origin", "https://a.example"), ("connection", "Upgrade"),
        ("upgrade", "websocket"), ("sec-websocket-version", "13"), ("sec-websocket-key", KEY),
        ("sec-websocket-protocol", ASKED["sec-websocket-protocol"]), ("sec-websocket-extensions", ASKED["sec-websocket-extensions"]),
    ]  # fmt: skip


def test_a_browser_gets_the_answer_and_nothing_that_it_did_not_ask_for():
    more = [
        ("Set-Cookie", "a=b"),
        ("Sec-WebSocket-Protocol", "v4.channel.k8s.io"),
        ("Sec-WebSocket-Extensions", "permessage-deflate"),
    ]
    assert browser_handshake(ASKED, [*ANSWERED, *more]) == (
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\nSec-WebSocket-Protocol: v4.channel.k8s.io\r\n"
        b"Sec-WebSocket-Extensions: permessage-deflate\r\n\r\n"
    )
    for answer in (
        ANSWERED[1:], ANSWERED[:1] + ANSWERED[2:], ANSWERED[:2], [("Upgrade", "h2c"), *ANSWERED[1:]], [*ANSWERED, ANSWERED[2]],
        [*ANSWERED[:2], ("Sec-WebSocket-Accept", "x")], [*ANSWERED, ("Sec-WebSocket-Protocol", "other")],
        [*ANSWERED, *more[1:2] * 2], [*ANSWERED, ("Sec-WebSocket-Extensions", "permessage-deflate, mux")],
    ):  # fmt: skip
        with pytest.raises(NotSwitched):
            browser_handshake(ASKED, answer)


def frame(opcode, content, *, is_last=True, is_masked=False):
    size = len(content)
    length = (
        bytes([size])
        if size < 126
        else b"\x7e" + size.to_bytes(2, "big")
        if size < 1 << 16
        else b"\x7f" + size.to_bytes(8, "big")
    )
    head = bytes([opcode | (0x80 if is_last else 0), length[0] | (0x80 if is_masked else 0)]) + length[1:]
    return head + (b"mask" if is_masked else b"") + content


FRAMES = st.tuples(
    st.sampled_from([0, 1, 2, 8, 9, 10]),
    st.sampled_from([0, 1, 125, 126, 127, 65_535, 65_536, 70_000]),
    st.booleans(),
    st.booleans(),
)


@given(st.lists(FRAMES, max_size=6), st.lists(st.integers(1, 70_000), max_size=20))
def test_frames_are_followed_however_they_are_cut(wanted, cuts):
    sent = [frame(opcode, bytes(size), is_last=last, is_masked=masked) for opcode, size, last, masked in wanted]
    whole, ends = b"".join(sent), {0}
    for one in sent:
        ends.add(max(ends) + len(one))
    followed, at = Frames(), 0
    for step in [*cuts, len(whole)]:
        followed.feed(whole[at : at + step])
        at = min(len(whole), at + step)
        assert followed.is_between is (at in ends)
    assert followed.count == len(wanted)
    assert followed.data == sum(opcode < 8 for opcode, *_ in wanted)
    assert followed.is_closing is any(opcode == 8 for opcode, *_ in wanted)


@given(st.integers(0, 300), st.integers(1, 310))
def test_the_end_of_the_frame_under_way_is_found(size, first):
    one, followed = frame(1, bytes(size)), Frames()
    first = min(first, len(one))
    followed.feed(one[:first])
    assert followed.feed_to_end(one[first:] + PING) == len(one) - first
    assert followed.is_between
    assert followed.count == 1


def test_a_length_that_no_frame_has_is_malformed():
    Frames().feed(b"\x82\x7f\x7f" + b"\xff" * 7)
    with pytest.raises(MalformedFrame):
        Frames().feed(b"\x82\x7f\x80" + bytes(7))


def test_the_gateways_own_frames_are_frames():
    assert [one.name for one in End] == [
        "BROWSER", "PROGRAM", "RIGHT", "AGE", "UNCHECKED", "RESTART", "SILENCE", "CLOSED", "MALFORMED"
    ]  # fmt: skip
    assert close_frame(End.RESTART) == b"\x88\x16\x03\xf4the gateway restarts"
    assert close_frame(End.RESTART, is_masked=True) == b"\x88\x96\0\0\0\0\x03\xf4the gateway restarts"
    assert close_frame(End.BROWSER) == b""
    for end in End:
        for is_masked in (False, True):
            followed = Frames()
            followed.feed(close_frame(end, is_masked=is_masked))
            assert followed.is_between
            assert len(end.value[1]) <= 123
    followed = Frames()
    followed.feed(PING)
    assert (followed.is_between, followed.data) == (True, 0)
