"""Access that ends: by whom, for whom, what goes with it, and that no organisation loses its last admin by it."""

import pytest
from django.test import Client

from foundation.problems import Problem
from tenancy.engine.roles import Role
from tenancy.models import AuditEntry, OneTimeLink, RoleBinding, User
from tenancy.operations import activate_person, deactivate_person, invite, make_link
from tenancy.queries import SYSTEM, actor_for
from tests.builders import bearer, bind, join, make_tenant, make_user

pytestmark = pytest.mark.django_db


def post(user, path, *scopes):
    return Client().post(f"/api/v1{path}", "{}", content_type="application/json", headers=bearer(user, *scopes))


def page(user, path):
    client = Client()
    client.force_login(user)
    return client.post(path)


@pytest.fixture
def admin():
    user = make_user("admin@example.org")
    bind(user, "acme", "admin")
    return user


@pytest.fixture
def ann(admin):
    user = make_user("ann@example.org")
    bind(user, "acme/team", "admin")
    return user


def test_an_admin_ends_a_members_access_and_restores_it_without_what_ended(admin, ann):
    session, headers = Client(), bearer(ann)
    session.force_login(ann)
    make_link(SYSTEM, ann.id)
    invite(actor_for(ann), make_tenant("acme/team").id, email="new@example.org", role=Role.VIEWER)
    for _ in range(2):
        answer = post(admin, f"/people/{ann.id}/deactivate")
        assert (answer.status_code, answer.json()["is_active"]) == (200, False)
    assert session.get("/api/v1/me").status_code == 401
    assert Client().get("/api/v1/me", headers=headers).status_code == 401
    for _ in range(2):
        answer = post(admin, f"/people/{ann.id}/activate")
        assert (answer.status_code, answer.json()["is_active"]) == (200, True)
    assert session.get("/api/v1/me").status_code == 401
    assert Client().get("/api/v1/me", headers=headers).status_code == 401
    assert not OneTimeLink.objects.filter(used_at__isnull=True, ended_at__isnull=True).exists()
    assert RoleBinding.objects.filter(user=ann).count() == 1
    trail = AuditEntry.objects.filter(object_kind="user", object_id=str(ann.id)).order_by("id")
    assert [(entry.action, entry.tenant_id) for entry in trail] == [
        ("user.deactivate", make_tenant("acme").id),
        ("user.activate", make_tenant("acme").id),
    ]
    assert trail[0].detail == {"user": ann.email, "tokens_revoked": 1}


def test_the_person_who_is_deactivated_sees_nothing_more(admin, ann):
    deactivate_person(actor_for(admin), ann.id)
    ann.refresh_from_db()
    client = Client()
    client.force_login(ann)
    assert client.get("/tenants/").status_code == 302
    assert client.get("/tenants/")["Location"].startswith("/login/")


CALLERS = {
    "an admin of the organisation": (lambda: bind(make_user(), "acme", "admin").user, 200),
    "an admin with a token for jobs only": (lambda: bind(make_user(), "acme", "admin").user, 404),
    "an admin of the person's team": (lambda: bind(make_user(), "acme/team", "admin").user, 403),
    "a manager": (lambda: bind(make_user(), "acme", "manager").user, 403),
    "a viewer": (lambda: bind(make_user(), "acme", "viewer").user, 404),
    "an admin of another organisation": (lambda: bind(make_user(), "other", "admin").user, 404),
    "a person without roles": (make_user, 404),
    "staff without roles": (lambda: powerful(is_staff=True), 403),
    "a superuser": (lambda: powerful(is_staff=True, is_superuser=True), 200),
}


def powerful(**powers):
    user = make_user()
    User.objects.filter(id=user.id).update(**powers)
    return User.objects.get(id=user.id)


