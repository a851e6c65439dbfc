"""The Kubernetes driver against an API server that means harm: attacks 8 and 14, and a bad cluster hurts only itself."""

import asyncio
import gzip
import itertools
import threading
import time
import tracemalloc
from uuid import uuid4

import pytest

from clusters.drivers import (
    Ambiguous,
    AuthFailed,
    DriverError,
    NotAnswered,
    NotThere,
    PortRequest,
    Refused,
    Throttled,
    Unreachable,
)
from clusters.drivers.address import ClusterAddress, Credential
from clusters.drivers.guard import FAILURES_TO_OPEN, guarded
from clusters.drivers.kubernetes.driver import KubernetesDriver
from clusters.drivers.kubernetes.wire import Limits
from federation.engine.sockets import accept_of
from tests.apiserver import api_server

MIB = 1024 * 1024
QUICK = Limits(
    connect_seconds=0.5,
    read_seconds=0.5,
    whole_request_seconds=1.0,
    whole_list_seconds=2.0,
    watch_silence_seconds=0.5,
    body_bytes=MIB,
    list_bytes=4 * MIB,
    line_bytes=64 * 1024,
    pages=50,
)


def address_of(api, *, server="", port=0, ca_pem=None):
    return ClusterAddress(
        cluster_id=uuid4(),
        name="hostile",
        server=server or api.server,
        address="127.0.0.1",
        port=port or api.port,
        ca_pem=api.ca_pem if ca_pem is None else ca_pem,
        credential=Credential("token", api.token.encode()),
    )


@pytest.fixture
def api():
    with api_server() as server:
        yield server


def ask(api, question, *, limits=QUICK, **address):
    """The answer to one question, asked over a fresh driver."""

    async def go():
        driver = KubernetesDriver(address_of(api, **address), "test", limits)
        try:
            return await question(driver)
        finally:
            await driver.close()

    return asyncio.run(go())


async def first_events(driver, count):
    found = []
    async for event in driver.watch_pods():
        found.append(event)
        if len(found) == count:
            break
    return found


def page(items, following=""):
    return {"metadata": {"resourceVersion": "1", "continue": following}, "items": items}


def chunked(handler, pieces):
    """Sends a 200 in chunks, for as long as the client listens."""
    handler.send_response_only(200)
    handler.send_header("Transfer-Encoding", "chunked")
    handler.end_headers()
    try:
        for piece in pieces:
            handler.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
            handler.wfile.flush()
        handler.wfile.write(b"0\r\n\r\n")
    except OSError:
        handler.close_connection = True


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_attack_08_no_redirect_is_followed(api, status):
    with api_server() as inside:
        api.answers["/version"] = lambda handler: handler.say(status, {}, {"Location": f"{inside.server}/version"})
        with pytest.raises(DriverError):
            ask(api, lambda driver: driver.version())
        assert inside.seen == []


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_attack_08_no_redirect_of_a_forwarded_port_is_followed(api, status):
    path = "/api/v1/namespaces/swy-x/pods/lone/portforward"
    with api_server() as inside:
        api.answers[path] = lambda handler: handler.say(status, {}, {"Location": f"{inside.server}{path}"})
        with pytest.raises(DriverError, match="the connection broke"):
            ask(api, lambda driver: driver.ask_pod("swy-x", "lone", 8888, PortRequest("GET", "/", [("Host", "x")])))
        assert inside.seen == []
        assert api.seen


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (401, AuthFailed),
        (403, Refused),
        (404, NotThere),
        (429, Throttled),
        (500, Ambiguous),
        (503, Ambiguous),
        (200, Refused),
    ],
)
def test_a_port_that_is_not_forwarded_is_an_error_of_the_port(api, status, error):
    api.answers["/api/v1/namespaces/swy-x/pods/lone/portforward"] = lambda handler: handler.say(status, {})
    with pytest.raises(error):
        ask(api, lambda driver: driver.ask_pod("swy-x", "lone", 8888, PortRequest("GET", "/", [("Host", "x")])))


def test_a_port_that_is_not_forwarded_for_now_says_for_how_long(api):
    path = "/api/v1/namespaces/swy-x/pods/lone/portforward"
    api.answers[path] = lambda handler: handler.say(429, {}, {"Retry-After": "7"})
    with pytest.raises(Throttled) as throttled:
        ask(api, opened_port)
    assert throttled.value.retry_after_seconds == 7


