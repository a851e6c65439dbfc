"""HTTP at the edge: what is framed in two ways is refused, what is plain is answered, whole and in order."""

import signal
import threading
import time

import httpx
import pytest

from .conftest import read_answer, running

pytestmark = [pytest.mark.processes, pytest.mark.django_db(transaction=True), pytest.mark.timeout(180)]
POST = b"POST /test/echo HTTP/1.1\r\nHost: localhost\r\n"
SMUGGLED = b"GET /test/smuggled HTTP/1.1\r\nHost: localhost\r\n\r\n"
MIB = 1024 * 1024

TWO_WAYS = {
    "length and chunks": b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "chunks and length": b"Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\n",
    "two lengths": b"Content-Length: 0\r\nContent-Length: 40\r\n\r\n",
    "the same length twice": b"Content-Length: 0\r\nContent-Length: 0\r\n\r\n",
    "a list of lengths": b"Content-Length: 0, 0\r\n\r\n",
    "a signed length": b"Content-Length: +0\r\n\r\n",
    "a negative length": b"Content-Length: -1\r\n\r\n",
    "a length in other digits": b"Content-Length: \xb2\r\n\r\n",
    "chunked twice": b"Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n",
    "chunked in two headers": b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "chunked, then not": b"Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
    "identity alone": b"Transfer-Encoding: identity\r\nContent-Length: 0\r\n\r\n",
    "a coding that looks like chunked": b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
    "a tab before chunked's name": b"Transfer-Encoding:\x0bchunked\r\n\r\n0\r\n\r\n",
    "a blank before the colon": b"Content-Length : 0\r\n\r\n",
    "a folded header": b"Content-Length:\r\n 0\r\n\r\n",
    "a bare LF between headers": b"X: y\nContent-Length: 40\r\n\r\n",
    "a bare CR in a header": b"X: y\rContent-Length: 40\r\n\r\n",
    "a NUL in a header": b"X: y\x00\r\n\r\n",
    "two hosts": b"Host: other\r\n\r\n",
    "no such number": b"Transfer-Encoding: chunked\r\n\r\n0x1\r\na\r\n0\r\n\r\n",
    "a chunk with a sign": b"Transfer-Encoding: chunked\r\n\r\n+1\r\na\r\n0\r\n\r\n",
    "a chunk of no size": b"Transfer-Encoding: chunked\r\n\r\n;x\r\na\r\n0\r\n\r\n",
    "a chunk's line that ends with LF": b"Transfer-Encoding: chunked\r\n\r\n1\na\r\n0\r\n\r\n",
    "a chunk longer than it says": b"Transfer-Encoding: chunked\r\n\r\n1\r\nab\r\n0\r\n\r\n",
    "an extension with a line break": b"Transfer-Encoding: chunked\r\n\r\n1;x=\n\r\na\r\n0\r\n\r\n",
    "a chunk of 2^64": b"Transfer-Encoding: chunked\r\n\r\n10000000000000001\r\na\r\n0\r\n\r\n",
    "a trailer that is a length": b"Transfer-Encoding: chunked\r\n\r\n0\r\nContent-Length: 5\r\n\r\n",
    "a trailer that ends with LF": b"Transfer-Encoding: chunked\r\n\r\n0\r\nX: y\n\r\n",
}  # fmt: skip


@pytest.mark.parametrize("framing", TWO_WAYS.values(), ids=TWO_WAYS)
def test_a_request_that_can_be_read_in_two_ways_is_refused_and_nothing_behind_it_is_read(edge, framing):
    received = edge.raw(POST + framing + SMUGGLED)
    assert received.split(b" ")[1] in {b"400", b"501"}, received
    assert b"smuggled" not in received
    assert received.count(b"HTTP/1.1 ") == 1
    assert b"application/problem+json" in received


