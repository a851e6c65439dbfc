"""What every interface does with requests that are not as they should be. Never a 500, never another media type."""

import json

import pytest
from django.db import OperationalError

from tests.builders import bearer, bind, make_user

pytestmark = pytest.mark.django_db
TENANTS = "/api/v1/tenants"
GOOD = b'{"name": "a", "kind": "team", "parent": "acme"}'


@pytest.fixture
def send(client):
    user = make_user()
    bind(user, "acme", "admin")
    headers = bearer(user)

    def call(body, content_type="application/json", method="post", path=TENANTS, **other):
        return client.generic(method.upper(), path, body, content_type=content_type, headers={**headers, **other})

    return call


def problem(response, status, code):
    assert response.status_code == status, response.content
    assert response["Content-Type"] == "application/problem+json"
    body = json.loads(response.content)
    assert set(body) == {"type", "title", "status", "code", "detail", "request_id", "errors"}
    assert (body["status"], body["code"]) == (status, code)
    assert body["type"].endswith(f"/{code}")
    assert body["request_id"] == response["X-Request-Id"]
    return body


@pytest.mark.parametrize(
    "body",
    [b"{", b"\xef\xbb\xbf" + GOOD, GOOD.decode().encode("utf-16"), b'{"name": "a", "name": "b"}', b'{"name": NaN}', b'{"name": 1e400}',
     b'{"name": ' + b"9" * 5000 + b"}", b'{"name": "\\ud800"}', b'{"name": "\\u0000"}', b"[" * 100_000, b"\x00", b"+AHs-+AH0-"],
)  # fmt: skip
def test_a_malformed_body_is_400(send, body):
    problem(send(body), 400, "malformed_body")


@pytest.mark.parametrize(
    "content_type",
    ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "application/xml", "application/json; charset=utf-7",
     "application/json; charset=utf-16", 'application/json;charset="latin-1"', "application/jsonp", "nonsense", "*/*", "application/*", ""],
)  # fmt: skip
def test_a_body_of_another_kind_is_415(send, content_type):
    problem(send(GOOD, content_type), 415, "unsupported_media_type")


@pytest.mark.parametrize(
    "content_type",
    ["application/json", "application/json; charset=UTF-8", 'application/json;charset="utf8"', "APPLICATION/JSON"],
)
def test_json_in_utf_8_is_taken(send, content_type):
    assert send(GOOD, content_type).status_code == 201


def test_a_body_too_large_is_413_before_it_is_parsed(send):
    problem(send(b'"' + b"x" * (2 * 1024 * 1024) + b'"'), 413, "payload_too_large")


@pytest.mark.parametrize("body", [b"[]", b'"text"', b"5", b"null", b"true"])
def test_a_body_that_is_no_object_is_422(send, body):
    problem(send(body), 422, "validation_failed")


def test_no_body_at_all_names_the_missing_fields(send):
    assert {error["code"] for error in problem(send(b""), 422, "validation_failed")["errors"]} == {"required"}


@pytest.mark.parametrize("method", ["put", "delete", "patch", "options", "trace", "propfind"])
def test_a_method_that_is_not_taken_is_405_and_says_which_are(send, method):
    response = send(b"", method=method)
    problem(response, 405, "method_not_allowed")
    assert {"GET", "POST"} <= set(response["Allow"].replace(" ", "").split(","))


@pytest.mark.parametrize("accept", ["text/html", "application/xml", "text/csv"])
def test_an_answer_of_another_kind_is_406(send, accept):
    problem(send(b"", method="get", Accept=accept), 406, "not_acceptable")


@pytest.mark.parametrize(
    "path",
    ["/api/", "/api/v1/", "/api/v1/nothing", "/api/v2/tenants", "/api/v1/tenants/7", "/api/v1/tenants/not-a-uuid", "/api/v1/tenants/",
     "/api/v1/tenants/01234567-89ab-7def-8123-456789abcdef/nothing", "/api/v1/%00", "/api/v1/tenants/..%2f..%2fadmin", "/api/v1/" + "x" * 3000],
)  # fmt: skip
@pytest.mark.parametrize("method", ["get", "post", "delete"])
def test_a_path_that_leads_nowhere_is_a_404_problem(send, path, method):
    problem(send(b"{}", method=method, path=path), 404, "not_found")


def test_a_head_is_answered_like_a_get(send):
    response = send(b"", method="head")
    assert response.status_code == 200
    assert response.content == b""


def test_a_forged_host_is_refused_as_a_problem(client):
    problem(client.get(TENANTS, headers={"Host": "evil.example"}), 400, "malformed_body")


def test_a_method_override_and_impersonation_are_ignored(send):
    response = send(
        GOOD, **{"X-HTTP-Method-Override": "DELETE", "Impersonate-User": "root", "X-Forwarded-User": "root"}
    )
    assert response.status_code == 201


@pytest.mark.parametrize("given", ["abc-123", "x" * 64])
def test_a_request_id_is_taken_over(client, given):
    assert client.get(TENANTS, headers={"X-Request-Id": given})["X-Request-Id"] == given


@pytest.mark.parametrize("given", ["", "x" * 65, "a b", "<script>", "ü"])
def test_a_request_id_that_is_none_is_replaced(client, given):
    assert len(client.get(TENANTS, headers={"X-Request-Id": given})["X-Request-Id"]) == 36


def test_a_defect_is_a_500_problem_without_detail(client, monkeypatch, send):
    def broken(*_, **__):
        raise RuntimeError("the secret is 42")

    monkeypatch.setattr("tenancy.api.tenants.visible_tenants", broken)
    client.raise_request_exception = False
    response = send(b"", method="get")
    body = problem(response, 500, "internal_error")
    assert "42" not in body["detail"]
    assert body["errors"] == []


def test_a_wait_for_a_lock_that_took_too_long_is_429(monkeypatch, send):
    def busy(*_, **__):
        raise OperationalError("canceling statement due to lock timeout")

    monkeypatch.setattr("tenancy.api.tenants.create_tenant", busy)
    response = send(GOOD)
    problem(response, 429, "busy")
    assert response["Retry-After"] == "1"


def test_a_database_that_goes_away_in_the_middle_of_a_write_is_503(monkeypatch, send):
    """The refusal cannot be audited either: that must not become a defect of its own."""

    def gone(*_, **__):
        raise OperationalError("server closed the connection unexpectedly")

    monkeypatch.setattr("tenancy.api.tenants.create_tenant", gone)
    monkeypatch.setattr("tenancy.api.views.record_audit", gone)
    response = send(GOOD)
    problem(response, 503, "unavailable")
    assert response["Retry-After"] == "2"
