import hashlib
import uuid
from datetime import timedelta

import pytest

from foundation.clock import now
from tenancy.models import ApiToken, AuditEntry
from tests.builders import make_user

from .test_tenants_api import Caller, problem

pytestmark = pytest.mark.django_db
TOKENS = "/api/v1/tokens"


def test_a_token_is_shown_once_and_works_until_revoked(client):
    caller = Caller(client)
    made = caller("post", TOKENS, {"name": "ci", "scopes": ["read"], "expires_at": "2099-01-01T00:00:00Z"}).json()
    secret = made.pop("secret")
    assert len(secret) == 4 + 43
    assert made["prefix"] == secret[:12]
    token = ApiToken.objects.get(id=made["id"])
    assert bytes(token.digest) == hashlib.sha256(secret.encode()).digest()
    assert secret not in str(ApiToken.objects.filter(id=token.id).values())
    headers = {"Authorization": f"Bearer {secret}"}
    assert client.get("/api/v1/me", headers=headers).json()["token"]["name"] == "ci"
    listed = next(item for item in caller("get", TOKENS).json()["items"] if item["id"] == made["id"])
    assert "secret" not in listed
    assert "digest" not in listed
    assert caller("delete", f"{TOKENS}/{made['id']}").status_code == 204
    assert client.get("/api/v1/me", headers=headers).status_code == 401
    assert caller("delete", f"{TOKENS}/{made['id']}").status_code == 204
    assert caller("get", f"{TOKENS}/{made['id']}").json()["revoked_at"].endswith("Z")
    assert list(AuditEntry.objects.order_by("id").values_list("action", flat=True)) == ["token.create", "token.revoke"]
    assert secret not in str(list(AuditEntry.objects.values()))


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "name"), ({"name": ""}, "name"), ({"name": "x" * 101}, "name"), ({"name": 5}, "name"), ({"name": "x", "scopes": ["root"]}, "scopes[0]"),
        ({"name": "x", "scopes": "read"}, "scopes"), ({"name": "x", "scopes": ["read"] * 4}, "scopes"), ({"name": "x", "user": "root"}, "user"),
        ({"name": "x", "expires_at": "2001-01-01T00:00:00Z"}, "expires_at"), ({"name": "x", "secret": "swy_mine"}, "secret"),
    ],
)  # fmt: skip
def test_the_field_at_fault_is_named(client, body, field):
    answer = problem(Caller(client)("post", TOKENS, body), 422, "validation_failed", field)
    assert answer["errors"][0]["code"]


def test_a_body_that_is_no_object_is_refused(client):
    answer = problem(Caller(client)("post", TOKENS, ["name"]), 422, "validation_failed", "")
    assert answer["errors"][0]["code"] == "not_an_object"


def test_a_token_makes_none_that_reaches_further_or_lasts_longer(client):
    narrow = Caller(client, "admin", "acme", "write")
    problem(narrow("post", TOKENS, {"name": "x", "scopes": ["write"]}), 403, "permission_denied")
    admin = Caller(client, "admin", "acme", "admin")
    assert admin("post", TOKENS, {"name": "x"}).status_code == 201
    ApiToken.objects.filter(user=admin.user, name="test").update(expires_at=now() + timedelta(hours=1))
    problem(admin("post", TOKENS, {"name": "y"}), 403, "scope_exceeds_own")
    later = (now() + timedelta(hours=2)).isoformat()
    problem(admin("post", TOKENS, {"name": "y", "expires_at": later}), 403, "scope_exceeds_own")
    sooner = (now() + timedelta(minutes=2)).isoformat()
    assert admin("post", TOKENS, {"name": "y", "expires_at": sooner}).status_code == 201


def test_a_narrow_token_revokes_itself_and_no_other(client):
    caller = Caller(client, "admin", "acme", "read")
    own = ApiToken.objects.get()
    other = ApiToken.objects.create(user=caller.user, name="other", prefix="swy_x", digest=b"x" * 32)
    problem(caller("delete", f"{TOKENS}/{other.id}"), 403, "permission_denied")
    assert caller("delete", f"{TOKENS}/{own.id}").status_code == 204
    problem(caller("get", TOKENS), 401, "not_authenticated")


def test_a_foreign_token_answers_as_an_absent_one(client):
    caller = Caller(client)
    foreign = ApiToken.objects.create(user=make_user(), name="other", prefix="swy_x", digest=b"x" * 32)
    for method in ("get", "delete"):
        bodies = [
            problem(caller(method, f"{TOKENS}/{token_id}"), 404, "not_found") for token_id in (foreign.id, uuid.uuid4())
        ]
        assert bodies[0] | {"request_id": ""} == bodies[1] | {"request_id": ""}
    assert str(foreign.id) not in caller("get", TOKENS).content.decode()
    foreign.refresh_from_db()
    assert foreign.revoked_at is None


def test_a_user_has_at_most_a_hundred_live_tokens(client):
    caller = Caller(client)
    ApiToken.objects.bulk_create(
        ApiToken(user=caller.user, name="x", prefix="x", digest=number.to_bytes(32)) for number in range(99)
    )
    problem(caller("post", TOKENS, {"name": "x"}), 409, "too_many_tokens")
    ApiToken.objects.filter(name="x").update(revoked_at=now())
    assert caller("post", TOKENS, {"name": "x"}).status_code == 201