@pytest.mark.parametrize("who", list(CALLERS))
@pytest.mark.parametrize("act", ["deactivate", "activate"])
def test_only_those_end_or_restore_access_who_may_act_for_the_person(ann, who, act):
    make, wanted = CALLERS[who]
    caller = make()
    User.objects.filter(id=ann.id).update(is_active=act == "deactivate")
    scopes = ["write"] if "token" in who else []
    answer = post(caller, f"/people/{ann.id}/{act}", *scopes)
    assert answer.status_code == wanted, answer.content
    changed = User.objects.get(id=ann.id).is_active == (act == "activate")
    assert changed == (wanted == 200)
    if not scopes:
        User.objects.filter(id=ann.id).update(is_active=act == "deactivate")
        assert page(caller, f"/people/{ann.id}/{act}/").status_code == {200: 302}.get(wanted, wanted)
    assert AuditEntry.objects.filter(action=f"user.{act}").exists() == (wanted == 200)


@pytest.mark.parametrize("whom", ["oneself", "staff", "a superuser", "a member who also belongs elsewhere"])
def test_an_admin_ends_the_access_of_nobody_who_answers_to_others(admin, ann, whom):
    if whom == "staff":
        User.objects.filter(id=ann.id).update(is_staff=True)
    if whom == "a superuser":
        User.objects.filter(id=ann.id).update(is_superuser=True)
    if whom == "a member who also belongs elsewhere":
        join(ann, "other")
    target = admin if whom == "oneself" else ann
    bind(make_user(), "acme", "admin")
    answer = post(admin, f"/people/{target.id}/deactivate")
    assert (answer.status_code, answer.json()["code"]) == (403, "person_beyond_own")
    assert User.objects.get(id=target.id).is_active


def test_the_last_admin_of_an_organisation_keeps_access_until_there_is_another(admin):
    boss = powerful(is_staff=True, is_superuser=True)
    for caller in (actor_for(boss), SYSTEM):
        with pytest.raises(Problem) as refused:
            deactivate_person(caller, admin.id)
        assert refused.value.code == "last_admin"
    assert page(boss, f"/people/{admin.id}/deactivate/").status_code == 409
    bind(make_user(), "acme", "admin")
    assert page(boss, f"/people/{admin.id}/deactivate/").status_code == 302


def test_a_superuser_whose_powers_were_taken_meanwhile_acts_no_more(admin, ann):
    boss = powerful(is_staff=True, is_superuser=True)
    actor = actor_for(boss)
    User.objects.filter(id=boss.id).update(is_superuser=False, is_staff=False)
    with pytest.raises(Problem) as refused:
        deactivate_person(actor, ann.id)
    assert refused.value.status == 404
    User.objects.filter(id=boss.id).update(is_superuser=True, is_active=False)
    for act in (deactivate_person, activate_person):
        with pytest.raises(Problem) as refused:
            act(actor, ann.id)
        assert refused.value.status == 404


def test_the_operators_admin_neither_ends_access_nor_lets_a_superuser_step_down(admin):
    boss = powerful(is_staff=True, is_superuser=True)
    client = Client()
    client.force_login(boss)
    for target in (admin, boss):
        form = {"email": target.email, "display_name": "", "groups": [], "user_permissions": []}
        assert client.post(f"/admin/tenancy/user/{target.id}/change/", form).status_code == 302
        target.refresh_from_db()
        assert target.is_active
    assert (boss.is_staff, boss.is_superuser) == (True, True)


def test_a_form_without_its_token_is_refused(admin, ann):
    client = Client(enforce_csrf_checks=True)
    client.force_login(admin)
    tenant, binding = make_tenant("acme/team"), RoleBinding.objects.get(user=ann)
    for path in (
        f"/people/{ann.id}/deactivate/",
        f"/people/{ann.id}/activate/",
        f"/tenants/{tenant.id}/new/",
        f"/tenants/{tenant.id}/edit/",
        f"/tenants/{tenant.id}/remove/",
        f"/tenants/{tenant.id}/roles/",
        f"/tenants/{tenant.id}/roles/{binding.id}/",
        f"/tenants/{tenant.id}/roles/{binding.id}/remove/",
    ):
        assert client.post(path, {"role": "viewer", "user": ann.email, "days": "keep"}).status_code == 403, path
