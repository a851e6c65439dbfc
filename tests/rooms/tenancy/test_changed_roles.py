"""A binding that is changed: never to more, or for longer, than the one who changes it has, and never the last admin."""

from datetime import timedelta

import pytest
from django.contrib.auth.models import Group

from foundation.clock import now
from foundation.problems import Conflict
from tenancy.models import AuditEntry, Membership, RoleBinding
from tenancy.operations import remove_member
from tenancy.queries import actor_for
from tests.builders import bind, join, make_tenant, make_user

from .test_role_bindings_api import bindings
from .test_tenants_api import Caller, problem

pytestmark = pytest.mark.django_db


def later(**length):
    return (now() + timedelta(**length)).isoformat()


def test_a_role_and_its_end_are_changed_each_alone_and_audited_with_both_states(client):
    admin, held = Caller(client), bind(make_user("ben@example.org"), "acme/a", "viewer")
    one = f"{bindings('acme/a')}/{held.id}"
    changed = admin("patch", one, {"role": "manager"})
    assert (changed.status_code, changed.json()["role"], changed.json()["expires_at"]) == (200, "manager", None)
    assert changed.json()["id"] == str(held.id)
    ended = admin("patch", one, {"expires_at": later(days=1)}).json()
    assert ended["role"] == "manager"
    assert ended["expires_at"] is not None
    assert admin("patch", one, {"expires_at": None}).json()["expires_at"] is None
    trail = AuditEntry.objects.filter(action="role.change").order_by("id")
    roles = [(entry.detail["before"]["role"], entry.detail["after"]["role"]) for entry in trail]
    assert roles == [("viewer", "manager"), ("manager", "manager"), ("manager", "manager")]
    assert {entry.tenant_id for entry in trail} == {held.tenant_id}


def test_the_same_again_changes_nothing_and_leaves_no_entry(client):
    admin, held = Caller(client), bind(make_user(), "acme", "viewer")
    for body in ({}, {"role": "viewer"}, {"role": "viewer", "expires_at": None}):
        assert admin("patch", f"{bindings()}/{held.id}", body).status_code == 200
    assert not AuditEntry.objects.filter(action="role.change").exists()


def test_a_manager_neither_makes_nor_unmakes_an_admin(client):
    manager, admin = Caller(client, "manager"), bind(make_user(), "acme", "admin")
    low = bind(make_user(), "acme", "viewer")
    for binding, role in ((low, "admin"), (low, "finance"), (admin, "viewer"), (admin, "admin")):
        body = {"role": role, "expires_at": later(days=1)}
        problem(manager("patch", f"{bindings()}/{binding.id}", body), 403, "role_exceeds_own")
    own = RoleBinding.objects.get(user=manager.user)
    problem(manager("patch", f"{bindings()}/{own.id}", {"role": "admin"}), 403, "role_exceeds_own")


def test_a_role_with_an_end_cannot_be_used_to_outlive_it(client):
    caller = Caller(client, "viewer")
    own = bind(caller.user, "acme", "manager", expires_at=now() + timedelta(hours=1))
    problem(caller("patch", f"{bindings()}/{own.id}", {"expires_at": None}), 403, "role_exceeds_own")
    problem(caller("patch", f"{bindings()}/{own.id}", {"expires_at": later(hours=2)}), 403, "role_exceeds_own")
    assert caller("patch", f"{bindings()}/{own.id}", {"expires_at": later(minutes=5)}).status_code == 200


@pytest.mark.parametrize(
    "body", [{"role": "viewer"}, {"role": "manager"}, {"expires_at": later(days=900)}, {"role": "finance"}]
)
def test_the_last_admin_does_not_become_less(client, body):
    admin = Caller(client)
    own = RoleBinding.objects.get(user=admin.user)
    bind(make_user(), "acme", "admin", expires_at=now() + timedelta(days=1))
    bind(make_user(), "acme/a", "admin")
    problem(admin("patch", f"{bindings()}/{own.id}", body), 409, "last_admin")
    own.refresh_from_db()
    assert (own.role, own.expires_at) == ("admin", None)
    bind(make_user(), "acme", "admin")
    assert admin("patch", f"{bindings()}/{own.id}", body).status_code == 200


def test_a_role_that_the_person_has_already_is_no_second_time_made(client):
    admin, user = Caller(client), make_user()
    held, other = bind(user, "acme", "viewer"), bind(user, "acme", "submitter")
    problem(admin("patch", f"{bindings()}/{held.id}", {"role": "submitter"}), 409, "role_already_bound")
    RoleBinding.objects.filter(id=other.id).update(expires_at=now() - timedelta(seconds=1))
    assert admin("patch", f"{bindings()}/{held.id}", {"role": "submitter"}).status_code == 200
    assert RoleBinding.objects.filter(user=user).count() == 1


def test_an_end_in_the_past_is_refused_and_so_is_a_role_that_ended(client):
    admin = Caller(client)
    held = bind(make_user(), "acme", "viewer")
    past = {"expires_at": "2001-01-01T00:00:00Z"}
    problem(admin("patch", f"{bindings()}/{held.id}", past), 422, "validation_failed", "expires_at")
    ended = bind(make_user(), "acme", "viewer", expires_at=now() - timedelta(days=1))
    problem(admin("patch", f"{bindings()}/{ended.id}", {"role": "submitter"}), 422, "validation_failed", "expires_at")
    assert admin("patch", f"{bindings()}/{ended.id}", {"expires_at": None}).status_code == 200


def test_a_binding_is_found_only_at_its_own_tenant(client):
    admin, below, foreign = Caller(client), bind(make_user(), "acme/a", "viewer"), bind(make_user(), "other", "viewer")
    for binding in (below, foreign):
        problem(admin("patch", f"{bindings()}/{binding.id}", {"role": "submitter"}), 404, "not_found")
    path = f"{bindings('other')}/{foreign.id}"
    problem(admin("patch", path, {"role": "submitter"}), 404, "not_found")


def test_an_organisation_keeps_an_admin_when_one_by_a_group_leaves():
    leaver, group = join(make_user(), "acme"), Group.objects.create(name="owners")
    leaver.groups.add(group)
    acme = make_tenant("acme")
    RoleBinding.objects.create(tenant=acme, group=group, role="admin")
    with pytest.raises(Conflict) as refused:
        remove_member(actor_for(leaver), acme.id, leaver.id)
    assert refused.value.code == "last_admin"
    join(make_user(), "acme").groups.add(group)
    remove_member(actor_for(leaver), acme.id, leaver.id)
    assert not Membership.objects.filter(user=leaver).exists()


def test_only_operators_change_the_role_of_a_group(client):
    admin, group = Caller(client), Group.objects.create(name="vision")
    held = RoleBinding.objects.create(tenant=make_tenant("acme"), group=group, role="viewer")
    client.force_login(admin.user)
    page, one = f"/tenants/{held.tenant_id}/", f"{bindings()}/{held.id}"
    for body in ({"role": "admin"}, {"expires_at": later(days=1)}):
        problem(admin("patch", one, body), 403, "permission_denied")
    assert client.post(f"{page}roles/{held.id}/", {"role": "admin", "days": "keep"}).status_code == 403
    assert f"roles/{held.id}/remove/" in client.get(page).content.decode()
    assert f'roles/{held.id}/"' not in client.get(page).content.decode()
    operator = Caller(client, is_staff=True)
    assert operator("patch", one, {"role": "submitter"}).json()["group"] == "vision"
