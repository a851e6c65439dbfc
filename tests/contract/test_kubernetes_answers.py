"""Which of the port's errors each answer of an API server becomes: what was surely not done, what surely was, what is open."""

import asyncio
import json
import time
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from clusters.drivers import (
    AlreadyExists,
    Ambiguous,
    AuthFailed,
    DriverError,
    NotThere,
    Refused,
    Stale,
    Throttled,
    TlsFailed,
    Unreachable,
)
from clusters.drivers.kubernetes.driver import KubernetesDriver
from tests.scripted_server import HOST, LIMITS, SECRET, Authority, Connection, job_object, listed, serving, status

from .manifests import job

CREATE = job("swy-a", "train")


def refused_with(behave, call):
    """The error that `call(driver)` raises when the server behaves like this."""

    async def body():
        async with serving(behave) as (driver, _):
            with pytest.raises(DriverError) as raised:
                await call(driver)
            return raised.value

    return asyncio.run(body())


def create(driver: KubernetesDriver):
    return driver.create_job(CREATE)


def answering(code: int, body=b"", **headers):
    async def behave(request: Connection) -> None:
        await request.answer(code, body, **headers)

    return behave


@pytest.mark.parametrize(
    ("code", "body", "kind"),
    [
        (302, b"", Refused),
        (400, status(400, "BadRequest"), Refused),
        (401, status(401, "Unauthorized"), AuthFailed),
        (403, status(403, "Forbidden"), Refused),
        (404, status(404, "NotFound"), NotThere),
        (405, b"no", Refused),
        (408, b"", Ambiguous),
        (409, status(409, "AlreadyExists"), AlreadyExists),
        (409, status(409, "Conflict"), Stale),
        (413, b"", Refused),
        (415, b"", Refused),
        (422, status(422, "Invalid", causes=[{"field": "metadata.uid"}]), Stale),
        (422, status(422, "Invalid", causes=[{"field": "spec.template"}]), Refused),
        (422, status(422, "Invalid", "the server rejected our request due to an error in our request"), Stale),
        (422, status(422, "Invalid", "a webhook says no"), Refused),
        (429, status(429, "TooManyRequests"), Throttled),
        (500, status(500, "InternalError"), Ambiguous),
        (502, b"<html>bad gateway</html>", Ambiguous),
        (503, status(503, "ServiceUnavailable"), Ambiguous),
        (504, status(504, "Timeout"), Ambiguous),
    ],
)
def test_each_refusal_is_the_ports_own(code, body, kind):
    error = refused_with(answering(code, body), create)
    assert type(error) is kind
    assert error.status == code
    assert error.reason


def test_a_throttled_call_says_for_how_long_within_reason():
    waits = [
        refused_with(answering(429, b"{}", Retry_After=text), create).retry_after_seconds
        for text in ("7", "999999999", "soon", "")
    ]
    assert waits == [7.0, 60.0, 1.0, 1.0]


def test_a_reply_that_is_lost_or_cut_leaves_a_write_open():
    async def drop(request: Connection) -> None:
        request.cut()

    async def cut(request: Connection) -> None:
        await request.send(b"HTTP/1.1 201 Created\r\nContent-Length: 500\r\n\r\n" + b'{"metadata": {"ui')
        request.cut()

    async def half_head(request: Connection) -> None:
        await request.send(b"HTTP/1.1 20")
        request.cut()

    async def no_http(request: Connection) -> None:
        await request.send(b"SSH-2.0-OpenSSH_9.2\r\n\r\n")

    async def nothing(request: Connection) -> None:
        await asyncio.sleep(30)

    for behave in (drop, cut, half_head, no_http, nothing):
        assert isinstance(refused_with(behave, create), Ambiguous)


def test_a_server_that_drips_is_given_up_in_time():
    async def behave(request: Connection) -> None:
        await request.begin()
        while True:
            await request.chunk(b" ")
            await asyncio.sleep(0.05)

    before = time.monotonic()
    assert isinstance(refused_with(behave, create), Ambiguous)
    assert time.monotonic() - before < LIMITS.whole_request_seconds + 30


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'{"metadata": 3}',
        b'{"metadata": {"uid": 5}}',
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"metadata": {"name": "train"}}',
    ],
)
def test_a_success_of_another_shape_leaves_a_write_open(body):
    assert isinstance(refused_with(answering(201, body), create), Ambiguous)


def test_the_servers_words_are_one_harmless_line():
    error = refused_with(
        answering(403, status(403, "Forbidden", f"token {SECRET} of\x1b[31m\nyou" + "x" * 9999)), create
    )
    assert SECRET not in error.reason
    assert error.reason.isprintable()
    assert len(error.reason) <= 300


def test_no_compression_is_asked_for_and_the_name_is_sent():
    async def body():
        async with serving(answering(200, {"gitVersion": "v1.36.2"})) as (driver, server):
            assert await driver.version() == "v1.36.2"
            return server.requests[0].headers, server.port

    headers, port = asyncio.run(body())
    assert headers["accept-encoding"] == "identity"
    assert headers["host"] == f"{HOST}:{port}"
    assert headers["authorization"] == f"Bearer {SECRET}"


def test_a_failed_handshake_sends_nothing_not_even_the_credential():
    async def body():
        async with serving(answering(200, {"gitVersion": "v1"})) as (_, server):
            for address in (server.address(ca_pem=Authority().pem), server.address(host="other.example")):
                driver = KubernetesDriver(address, "test", LIMITS)
                with pytest.raises(TlsFailed):
                    await create(driver)
                await driver.close()
            return server.requests

    assert asyncio.run(body()) == []


