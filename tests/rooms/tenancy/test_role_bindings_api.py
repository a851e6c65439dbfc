from datetime import timedelta

import pytest
from django.contrib.auth.models import Group

from foundation.clock import now
from tenancy.engine.roles import GRANTS, Permission, Role
from tenancy.models import AuditEntry, RoleBinding, Tenant
from tests.builders import bind, join, make_tenant, make_user

from .test_tenants_api import Caller, one, problem

pytestmark = pytest.mark.django_db


def bindings(path="acme"):
    return f"{one(make_tenant(path))}/role-bindings"


def test_a_role_is_bound_seen_and_taken_away(client):
    admin, ben = Caller(client), join(make_user("ben@example.org"), "acme")
    make_tenant("acme/a")
    until = now() + timedelta(days=1)
    made = admin(
        "post", bindings("acme/a"), {"user": "Ben@example.org", "role": "submitter", "expires_at": until.isoformat()}
    )
    assert made.status_code == 201
    answer = made.json()
    assert (answer["user"], answer["group"], answer["role"], answer["tenant"]) == (
        "ben@example.org",
        None,
        "submitter",
        "acme/a",
    )
    assert admin("get", bindings("acme/a")).json()["items"] == [answer]
    assert admin("get", f"{bindings('acme/a')}/{answer['id']}").json() == answer
    problem(admin("delete", f"{bindings()}/{answer['id']}"), 404, "not_found")
    assert admin("delete", f"{bindings('acme/a')}/{answer['id']}").status_code == 204
    assert not RoleBinding.objects.filter(user=ben).exists()
    assert list(AuditEntry.objects.filter(outcome="done").values_list("action", flat=True)) == [
        "role.bind",
        "role.unbind",
    ]


def test_a_group_is_bound_by_name_and_a_user_by_id(client):
    admin, ben = Caller(client, is_staff=True), join(make_user(), "acme")
    Group.objects.create(name="vision")
    problem(admin("post", bindings(), {"group": "nobodies", "role": "viewer"}), 422, "validation_failed", "group")
    assert admin("post", bindings(), {"group": "vision", "role": "viewer"}).json()["group"] == "vision"
    assert admin("post", bindings(), {"user": str(ben.id), "role": "viewer"}).json()["user"] == ben.email


@pytest.mark.parametrize(
    ("body", "fields"),
    [
        ({"role": "viewer"}, ["user"]),
        ({"role": "viewer", "user": "a@b.c", "group": "g"}, ["user"]),
        ({"role": "viewer", "user": "nobody@example.org"}, ["user"]),
        ({"role": "viewer", "user": ""}, ["user"]),
        ({"role": "emperor", "user": "a@b.c"}, ["role"]),
        ({"user": "a@b.c"}, ["role"]),
        ({"role": "viewer", "user": "a@b.c", "expires_at": "tomorrow"}, ["expires_at"]),
        ({"role": "viewer", "user": "a@b.c", "expires_at": "2030-01-01T00:00:00"}, ["expires_at"]),
        ({"role": "viewer", "user": "a@b.c", "expires_at": "0001-01-01T00:00:00+14:00"}, ["expires_at"]),
        ({"role": "viewer", "user": "a@b.c", "expires_at": "2001-01-01T00:00:00Z"}, ["expires_at"]),
        (
            {"role": "viewer", "user": "a@b.c", "tenant": "other", "created_at": "2001-01-01T00:00:00Z"},
            ["tenant", "created_at"],
        ),
    ],
)
def test_every_field_at_fault_is_named(client, body, fields):
    join(make_user("a@b.c"), "acme")
    problem(Caller(client)("post", bindings(), body), 422, "validation_failed", *fields)


def test_only_operators_bind_groups_so_that_nobody_else_learns_their_names(client):
    Group.objects.create(name="vision")
    admin = Caller(client)
    answers = [admin("post", bindings(), {"group": name, "role": "viewer"}) for name in ("vision", "nobodies")]
    for answer in answers:
        problem(answer, 403, "permission_denied")
    assert answers[0].json()["detail"] == answers[1].json()["detail"]


def test_a_role_is_bound_once(client):
    admin, ben = Caller(client), join(make_user(), "acme")
    body = {"user": ben.email, "role": "viewer"}
    assert admin("post", bindings(), body).status_code == 201
    problem(admin("post", bindings(), body), 409, "role_already_bound")
    RoleBinding.objects.filter(user=ben).update(expires_at=now() - timedelta(seconds=1))
    assert admin("post", bindings(), body).status_code == 201


@pytest.mark.parametrize("role", list(Role))
@pytest.mark.parametrize("own", [Role.MANAGER, Role.ADMIN])
def test_nobody_binds_or_takes_away_more_than_they_hold(client, own, role):
    caller, target = Caller(client, own), join(make_user(), "acme")
    response = caller("post", bindings(), {"user": target.email, "role": role})
    if GRANTS[role] <= GRANTS[own]:
        assert response.status_code == 201
        return
    problem(response, 403, "role_exceeds_own")
    binding = bind(target, "acme", role)
    problem(caller("delete", f"{bindings()}/{binding.id}"), 403, "role_exceeds_own")
    assert RoleBinding.objects.filter(id=binding.id).exists()


def test_nobody_binds_for_longer_than_they_hold_themselves(client):
    caller = Caller(client, "viewer")
    bind(caller.user, "acme", "manager", expires_at=now() + timedelta(hours=1))
    body = {"user": caller.user.email, "role": "submitter"}
    problem(caller("post", bindings(), body), 403, "role_exceeds_own")
    longer = (now() + timedelta(hours=2)).isoformat()
    problem(caller("post", bindings(), {**body, "expires_at": longer}), 403, "role_exceeds_own")
    shorter = (now() + timedelta(minutes=5)).isoformat()
    assert caller("post", bindings(), {**body, "expires_at": shorter}).status_code == 201


def test_a_role_below_gives_no_say_above(client):
    make_tenant("acme/a")
    caller = Caller(client, "admin", "acme/a")
    problem(caller("post", bindings("acme"), {"user": caller.user.email, "role": "viewer"}), 404, "not_found")
    bind(caller.user, "acme", "viewer")
    problem(caller("post", bindings("acme"), {"user": caller.user.email, "role": "viewer"}), 403, "permission_denied")


def test_an_organisation_keeps_an_admin(client):
    admin = Caller(client)
    own = RoleBinding.objects.get(user=admin.user)
    problem(admin("delete", f"{bindings()}/{own.id}"), 409, "last_admin")
    idle = make_user()
    bind(idle, "acme", "admin")
    type(idle).objects.filter(id=idle.id).update(is_active=False)
    problem(admin("delete", f"{bindings()}/{own.id}"), 409, "last_admin")
    bind(make_user(), "acme", "admin")
    assert admin("delete", f"{bindings()}/{own.id}").status_code == 204
    problem(admin("get", one(Tenant.objects.get(path="acme"))), 404, "not_found")


def test_a_role_taken_away_is_gone_with_the_next_request(client):
    caller = Caller(client, "viewer")
    assert caller("get", one(Tenant.objects.get(path="acme"))).status_code == 200
    RoleBinding.objects.all().delete()
    assert caller("get", one(Tenant.objects.get(path="acme"))).status_code == 404


def test_the_manager_role_grants_no_prices_and_no_clusters():
    assert not {Permission.MANAGE_PRICES, Permission.MANAGE_CLUSTERS} & GRANTS[Role.MANAGER]
