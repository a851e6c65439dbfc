"""Membership, links and sessions as the database keeps them, attacked with raw SQL."""

import pytest
from django.db import DatabaseError, connection, transaction

from foundation.clock import now
from tenancy.engine.roles import Role
from tenancy.models import ApiToken, Membership, OneTimeLink, RoleBinding, Tenant, User
from tenancy.operations import change_tenant, invite, make_link
from tenancy.queries import SYSTEM
from tests.builders import bind, make_tenant, make_token, make_user

pytestmark = pytest.mark.django_db


def execute(statement, *params):
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(statement, params)
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")


@pytest.fixture
def world():
    """Ann of acme, Bob of other; a pending link for Ann, a used one, an invitation."""
    ann, bob = make_user("ann@example.org"), make_user("bob@example.org")
    bind(ann, "acme/team", "viewer")
    bind(bob, "other/team", "viewer")
    make_token(ann)
    make_link(SYSTEM, bob.id)
    OneTimeLink.objects.update(used_at=now())
    make_link(SYSTEM, ann.id)
    invite(SYSTEM, Tenant.objects.get(path="acme").id, email="new@example.org", role=Role.VIEWER)
    return ann, bob


BIND = "INSERT INTO tenancy_rolebinding (id, tenant_id, {}user_id, role) SELECT gen_random_uuid(), tenant.id, {}person.id, 'admin' FROM tenancy_tenant AS tenant, tenancy_user AS person"


@pytest.mark.parametrize(
    "attack",
    [
        BIND.format("", "") + " WHERE tenant.path = 'other' AND person.email = 'ann@example.org'",
        BIND.format("", "") + " WHERE tenant.path = 'acme/team' AND person.email = 'bob@example.org'",
        BIND.format("organisation_id, ", "(SELECT id FROM tenancy_tenant WHERE path = 'acme'), ")
        + " WHERE tenant.path = 'other' AND person.email = 'ann@example.org'",
        "UPDATE tenancy_rolebinding SET user_id = (SELECT id FROM tenancy_user WHERE email = 'bob@example.org') WHERE organisation_id = (SELECT id FROM tenancy_tenant WHERE path = 'acme')",
        "UPDATE tenancy_rolebinding SET tenant_id = (SELECT id FROM tenancy_tenant WHERE path = 'other') WHERE organisation_id = (SELECT id FROM tenancy_tenant WHERE path = 'acme')",
        "UPDATE tenancy_rolebinding SET tenant_id = gen_random_uuid()",
        "INSERT INTO tenancy_membership (id, user_id, organisation_id) SELECT gen_random_uuid(), person.id, tenant.id FROM tenancy_tenant AS tenant, tenancy_user AS person WHERE tenant.path = 'acme/team'",
        "INSERT INTO tenancy_membership (id, user_id, organisation_id) SELECT gen_random_uuid(), user_id, organisation_id FROM tenancy_membership",
        "UPDATE tenancy_membership SET organisation_id = (SELECT id FROM tenancy_tenant WHERE path = 'other/team')",
        "UPDATE tenancy_membership SET user_id = (SELECT id FROM tenancy_user WHERE email = 'bob@example.org')",
        "UPDATE tenancy_tenant SET parent_id = (SELECT id FROM tenancy_tenant WHERE path = 'other') WHERE path = 'acme/team'",
        "UPDATE tenancy_tenant SET parent_id = (SELECT id FROM tenancy_tenant WHERE path = 'other'), kind = 'team' WHERE path = 'acme'",
        "UPDATE tenancy_tenant SET parent_id = NULL, kind = 'organisation' WHERE path = 'acme/team'",
        "UPDATE tenancy_onetimelink SET used_at = NULL",
        "UPDATE tenancy_onetimelink SET used_at = now(), ended_at = now() WHERE used_at IS NULL",
        "UPDATE tenancy_onetimelink SET expires_at = now() + interval '1 year' WHERE used_at IS NULL",
        "UPDATE tenancy_onetimelink SET digest = sha256('mine') WHERE used_at IS NULL AND user_id IS NOT NULL",
        "UPDATE tenancy_onetimelink SET role = 'admin' WHERE role = 'viewer'",
        "UPDATE tenancy_onetimelink SET email = 'mine@example.org' WHERE role = 'viewer'",
        "INSERT INTO tenancy_onetimelink (id, purpose, prefix, digest, user_id, email, role, expires_at) SELECT gen_random_uuid(), purpose, prefix, sha256('x'), user_id, email, role, expires_at FROM tenancy_onetimelink WHERE user_id IS NOT NULL AND used_at IS NULL",
        "INSERT INTO tenancy_onetimelink (id, purpose, prefix, digest, tenant_id, email, role, expires_at) SELECT gen_random_uuid(), purpose, prefix, sha256('x'), tenant_id, email, role, expires_at FROM tenancy_onetimelink WHERE role <> ''",
        "INSERT INTO tenancy_onetimelink (id, purpose, prefix, digest, email, role, expires_at) VALUES (gen_random_uuid(), 'reset_password', '', sha256('x'), '', '', now())",
        "INSERT INTO tenancy_onetimelink (id, purpose, prefix, digest, email, role, expires_at) VALUES (gen_random_uuid(), 'invitation', '', sha256('x'), 'a@b.c', 'viewer', now())",
    ],
)  # fmt: skip
def test_the_database_refuses_what_would_reach_over_organisations_or_revive_a_link(world, attack):
    def rows():
        return [sorted(map(str, m.objects.values_list())) for m in (RoleBinding, Membership, OneTimeLink, Tenant)]

    before = rows()
    with pytest.raises(DatabaseError):
        execute(attack)
    assert rows() == before


