"""What a colleague with some power cannot make of it: others' passwords, others' people, sessions that outlive a password."""

import json

import pytest
from django.contrib.auth.models import Group
from django.test import Client

from tenancy.models import RoleBinding, User
from tenancy.operations import bootstrap
from tests.builders import bearer, bind, make_tenant, make_user

pytestmark = pytest.mark.django_db(transaction=True)
PASSWORD = "correct horse battery"
OTHER = "another horse battery"


def person(email="", **fields):
    user = make_user(email)
    user.set_password(PASSWORD)
    for name, value in fields.items():
        setattr(user, name, value)
    user.save()
    return user


def signed_in(user):
    client = Client()
    client.force_login(user)
    return client


@pytest.mark.parametrize("target", ["superuser", "admin", "operator", "self"])
def test_an_operator_sets_nobodys_password_in_the_operators_admin(target):
    operator = bootstrap("acme", "root@example.org").user
    targets = {
        "superuser": person(is_staff=True, is_superuser=True),
        "admin": person(),
        "operator": person(is_staff=True),
        "self": operator,
    }
    bind(targets["admin"], "other", "admin")
    before = User.objects.get(id=targets[target].id).password
    client, typed = signed_in(operator), {"password1": OTHER, "password2": OTHER, "usable_password": "true"}
    for path in (f"{targets[target].id}/password/", f"{targets[target].id}/change/"):
        client.post(f"/admin/tenancy/user/{path}", typed | {"password": OTHER, "email": targets[target].email})
    assert User.objects.get(id=targets[target].id).password == before


def test_not_even_a_superuser_sets_anothers_password():
    client, target = signed_in(person(is_staff=True, is_superuser=True)), person()
    client.post(f"/admin/tenancy/user/{target.id}/password/", {"password1": OTHER, "password2": OTHER})
    target.refresh_from_db()
    assert target.check_password(PASSWORD)


def test_an_operator_takes_no_account_over_by_its_email_and_ends_no_superuser():
    operator, boss = bootstrap("acme", "root@example.org").user, person(is_staff=True, is_superuser=True)
    client = signed_in(operator)
    client.post(f"/admin/tenancy/user/{boss.id}/change/", {"email": "mine@example.org", "display_name": ""})
    boss.refresh_from_db()
    assert (boss.is_active, boss.is_superuser) == (True, True)
    assert boss.email != "mine@example.org"


def test_an_operator_gains_no_role_by_joining_a_group():
    operator = bootstrap("acme", "root@example.org").user
    group = Group.objects.create(name="owners of other")
    RoleBinding.objects.create(tenant=make_tenant("other"), group=group, role="admin")
    signed_in(operator).post(
        f"/admin/tenancy/user/{operator.id}/change/",
        {"email": operator.email, "is_active": "on", "is_staff": "on", "groups": [str(group.id)]},
    )
    assert group not in operator.groups.all()


def post(user, path, body):
    return Client().post(f"/api/v1{path}", json.dumps(body), content_type="application/json", headers=bearer(user))


@pytest.mark.parametrize("known", ["email", "id"])
def test_a_manager_does_not_learn_who_is_in_another_organisation(known):
    manager, stranger = make_user(), make_user("secret-person@example.org")
    bind(manager, "acme/team", "manager")
    bind(stranger, "other", "admin")
    path = f"/tenants/{make_tenant('acme/team').id}/role-bindings"
    there = post(manager, path, {"user": str(getattr(stranger, known)), "role": "viewer"})
    nowhere = {"email": "nobody@example.org", "id": "0192e4a0-0000-7000-8000-000000000000"}[known]
    unknown = post(manager, path, {"user": nowhere, "role": "viewer"})
    shown = [{**answer.json(), "request_id": ""} for answer in (there, unknown)]
    assert shown[0] == shown[1]
    assert (there.status_code, unknown.status_code) == (422, 422)
    assert stranger.email not in there.content.decode() or known == "email"


def test_a_token_does_not_survive_a_password_change():
    user = person()
    headers = bearer(user)
    assert Client().get("/api/v1/me", headers=headers).status_code == 200
    user.set_password(OTHER)
    user.save()
    assert Client().get("/api/v1/me", headers=headers).status_code == 401


def test_a_token_and_a_session_do_not_come_back_with_a_person_who_was_deactivated():
    user = person()
    headers, session = bearer(user), signed_in(user)
    User.objects.filter(id=user.id).update(is_active=False)
    User.objects.filter(id=user.id).update(is_active=True)
    assert Client().get("/api/v1/me", headers=headers).status_code == 401
    assert session.get("/api/v1/me").status_code == 401