def test_a_cluster_with_its_own_authority_trusts_no_other():
    async def body():
        async with serving(answering(200)) as (driver, _):
            return len(driver._wire._tls.get_ca_certs())

    assert asyncio.run(body()) == 1


def test_a_closed_port_is_unreachable_and_so_is_one_that_never_shakes_hands():
    writers: list[asyncio.StreamWriter] = []

    async def body():
        async with serving(answering(200)) as (_, server):
            closed = server.port
        mute = await asyncio.start_server(lambda _, writer: writers.append(writer), "127.0.0.1", 0)
        for port in (closed, mute.sockets[0].getsockname()[1]):
            driver = KubernetesDriver(server.address(port=port), "test", LIMITS)
            with pytest.raises(Unreachable):
                await create(driver)
            await driver.close()
        for writer in writers:
            writer.transport.abort()
        mute.close()
        await asyncio.sleep(0.01)

    asyncio.run(body())
    assert len(writers) == 1


def test_environment_proxies_are_ignored(monkeypatch):
    for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")

    async def body():
        async with serving(answering(200, {"gitVersion": "v1"})) as (driver, _):
            return await driver.version()

    assert asyncio.run(body()) == "v1"


def test_a_connection_that_the_server_closed_while_idle_is_not_used_again():
    async def behave(request: Connection) -> None:
        await request.answer(200, {"gitVersion": "v1"}, Connection="close")
        request.writer.close()

    async def body():
        async with serving(behave) as (driver, _):
            return [await driver.version() for _ in range(5)]

    assert asyncio.run(body()) == ["v1"] * 5


def test_connections_are_kept_and_shared():
    async def body():
        ports = set()

        async def behave(request: Connection) -> None:
            ports.add(request.writer.get_extra_info("peername")[1])
            await request.answer(200, {"gitVersion": "v1"})

        async with serving(behave) as (driver, _):
            for _ in range(20):
                await driver.version()
        return len(ports)

    assert asyncio.run(body()) == 1


def test_a_list_is_read_page_by_page():
    async def behave(request: Connection) -> None:
        if "continue=two" in request.target:
            await request.answer(200, listed(job_object("b")))
        else:
            await request.answer(200, listed(job_object("a"), following="two"))

    async def body():
        async with serving(behave) as (driver, server):
            return [found.name for found in await driver.list_jobs()], server.targets()

    names, targets = asyncio.run(body())
    assert names == ["a", "b"]
    assert all(
        "limit=500" in target and "labelSelector=switchyard.dev%2Finstall%3Dtest" in target for target in targets
    )


def test_a_list_whose_token_expired_is_begun_again():
    seen: list[str] = []

    async def behave(request: Connection) -> None:
        seen.append(request.target)
        if "continue=two" in request.target:
            await request.answer(410, status(410, "Expired"))
        elif len(seen) == 1:
            await request.answer(200, listed(job_object("a"), following="two"))
        else:
            await request.answer(200, listed(job_object("a"), job_object("b")))

    async def body():
        async with serving(behave) as (driver, _):
            return [found.name for found in await driver.list_jobs()]

    assert asyncio.run(body()) == ["a", "b"]


@pytest.mark.parametrize(
    ("hours", "least", "most"), [(2, 7_195_000, 7_201_000), (-2, -7_201_000, -7_195_000), (0, 0, 0)]
)
def test_the_clocks_difference_is_known_to_within_a_second(hours, least, most):
    async def behave(request: Connection) -> None:
        there = datetime.now(UTC) + timedelta(hours=hours)  # noqa: TID251 - plays the server's clock
        await request.answer(200, {"gitVersion": "v1"}, Date=format_datetime(there, usegmt=True))

    async def body():
        async with serving(behave) as (driver, _):
            return await driver.clock_skew_ms()

    assert least <= asyncio.run(body()) <= most


def test_a_date_that_cannot_be_read_is_said_so():
    error = refused_with(answering(200, b"{}", Date="yesterday"), lambda driver: driver.clock_skew_ms())
    assert isinstance(error, Ambiguous)


def test_a_log_is_cut_where_it_was_asked_to_be():
    async def body():
        async with serving(answering(200, b"x" * 100_000 + b"\xff")) as (driver, server):
            return await driver.read_log("swy-a", "pod", tail_lines=5, limit_bytes=1000), server.targets()[0]

    text, target = asyncio.run(body())
    assert text == "x" * 1000
    assert target == "/api/v1/namespaces/swy-a/pods/pod/log?tailLines=5&limitBytes=1000"


def test_release_and_delete_carry_the_uid():
    async def body():
        async with serving(answering(200, job_object("train"))) as (driver, server):
            await driver.release_job("swy-a", "train", "uid-1", {"spec": {"nodeSelector": {"a": "b"}}})
            await driver.delete_job("swy-a", "train", "uid-1")
            return server.requests

    release, delete = asyncio.run(body())
    assert release.method == "PATCH"
    assert release.headers["content-type"] == "application/json-patch+json"
    assert json.loads(release.body) == [
        {"op": "test", "path": "/metadata/uid", "value": "uid-1"},
        {"op": "test", "path": "/metadata/generation", "value": 1},
        {"op": "replace", "path": "/spec/suspend", "value": False},
        {"op": "add", "path": "/spec/template/spec/nodeSelector", "value": {"a": "b"}},
        {"op": "add", "path": "/metadata/managedFields", "value": [{}]},
    ]
    assert "fieldManager=switchyard" in release.target
    assert delete.method == "DELETE"
    assert b'"preconditions":{"uid":"uid-1"}' in delete.body
