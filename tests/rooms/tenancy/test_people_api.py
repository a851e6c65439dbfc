"""People over HTTP: nobody outside one's own organisations is shown, named, or told apart from nobody at all."""

import json
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client

from foundation.clock import now
from tenancy.models import AuditEntry, Membership, RoleBinding, Tenant, User
from tests.builders import bearer, bind, join, make_spec, make_tenant, make_user
from tests.house.test_routes import VERBS, routes, walk
from tests.laws import third_of

pytestmark = pytest.mark.django_db
UNKNOWN = "0192e4a0-0000-7000-8000-000000000000"
FOREIGN_EMAIL = "foreign.person@elsewhere.example"


@pytest.fixture
def manager():
    """Of a team of acme, with colleagues."""
    user = make_user("manager@example.org")
    bind(user, "acme/team", "manager")
    bind(make_user("colleague@example.org"), "acme/other-team", "viewer")
    join(make_user("newcomer@example.org"), "acme")
    return user


@pytest.fixture
def foreign():
    """An admin of another organisation, whose doings fill it."""
    user = make_user(FOREIGN_EMAIL)
    bind(user, "other", "admin")
    headers = bearer(user)
    for path, body in (
        ("tenants", {"name": "team", "kind": "team", "parent": "other"}),
        ("jobs", {"tenant": "other", **make_spec()}),
        ("tokens", {"name": "x"}),
    ):
        answer = Client().post(f"/api/v1/{path}", json.dumps(body), content_type="application/json", headers=headers)
        assert answer.status_code in {201, 422}, answer.content
    return user


def ask(user, verb, path, body=None):
    raw = {} if verb == "get" else {"data": json.dumps(body or {}), "content_type": "application/json"}
    return getattr(Client(), verb)(f"/api/v1{path}", **raw, headers=bearer(user))


def told(answer):
    """What an answer says, but for the request's own id."""
    return answer.status_code, {**answer.json(), "request_id": ""}


def test_a_manager_sees_the_people_of_the_organisation_and_nobody_else(manager, foreign):
    shown = ask(manager, "get", "/people").json()["items"]
    assert {person["email"] for person in shown} == {
        "manager@example.org",
        "colleague@example.org",
        "newcomer@example.org",
    }
    assert ask(manager, "get", "/people?organisation=other").json()["items"] == []
    assert ask(manager, "get", f"/people?email={FOREIGN_EMAIL}").json()["items"] == []
    colleague = User.objects.get(email="colleague@example.org")
    assert ask(manager, "get", f"/people/{colleague.id}").json()["organisations"] == ["acme"]


def test_a_page_of_people_costs_the_same_however_many_they_are(manager, django_assert_max_num_queries):
    for _ in range(30):
        join(make_user(), "acme")
    with django_assert_max_num_queries(12):
        assert len(ask(manager, "get", "/people").json()["items"]) == 33


def test_who_binds_no_roles_sees_only_themselves(manager):
    viewer = User.objects.get(email="colleague@example.org")
    assert [person["id"] for person in ask(viewer, "get", "/people").json()["items"]] == [str(viewer.id)]
    assert ask(viewer, "get", f"/people/{manager.id}").status_code == 404
    assert ask(viewer, "get", f"/people/{viewer.id}").status_code == 200


def test_of_somebody_who_also_belongs_elsewhere_only_ones_own_part_is_seen(manager, foreign):
    join(foreign, "acme")
    seen = ask(manager, "get", f"/people/{foreign.id}").json()
    assert seen["organisations"] == ["acme"]
    assert set(ask(foreign, "get", f"/people/{foreign.id}").json()["organisations"]) == {"acme", "other"}


def person_routes():
    """(path, verb) of every route with a person's id in it, and a tenant's of the caller's own before it."""
    return [(route, verb) for route, verb, _ in routes() if "<uuid:person_id>" in route]


def test_the_walk_finds_the_routes_with_a_person():
    assert len(person_routes()) >= 4