@pytest.mark.parametrize(
    ("request_line", "status"),
    [
        (b"GET /" + b"a" * 9000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n", 414),
        (b"GET /" + b"a" * 9000, 414),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 9000 + b"\r\n\r\n", 431),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\n" + b"X: y\r\n" * 101 + b"\r\n", 431),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\n" + (b"X: " + b"a" * 8000 + b"\r\n") * 9, 431),
        (b"GET / HTTP/1.1\r\nExpect: miracles\r\n\r\n", 417),
        (b"GET / HTTP/2.0\r\n\r\n", 400),
        (b"GET /\r\n\r\n", 400),
        (b"\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400),
        (b"get / HTTP/1.1\r\n\r\n", 400),
        (b"GET /test/echo HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
    ],
)
def test_what_is_no_request_or_too_long_is_told_so(edge, request_line, status):
    received = edge.raw(request_line)
    assert received.startswith(b"HTTP/1.1 %d " % status), received[:200]


def test_a_large_body_is_refused_before_it_is_read_and_taken_where_it_may_be_large(edge):
    for path, length, status in (
        ("/test/echo", 3 * MIB, 413),
        ("/api/v1/jobs/bulk", 33 * MIB, 413),
        ("/test/echo", 2 * MIB, 200),
    ):
        with edge.connect() as sock:
            sock.sendall(f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n".encode())
            if status == 200:
                sock.sendall(b" " * length)
            assert read_answer(sock).status == status
    bulk = httpx.post(
        f"http://127.0.0.1:{edge.port}/api/v1/jobs/bulk",
        content=b" " * (31 * MIB),
        headers={"Content-Type": "application/json"},
        timeout=30,
    )
    assert bulk.status_code == 401


def test_chunks_are_counted_against_the_limit_and_must_carry_something(edge):
    chunked = POST + b"Transfer-Encoding: chunked\r\n\r\n"
    assert edge.raw(chunked + b"300000\r\n").startswith(b"HTTP/1.1 413 ")
    assert edge.raw(chunked + (b"100000\r\n" + b" " * 0x100000 + b"\r\n") * 2 + b"1\r\n").startswith(b"HTTP/1.1 413 ")
    assert edge.raw(chunked + b"1\r\na\r\n" * 5000 + b"0\r\n\r\n").startswith(b"HTTP/1.1 400 ")


def test_a_body_in_chunks_arrives_whole_however_it_is_cut(edge):
    text = (
        POST
        + b'Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n3;a=b\r\nabc\r\n10 ; x="y"\r\n0123456789abcdef\r\n0\r\nX-Sum: 1\r\n\r\n'
    )
    for size in (1, 7, len(text)):
        with edge.connect() as sock:
            for start in range(0, len(text), size):
                sock.sendall(text[start : start + size])
            told = read_answer(sock).json()
            assert told["body"] == "abc0123456789abcdef"
            assert told["CONTENT_LENGTH"] == "19"


def test_pipelined_requests_are_answered_one_by_one_in_order(edge):
    requests = b"".join(
        b"POST /test/%d HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n%02d" % (number, number)
        for number in range(20)
    )
    with edge.connect() as sock:
        sock.sendall(requests + b"GET /test/slow HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        reader = sock.makefile("rb")
        text = reader.read()
        reader.close()
    told = [part for part in text.split(b"HTTP/1.1 200 OK\r\n") if part]
    assert len(told) == 21
    assert [b'"PATH_INFO": "/test/%d"' % number in part for number, part in enumerate(told[:20])] == [True] * 20


def test_a_connection_is_kept_and_http_1_0_ends_unless_asked(edge):
    with edge.connect() as sock:
        for _ in range(3):
            sock.sendall(b"GET /test/echo HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert read_answer(sock).headers["connection"] == "keep-alive"
    assert b"Connection: close" in edge.raw(b"GET /test/echo HTTP/1.0\r\n\r\n")
    assert b"Connection: keep-alive" in edge.raw(b"GET /test/echo HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")


def test_head_has_no_body_and_answers_without_length_are_chunked(edge):
    head = edge.raw(b"HEAD /test/echo HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 OK")
    assert head.endswith(b"\r\n\r\n")
    pieces = edge.raw(b"GET /test/pieces HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    assert pieces.partition(b"\r\n\r\n")[2] == b"4\r\none,\r\n4\r\ntwo,\r\n5\r\nthree\r\n0\r\n\r\n"


def test_a_client_that_expects_100_continue_is_told_to_go_on_or_refused_before_it_sends(edge):
    with edge.connect() as sock:
        sock.sendall(POST + b"Expect: 100-continue\r\nContent-Length: 2\r\n\r\n")
        assert sock.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
        sock.sendall(b"hi")
        assert read_answer(sock).json()["body"] == "hi"
    with edge.connect() as sock:
        sock.sendall(POST + b"Expect: 100-continue\r\nContent-Length: 99000000\r\n\r\n")
        assert read_answer(sock).status == 413


def test_a_defect_is_a_500_and_the_connection_ends(edge):
    received = edge.raw(b"GET /test/fails HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert received.startswith(b"HTTP/1.1 500 ")
    assert b"a defect" not in received
    assert edge.ask("/test/echo").status == 200


def test_a_stopping_process_finishes_what_runs_and_loses_no_answer(django_db_setup, tmp_path):
    with running(tmp_path) as edge:
        kept = edge.connect()
        kept.sendall(b"GET /test/echo HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert read_answer(kept).status == 200
        running_now = [edge.connect() for _ in range(12)]
        for sock in running_now:
            sock.sendall(b"GET /test/slow HTTP/1.1\r\nHost: localhost\r\n\r\n")
        time.sleep(0.3)
        edge.process.send_signal(signal.SIGTERM)
        time.sleep(0.8)
        kept.sendall(b"GET /test/echo HTTP/1.1\r\nHost: localhost\r\n\r\n")
        answer = read_answer(kept)
        assert (answer.status, answer.headers["connection"]) == (200, "close")
        for sock in running_now:
            assert read_answer(sock).status == 200
        assert edge.process.wait(10) == 0


def test_no_answer_is_lost_while_many_clients_keep_their_connections(edge):
    failures = []

    def send():
        with httpx.Client(base_url=f"http://127.0.0.1:{edge.port}", timeout=30) as client:
            for number in range(100):
                body = f"{threading.get_ident()}-{number}"
                if client.post("/test/echo", content=body).json()["body"] != body:
                    failures.append(body)

    senders = [threading.Thread(target=send) for _ in range(8)]
    for sender in senders:
        sender.start()
    for sender in senders:
        sender.join()
    assert not failures
