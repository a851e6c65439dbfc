"""The client repeats what may be repeated with the same key, waits as long as it was allowed, and keeps its token to itself."""

import itertools
import time

import httpx
import pytest

from switchyard import Client, NotConfigured, Problem, TimedOut, Unreachable
from switchyard.client import REPEATED

TOKEN = "swy_secret"
JOB = {"id": "j1", "state": "queued", "reason": {"code": "", "message": ""}}


@pytest.fixture(autouse=True)
def clock(monkeypatch):
    """A clock that only sleeping moves."""
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    monkeypatch.setattr(time, "sleep", lambda seconds: now.__setitem__(0, now[0] + seconds))
    return now


def client_of(*answers, **options):
    """A client whose requests get these answers in turn, the last one again and again, and the requests."""
    requests, turns = [], itertools.chain(answers, itertools.repeat(answers[-1]))

    def answer(request):
        requests.append(request)
        given = next(turns)
        if isinstance(given, Exception):
            raise given
        return given() if callable(given) else given

    return Client("https://gateway.example", TOKEN, transport=httpx.MockTransport(answer), **options), requests


def refusal(status, code="validation_failed", **more):
    return lambda: httpx.Response(status, json={"code": code, "detail": "No.", "request_id": "r1", **more})


def lost(request=None):
    raise httpx.ReadError("the connection was lost")


@pytest.mark.parametrize(
    "first",
    [
        lost,
        lambda: httpx.Response(200, headers={"Content-Encoding": "gzip"}, content=b"no gzip"),
        *(refusal(status, "unavailable") for status in sorted(REPEATED)),
        refusal(409, "idempotency_in_progress"),
        lambda: httpx.Response(502, text="<html>the proxy has no gateway</html>"),
    ],
)
def test_a_submission_is_repeated_with_the_same_key_and_body(first):
    client, requests = client_of(first, lambda: httpx.Response(201, json=JOB))
    assert client.submit({"name": "train"}, key="build-42") == JOB
    assert len(requests) == 2
    assert {request.headers["Idempotency-Key"] for request in requests} == {"build-42"}
    assert len({request.content for request in requests}) == 1


@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 410, 413, 415, 422])
def test_a_refusal_is_final_and_has_all_that_the_gateway_says(status):
    errors = [{"field": "name", "code": "bad_format", "detail": "must be a label"}]
    client, requests = client_of(refusal(status, errors=errors))
    with pytest.raises(Problem) as caught:
        client.submit({}, key="k")
    assert len(requests) == 1
    problem = caught.value
    assert (problem.status, problem.code, problem.errors, problem.request_id) == (
        status,
        "validation_failed",
        errors,
        "r1",
    )
    assert str(problem) == "No."


@pytest.mark.parametrize(
    "hostile", [b"", b"[]", b"null", b"<html>", b'{"errors": [1, null]}', b'{"code": 7, "errors": 3}']
)
def test_a_refusal_that_no_gateway_would_write_is_a_problem_too(hostile):
    client, _ = client_of(lambda: httpx.Response(404, content=hostile))
    with pytest.raises(Problem) as caught:
        client.job("j1")
    assert caught.value.status == 404
    assert caught.value.errors == []


def test_it_waits_as_long_as_the_gateway_asks_and_gives_up_after_its_patience(clock):
    def busy():
        return httpx.Response(429, headers={"Retry-After": "20"}, json={"code": "rate_limited", "detail": "Slower."})

    client, requests = client_of(busy, patience=70)
    with pytest.raises(Unreachable, match=r"status 429: Slower\."):
        client.get("me")
    assert len(requests) == 4
    assert 60 <= clock[0] <= 70


def test_a_wish_to_wait_for_ever_is_not_granted(clock):
    client, requests = client_of(lambda: httpx.Response(503, headers={"Retry-After": "9" * 40}, json={}), patience=100)
    with pytest.raises(Unreachable):
        client.get("me")
    assert len(requests) == 2
    assert clock[0] <= 100