def test_a_foreign_person_is_answered_like_an_unknown_one_on_every_route(manager, foreign):
    admin = make_user()
    bind(admin, "acme", "admin")
    acme = Tenant.objects.get(path="acme")
    for caller in (manager, admin):
        for route, verb in person_routes():
            paths = [
                route.removeprefix("/api/v1").replace("<uuid:tenant_id>", str(acme.id)).replace("<uuid:person_id>", who)
                for who in (str(foreign.id), UNKNOWN)
            ]
            answers = [told(ask(caller, verb, path)) for path in paths]
            assert answers[0] == answers[1], (route, verb)
            assert answers[0][0] == 404, (route, verb)


def test_a_foreign_person_is_answered_like_an_unknown_one_on_every_page(manager, foreign):
    client = Client()
    client.force_login(manager)
    acme = Tenant.objects.get(path="acme/team")
    found = [route for route, _ in walk() if "<uuid:person_id>" in route and not route.startswith("/api/")]
    assert len(found) >= 4
    for route in found:
        for verb in ("get", "post"):
            bodies = set()
            for who in (str(foreign.id), UNKNOWN):
                path = route.replace("<uuid:tenant_id>", str(acme.id)).replace("<uuid:person_id>", who)
                answer = getattr(client, verb)(path)
                assert answer.status_code in {404, 405}, path
                text = answer.content.decode().replace(who, "")
                bodies.add(text.split("<main")[-1].split("Request")[0].split("request")[0])
            assert len(bodies) == 1, route


@pytest.mark.law
@pytest.mark.parametrize("role", third_of(["viewer", "submitter", "manager", "finance", "admin"]))
def test_no_list_and_no_page_names_a_foreign_person(role, manager, foreign):
    caller = make_user()
    bind(caller, "acme", role)
    client = Client()
    client.force_login(caller)
    for route, verb, names_a_thing in routes():
        if verb == "get" and not names_a_thing:
            for query in ("", "?user=" + FOREIGN_EMAIL, "?actor=" + FOREIGN_EMAIL, f"?actor={foreign.id}"):
                text = b"".join(ask(caller, "get", route.removeprefix("/api/v1") + query)).decode()
                assert FOREIGN_EMAIL not in text, (route, query)
                if query and '"items"' in text and role != "viewer":
                    assert json.loads(text).get("items", []) == [], (route, query)
    for route, _ in walk():
        if "<" not in route and "(" not in route and not route.startswith(("/api/", "/admin/", "/logout")):
            assert FOREIGN_EMAIL not in client.get(route).content.decode(), route
    for tenant in Tenant.objects.filter(path__startswith="acme"):
        for page in ("", "people/"):
            assert FOREIGN_EMAIL not in client.get(f"/tenants/{tenant.id}/{page}").content.decode()


def test_every_verb_of_a_person_is_known_to_the_walk():
    assert {verb for _, verb in person_routes()} <= set(VERBS)


def test_an_invitation_is_made_listed_repeated_and_withdrawn(manager):
    path = f"/tenants/{make_tenant('acme/team').id}/invitations"
    body, key = {"email": "New@example.org", "role": "viewer"}, {"Idempotency-Key": "k"}
    post: dict[str, Any] = {
        "data": json.dumps(body),
        "content_type": "application/json",
        "headers": bearer(manager) | key,
    }
    made = Client().post(f"/api/v1{path}", **post)
    assert (made.status_code, made.json()["email"]) == (201, "new@example.org")
    assert made.json()["link"].startswith("http://testserver/sign-in/link/#swyl_")
    again = Client().post(f"/api/v1{path}", **post)
    assert again.json() == {**made.json(), "link": None}
    listed = ask(manager, "get", path).json()["items"]
    assert listed == [{name: value for name, value in made.json().items() if name != "link"}]
    assert ask(manager, "get", f"{path}/{made.json()['id']}").json() == listed[0]
    assert ask(manager, "delete", f"{path}/{made.json()['id']}").status_code == 204
    assert ask(manager, "delete", f"{path}/{made.json()['id']}").status_code == 404
    assert ask(manager, "get", path).json()["items"] == []
    secret = made.json()["link"].partition("#")[2]
    assert secret not in str(list(AuditEntry.objects.values()))
    actions = AuditEntry.objects.filter(outcome="done", tenant_id=make_tenant("acme/team").id).order_by("id")
    assert list(actions.values_list("action", flat=True)) == ["invitation.create", "invitation.withdraw"]