def test_roles_go_with_the_membership_they_hang_on(world):
    ann, _ = world
    execute("DELETE FROM tenancy_membership WHERE user_id = %s", ann.id)
    assert not RoleBinding.objects.filter(user=ann).exists()


def test_the_organisation_of_a_binding_is_its_tenants_whatever_is_written(world):
    other = Tenant.objects.get(path="other")
    execute("UPDATE tenancy_rolebinding SET organisation_id = %s", other.id)
    assert set(RoleBinding.objects.values_list("tenant__path", "organisation__path")) == {
        ("acme/team", "acme"),
        ("other/team", "other"),
    }


def test_a_renamed_organisation_and_a_moved_tenant_keep_their_people(world):
    ann, _ = world
    make_tenant("acme/lab")
    acme = Tenant.objects.get(path="acme")
    change_tenant(SYSTEM, acme.id, name="acme-two")
    lab = Tenant.objects.get(path="acme-two/lab")
    change_tenant(SYSTEM, Tenant.objects.get(path="acme-two/team").id, parent_id=lab.id)
    binding = RoleBinding.objects.get(user=ann)
    assert (binding.tenant.path, binding.organisation_id) == ("acme-two/lab/team", acme.id)


def test_deactivation_ends_sessions_tokens_and_links_however_it_is_written(world):
    ann, _ = world
    before = ann.get_session_auth_hash()
    execute("UPDATE tenancy_user SET is_active = false WHERE id = %s", ann.id)
    ann.refresh_from_db()
    assert ann.get_session_auth_hash() != before
    assert not ApiToken.objects.filter(user=ann, revoked_at__isnull=True).exists()
    assert not OneTimeLink.objects.filter(user=ann, used_at__isnull=True, ended_at__isnull=True).exists()


def test_a_row_read_before_sessions_ended_and_saved_after_does_not_bring_them_back(world):
    ann, _ = world
    stale = User.objects.get(id=ann.id)
    execute("UPDATE tenancy_user SET session_epoch = session_epoch + 1 WHERE id = %s", ann.id)
    stale.display_name = "Ann"
    stale.save()
    assert User.objects.get(id=ann.id).session_epoch == 1


def test_a_better_hash_of_the_same_password_is_no_change_of_it(settings):
    user = make_user()
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.PBKDF2PasswordHasher"]
    user.set_password("correct horse battery")
    user.save()
    make_token(user)
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.Argon2PasswordHasher", *settings.PASSWORD_HASHERS]
    was = user.password
    assert User.objects.get(id=user.id).check_password("correct horse battery")
    assert User.objects.get(id=user.id).password != was
    assert ApiToken.objects.filter(user=user, revoked_at__isnull=True).exists()
