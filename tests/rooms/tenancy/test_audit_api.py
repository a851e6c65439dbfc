import pytest

from tenancy.models import AuditEntry
from tenancy.operations import record_audit
from tenancy.queries import SYSTEM
from tests.builders import bearer, bind, make_tenant, make_user

from .test_tenants_api import Caller, problem

pytestmark = pytest.mark.django_db(transaction=True)
AUDIT = "/api/v1/audit"


@pytest.fixture(autouse=True)
def trail():
    for path in ("acme", "acme/a", "acme/b", "other"):
        record_audit(SYSTEM, "thing.change", object_kind="thing", object_id=path, tenant_id=make_tenant(path).id)
    record_audit(SYSTEM, "thing.change", object_kind="thing", object_id="nobody's")


def seen(caller, **query):
    return [item["object"]["id"] for item in caller("get", AUDIT, query).json()["items"]]


@pytest.mark.parametrize("role", ["manager", "finance", "admin"])
def test_the_trail_of_ones_own_tenants_is_shown_newest_first(client, role):
    assert seen(Caller(client, role)) == ["acme/b", "acme/a", "acme"]
    assert seen(Caller(client, role, "acme/a")) == ["acme/a"]


@pytest.mark.parametrize("role", ["viewer", "submitter"])
def test_a_role_without_view_audit_sees_only_its_own_doings(client, role):
    caller = Caller(client, role)
    assert seen(caller) == []
    caller("post", "/api/v1/tokens", {"name": "x"})
    assert [item["action"] for item in caller("get", AUDIT).json()["items"]] == ["token.create"]


def test_an_operator_sees_everything(client):
    assert len(seen(Caller(client, is_superuser=True))) == 5


def test_entries_are_found_by_actor_object_action_tenant_and_outcome(client):
    caller = Caller(client)
    caller("post", "/api/v1/tenants", {"name": "c", "kind": "team", "parent": "acme"})
    caller("post", "/api/v1/tenants", {"name": "c", "kind": "team", "parent": "acme"})
    made = AuditEntry.objects.get(action="tenant.create")
    assert seen(caller, actor=caller.user.email, outcome="done") == [made.object_id]
    assert seen(caller, actor=str(caller.user.id), action="tenant.create") == [made.object_id]
    assert seen(caller, object="thing") == ["acme/b", "acme/a", "acme"]
    assert seen(caller, object=made.object_id) == [made.object_id]
    assert seen(caller, tenant="acme/a") == ["acme/a"]
    assert seen(caller, tenant="other") == []
    assert seen(caller, action="nothing.at_all") == []
    problem(caller("get", AUDIT, {"outcome": "odd"}), 422, "validation_failed", "outcome")


def test_an_entry_shows_who_what_and_its_place_in_the_chain(client):
    caller = Caller(client)
    caller("post", "/api/v1/tenants", {"name": "c", "kind": "team", "parent": "acme"}, **{"X-Request-Id": "my-request"})
    item = caller("get", AUDIT, {"action": "tenant.create"}).json()["items"][0]
    assert item["actor"]["name"] == caller.user.email
    assert item["actor"]["token_id"] == str(caller.user.tokens.get().id)
    assert item["object"]["kind"] == "tenant"
    assert item["detail"]["path"] == "acme/c"
    assert item["request_id"] == "my-request"
    assert item["position"] == 6


def test_the_trail_is_read_only(client):
    caller = Caller(client)
    for method in ("post", "put", "patch", "delete"):
        response = caller(method, AUDIT, {})
        problem(response, 405, "method_not_allowed")
        assert "GET" in response["Allow"]


def test_a_narrow_token_still_reads_the_trail(client):
    user = make_user()
    bind(user, "acme", "manager")
    assert len(client.get(AUDIT, headers=bearer(user, "read")).json()["items"]) == 3