async def opened_port(driver):
    """What is read from a forwarded port, and whether it can still be written to."""
    async with driver.open_port("swy-x", "lone", 8888) as port:
        said = await asyncio.wait_for(port.read(), 5)
        is_broken = False
        try:
            for _ in range(50):
                await port.write(b"x" * 65_536)
                await asyncio.sleep(0.01)
        except NotAnswered:
            is_broken = True
        return said, is_broken


@pytest.mark.parametrize(
    "broken",
    [
        b"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 429 Too Many Requests\r\nRetry-After: 1\r\n\r\n",
        b"\x88\x02\x03\xf3",
        b"\x82\x05\x00",
        b"",
    ],
    ids=["500", "429", "closed with 1011", "cut in a frame", "cut"],
)
def test_an_api_server_that_fails_in_the_middle_of_a_forwarded_port_ends_it(api, broken):
    def switches(handler):
        handler.send_response_only(101)
        accept = accept_of(handler.headers["Sec-WebSocket-Key"])
        protocol = ("Sec-WebSocket-Protocol", "v4.channel.k8s.io")
        for name, value in (
            ("Upgrade", "websocket"),
            ("Connection", "Upgrade"),
            ("Sec-WebSocket-Accept", accept),
            protocol,
        ):
            handler.send_header(name, value)
        handler.end_headers()
        handler.wfile.write(b"\x82\x03\x00\xb8\x22" + broken)
        handler.close_connection = True

    api.answers["/api/v1/namespaces/swy-x/pods/lone/portforward"] = switches
    assert ask(api, opened_port) == (b"", True)


def test_attack_14_a_body_that_is_too_large_is_cut_off(api):
    sent = []

    def endless():
        while True:
            sent.append(1)
            yield b"[" * 65_536

    api.answers["/version"] = lambda handler: chunked(handler, endless())
    with pytest.raises(Ambiguous, match="larger than"):
        ask(api, lambda driver: driver.version())
    assert len(sent) < 200


def test_attack_14_an_announced_length_is_not_believed(api):
    def boast(handler):
        handler.send_response_only(200)
        handler.send_header("Content-Length", str(2 * 1024**3))
        handler.end_headers()
        handler.close_connection = True

    api.answers["/version"] = boast
    with pytest.raises(Ambiguous):
        ask(api, lambda driver: driver.version())


def test_attack_14_an_endless_continue_ends(api):
    pods = [{"metadata": {"name": f"p{n}", "namespace": "x", "uid": f"u{n}"}} for n in range(10)]
    api.answers["/api/v1/pods"] = lambda handler: handler.say(200, page(pods, "more"))
    with pytest.raises(Ambiguous, match="the list"):
        ask(api, lambda driver: first_events(driver, 1))
    assert len([path for path in api.paths if path.startswith("/api/v1/pods")]) <= 3 * QUICK.pages


def test_attack_14_a_list_of_many_full_pages_is_cut_by_its_sum(api):
    pods = [{"metadata": {"name": "p", "namespace": "x", "uid": "u"}, "unread": "x" * 200_000}] * 4
    tokens = itertools.count()
    api.answers["/api/v1/pods"] = lambda handler: handler.say(200, page(pods, f"more-{next(tokens)}"))
    with pytest.raises(Ambiguous, match=r"the list is larger than \d+ bytes"):
        ask(api, lambda driver: first_events(driver, 1))


def test_attack_14_a_compressed_answer_is_not_unpacked(api):
    bomb = gzip.compress(b"[" * (64 * MIB))
    api.answers["/version"] = lambda handler: handler.say(200, bomb, {"Content-Encoding": "gzip"})
    tracemalloc.start()
    try:
        with pytest.raises(Ambiguous, match="encoding"):
            ask(api, lambda driver: driver.version())
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 16 * MIB


def test_attack_14_a_byte_now_and_then_does_not_hold_a_request(api):
    stop = threading.Event()

    def drip():
        while not stop.wait(0.2):
            yield b" "

    api.answers["/version"] = lambda handler: chunked(handler, drip())
    before = time.monotonic()
    with pytest.raises(Ambiguous, match="within"):
        ask(api, lambda driver: driver.version())
    stop.set()
    assert time.monotonic() - before < 30


def test_attack_14_a_server_that_accepts_and_says_nothing_is_given_up(api):
    stop = threading.Event()
    api.answers["/version"] = lambda handler: stop.wait(60)
    before = time.monotonic()
    with pytest.raises(Ambiguous):
        ask(api, lambda driver: driver.version())
    stop.set()
    assert time.monotonic() - before < 30