def test_redirects_are_not_followed_and_name_their_goal():
    client, requests = client_of(lambda: httpx.Response(302, headers={"Location": "https://elsewhere.example/"}))
    with pytest.raises(Problem, match=r"to https://elsewhere\.example/"):
        client.get("me")
    assert len(requests) == 1


def test_a_page_that_is_no_answer_of_a_gateway_is_an_error():
    client, _ = client_of(lambda: httpx.Response(200, text="<html>Sign in to the hotel's network</html>"))
    with pytest.raises(Unreachable, match="is it a gateway"):
        client.get("me")


@pytest.mark.parametrize(
    "address",
    ["", "gateway.example", "http://gateway.example", "ftp://gateway.example", "https://", "https://a@gateway.example",
     "https://gateway.example?x", "https://gateway.example#x", "http://localhost.example"],
)  # fmt: skip
def test_the_token_goes_nowhere_where_others_could_read_it(address):
    with pytest.raises(NotConfigured):
        Client(address, TOKEN)


@pytest.mark.parametrize(
    "address", ["https://g.example/", "http://localhost:8000", "http://127.0.0.1", "http://[::1]:8000"]
)
def test_encrypted_addresses_and_this_host_are_addresses(address):
    assert Client(address, TOKEN).address == address.rstrip("/")


@pytest.mark.parametrize("token", ["", " ", "a b", "a\nb", "swy_\u00fc"])
def test_what_is_no_token_is_refused_before_it_is_sent(token):
    with pytest.raises(NotConfigured) as caught:
        Client("https://g.example", token)
    assert "swy" not in str(caught.value)


@pytest.mark.parametrize("identifier", ["../tokens", "a/b", "a?b=c", "a#b", "%2e%2e"])
def test_an_id_is_one_part_of_the_path_whatever_it_has(identifier):
    client, requests = client_of(refusal(404, "not_found"))
    with pytest.raises(Problem):
        client.act(identifier, "cancel")
    path = requests[0].url.raw_path.decode()
    assert path.startswith("/api/v1/jobs/")
    assert path.endswith("/cancel")
    assert path.count("/") == 5
    assert "?" not in path


@pytest.mark.parametrize("identifier", ["", ".", ".."])
def test_an_id_that_would_name_another_path_is_refused(identifier):
    client, requests = client_of(refusal(404))
    with pytest.raises(NotConfigured):
        client.job(identifier)
    assert not requests


def test_waiting_sees_each_state_and_ends_with_the_job(clock):
    ended = {**JOB, "state": "failed"}
    client, _ = client_of(
        *(lambda job=job: httpx.Response(200, json=job) for job in (JOB, {**JOB, "state": "running"}, ended))
    )
    states = []
    assert client.wait("j1", every=3, seen=lambda job: states.append(job["state"])) == ended
    assert states == ["queued", "running", "failed"]
    assert clock[0] == 6


def test_waiting_ends_with_its_time_and_not_before(clock):
    client, _ = client_of(lambda: httpx.Response(200, json=JOB))
    with pytest.raises(TimedOut, match="within 7 seconds"):
        client.wait("j1", timeout=7, every=5)
    assert clock[0] == 7


@pytest.mark.parametrize(("most", "sizes"), [(None, [500, 500]), (2, [2]), (3, [3, 1]), (0, [])])
def test_lists_are_read_page_by_page(most, sizes):
    pages = [{"items": [1, 2], "next": "c"}, {"items": [3, 4], "next": None}]
    client, requests = client_of(*(lambda page=page: httpx.Response(200, json=page) for page in pages))
    assert list(client.items("jobs", most=most, tenant=None)) == [1, 2, 3, 4][:most]
    assert [int(request.url.params["limit"]) for request in requests] == sizes
    assert all("tenant" not in request.url.params for request in requests)