def test_invitations_are_for_those_who_bind_roles(manager):
    path = f"/tenants/{make_tenant('acme/team').id}/invitations"
    viewer = make_user()
    bind(viewer, "acme", "submitter")
    assert ask(viewer, "get", path).status_code == 403
    assert ask(viewer, "post", path, {"email": "a@b.co", "role": "viewer"}).status_code == 403
    assert ask(manager, "post", path, {"email": "a@b.co", "role": "admin"}).json()["code"] == "role_exceeds_own"
    late = (now() - timedelta(days=1)).isoformat()
    bad = {"email": "nobody", "role": "emperor", "expires_at": late, "user": "x"}
    assert ask(manager, "post", path, bad).status_code == 422


def test_who_is_removed_from_an_organisation_reaches_nothing_there_with_the_next_request(manager, foreign):
    admin = make_user()
    bind(admin, "acme", "admin")
    acme = Tenant.objects.get(path="acme")
    join(foreign, "acme")
    bind(foreign, "acme/team", "submitter")
    headers, session = bearer(foreign), Client()
    session.force_login(foreign)
    team = f"/api/v1/tenants/{Tenant.objects.get(path='acme/team').id}"
    assert Client().get(team, headers=headers).status_code == session.get(team).status_code == 200
    assert ask(manager, "delete", f"/tenants/{acme.id}/members/{foreign.id}").status_code == 404
    bind(manager, "acme", "manager")
    assert ask(manager, "delete", f"/tenants/{acme.id}/members/{foreign.id}").status_code == 403
    assert ask(admin, "delete", f"/tenants/{acme.id}/members/{foreign.id}").status_code == 204
    assert Client().get(team, headers=headers).status_code == session.get(team).status_code == 404
    assert Client().get("/api/v1/me", headers=headers).status_code == 200  # they still belong to the other
    entry = AuditEntry.objects.get(action="member.remove")
    assert (entry.tenant_id, entry.detail["roles"]) == (acme.id, ["submitter at acme/team"])
    assert ask(admin, "delete", f"/tenants/{acme.id}/members/{foreign.id}").status_code == 404


def test_with_the_last_organisation_tokens_and_sessions_end(manager):
    admin = make_user()
    bind(admin, "acme", "admin")
    headers, session = bearer(manager), Client()
    session.force_login(manager)
    path = f"/tenants/{Tenant.objects.get(path='acme').id}/members/{manager.id}"
    assert ask(admin, "delete", path).status_code == 204
    assert Client().get("/api/v1/me", headers=headers).status_code == 401
    assert session.get("/api/v1/me").status_code == 401


def test_one_leaves_by_oneself_but_not_as_the_last_admin(manager):
    admin = make_user()
    bind(admin, "acme", "admin")
    acme = Tenant.objects.get(path="acme")
    refused = ask(admin, "delete", f"/tenants/{acme.id}/members/{admin.id}")
    assert (refused.status_code, refused.json()["code"]) == (409, "last_admin")
    bind(manager, "acme", "admin")
    assert ask(admin, "delete", f"/tenants/{acme.id}/members/{admin.id}").status_code == 204
    assert not Membership.objects.filter(user=admin).exists()
    assert not RoleBinding.objects.filter(user=admin).exists()


def test_a_member_is_removed_from_the_organisation_not_from_a_team(manager):
    admin = make_user()
    bind(admin, "acme", "admin")
    team = Tenant.objects.get(path="acme/team")
    assert ask(admin, "delete", f"/tenants/{team.id}/members/{manager.id}").status_code == 404
