from datetime import timedelta
from typing import Any

import pytest
from django.test import Client

from foundation.clock import now
from tenancy.models import ApiToken, AuditEntry, User
from tests.builders import bearer, bind, make_token, make_user

pytestmark = pytest.mark.django_db
ME = "/api/v1/me"


def refused(response, status, code):
    assert response.status_code == status, response.content
    assert response["Content-Type"] == "application/problem+json"
    assert response.json()["code"] == code
    assert response.json()["request_id"] == response["X-Request-Id"]
    return response


def test_a_token_acts_for_its_user(client):
    user = make_user("ann@example.org")
    bind(user, "acme/research", "submitter")
    answer = client.get(ME, headers=bearer(user, "read", "write")).json()
    assert answer["user"]["email"] == "ann@example.org"
    assert [(role["tenant"], role["role"]) for role in answer["roles"]] == [("acme/research", "submitter")]
    assert answer["token"]["scopes"] == ["read", "write"]


def test_without_a_token_nobody_is_let_in(client):
    response = refused(client.get(ME), 401, "not_authenticated")
    assert response["WWW-Authenticate"].startswith("Bearer")


@pytest.mark.parametrize(
    "header",
    ["Bearer", "Bearer ", "Bearer swy_", "Bearer nonsense", "Basic dXNlcjpwYXNz", "Bearer swy_" + "a" * 43, "Bearer swy_a b", "x" * 5000,
     "Bearer swy_" + "é" * 43, "Token swy_" + "a" * 43],
)  # fmt: skip
def test_what_is_no_token_is_refused(client, header):
    refused(client.get(ME, headers={"Authorization": header}), 401, "not_authenticated")


def test_revoked_expired_and_inactive_are_refused_alike(client):
    bodies = []
    for fields in ({"revoked_at": now()}, {"expires_at": now() - timedelta(seconds=1)}, {}):
        user = make_user()
        headers = bearer(user, **fields)
        if not fields:
            User.objects.filter(id=user.id).update(is_active=False)
        response = refused(client.get(ME, headers=headers), 401, "not_authenticated")
        bodies.append({**response.json(), "request_id": ""})
    assert bodies[0] == bodies[1] == bodies[2]


def test_a_token_in_the_address_is_refused(client):
    refused(client.get(f"{ME}?token={make_token(make_user())}"), 401, "not_authenticated")


def test_a_bad_token_is_not_forgiven_for_a_good_session(client):
    client.force_login(make_user())
    refused(client.get(ME, headers={"Authorization": "Bearer swy_" + "a" * 43}), 401, "not_authenticated")


def test_the_last_use_is_noted_at_most_once_a_minute(client, django_assert_num_queries, time_machine):
    time_machine.move_to("2026-03-01T12:00:00Z", tick=False)
    headers = bearer(make_user())
    client.get(ME, headers=headers)
    first = ApiToken.objects.get().last_used_at
    time_machine.shift(59)
    with django_assert_num_queries(2):
        client.get(ME, headers=headers)
    assert ApiToken.objects.get().last_used_at == first == now() - timedelta(seconds=59)
    time_machine.shift(2)
    client.get(ME, headers=headers)
    assert ApiToken.objects.get().last_used_at == now()


def test_finding_out_who_asks_is_one_query(client, django_assert_num_queries):
    headers = bearer(make_user(), last_used_at=now())
    with django_assert_num_queries(2):
        client.get("/api/v1/tokens", headers=headers)


def test_a_session_writes_only_with_its_csrf_token(settings):
    browser = Client(enforce_csrf_checks=True)
    browser.force_login(make_user())
    assert browser.get(ME).status_code == 200
    body: dict[str, Any] = {"data": {"name": "x"}, "content_type": "application/json"}
    refused(browser.post("/api/v1/tokens", **body), 403, "csrf_failed")
    refused(browser.post("/api/v1/tokens", '{"name": "x"}', content_type="text/plain"), 403, "csrf_failed")
    browser.cookies[settings.CSRF_COOKIE_NAME] = "a" * 32
    assert browser.post("/api/v1/tokens", headers={"X-CSRFToken": "a" * 32}, **body).status_code == 201


def test_a_token_needs_no_csrf_token():
    browser = Client(enforce_csrf_checks=True)
    response = browser.post(
        "/api/v1/tokens", {"name": "x"}, content_type="application/json", headers=bearer(make_user())
    )
    assert response.status_code == 201


def test_a_refused_write_is_audited_without_what_was_sent(client):
    user = make_user()
    bind(user, "acme", "admin")
    headers = bearer(user)
    refused(
        client.post(
            "/api/v1/tenants",
            {"name": "s3cret!", "password": "hunter2"},
            content_type="application/json",
            headers=headers,
        ),
        422,
        "validation_failed",
    )
    entry = AuditEntry.objects.get(outcome="refused")
    assert entry.actor_id == user.id
    assert entry.detail["code"] == "validation_failed"
    assert set(entry.detail["fields"]) == {"name", "kind", "password"}
    assert "hunter2" not in str(entry.detail)
    assert "s3cret" not in str(entry.detail)


def test_a_refused_read_and_a_strangers_write_leave_the_trail_alone(client):
    client.get("/api/v1/tenants?nonsense=1", headers=bearer(make_user()))
    client.post("/api/v1/tenants", {}, content_type="application/json")
    assert AuditEntry.objects.count() == 0