def test_attack_14_a_watch_line_without_end_is_cut_off_and_tried_ever_less_often(api):
    sent = []

    def endless():
        while True:
            sent.append(8192)
            yield b"x" * 8192

    def answer(handler):
        if "watch=1" in handler.path:
            chunked(handler, endless())
        else:
            handler.say(200, page([]))

    api.answers["/api/v1/pods"] = answer
    before = time.monotonic()
    events = ask(api, lambda driver: first_events(driver, 4))
    assert [event.kind for event in events] == ["listed"] * 4
    assert time.monotonic() - before > (0.25 + 0.5 + 1) / 2
    assert sum(sent) < 3 * 8 * MIB


def test_attack_14_a_silent_watch_is_listed_anew(api):
    def answer(handler):
        if "watch=1" in handler.path:
            handler.send_response_only(200)
            handler.send_header("Transfer-Encoding", "chunked")
            handler.end_headers()
            threading.Event().wait(2)
        else:
            handler.say(200, page([]))

    api.answers["/api/v1/pods"] = answer
    events = ask(api, lambda driver: first_events(driver, 2))
    assert [event.kind for event in events] == ["listed", "listed"]


@pytest.mark.parametrize(
    "body",
    [b"", b"null", b"[]", b"{", b"\xff\xfe", b'{"gitVersion": 7}', b"[" * 100_000, b'{"gitVersion": "' + b"9" * 100],
)
def test_attack_14_junk_is_a_driver_error_and_nothing_else(api, body):
    api.answers["/version"] = lambda handler: handler.say(200, body)
    with pytest.raises(Ambiguous):
        ask(api, lambda driver: driver.version())


def test_attack_17_what_the_server_says_back_does_not_carry_our_credential(api):
    api.answers["/version"] = lambda handler: handler.say(403, {"message": f"you sent {api.token}\r\n\x1b[31m"})
    with pytest.raises(Refused) as caught:
        ask(api, lambda driver: driver.version())
    assert api.token not in str(caught.value)
    assert caught.value.reason.isprintable()


def test_only_the_pinned_address_is_called_whatever_the_name_says(api):
    with api_server("pinned.example") as named:
        where = {"server": f"https://pinned.example:{named.port}", "port": named.port, "ca_pem": named.ca_pem}
        assert ask(named, lambda driver: driver.version(), **where) == "v1.36.2"
        assert named.seen[0][2]["Host"] == f"pinned.example:{named.port}"


def test_a_cluster_that_fails_again_and_again_is_not_called_for_a_while(api):
    api.answers["/version"] = lambda handler: handler.say(500, {"message": "broken"})

    async def go():
        driver = guarded(KubernetesDriver(address_of(api), "test", QUICK))
        for _ in range(FAILURES_TO_OPEN):
            with pytest.raises(Ambiguous):
                await driver.version()
        calls = len(api.seen)
        with pytest.raises(Unreachable, match="calls are paused after"):
            await driver.version()
        await driver.close()
        return calls

    assert asyncio.run(go()) == len(api.seen) == FAILURES_TO_OPEN


def test_one_hanging_cluster_of_twenty_does_not_slow_the_others():
    """Invariant 23. The others' slowest call stays below the hanging one's time limit, however busy the machine."""
    limits = Limits(connect_seconds=20, read_seconds=4, whole_request_seconds=30)
    stop = threading.Event()
    with api_server() as good, api_server() as bad:
        bad.answers["/version"] = lambda _: stop.wait(30)

        async def timed(driver):
            before = time.monotonic()
            await driver.version()
            return time.monotonic() - before

        async def go():
            drivers = [guarded(KubernetesDriver(address_of(good), "test", limits)) for _ in range(19)]
            hanging = guarded(KubernetesDriver(address_of(bad), "test", limits))
            await asyncio.gather(*(timed(driver) for driver in drivers))
            stuck = [asyncio.create_task(timed(hanging)) for _ in range(30)]
            times = [await timed(driver) for driver in drivers for _ in range(5)]
            outcomes = await asyncio.gather(*stuck, return_exceptions=True)
            for driver in (*drivers, hanging):
                await driver.close()
            return times, outcomes

        times, outcomes = asyncio.run(go())
        stop.set()
    assert max(times) < limits.read_seconds
    assert all(isinstance(outcome, DriverError) for outcome in outcomes)
