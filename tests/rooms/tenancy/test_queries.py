from datetime import timedelta

import pytest
from django.contrib.auth.models import Group

from foundation.clock import now
from foundation.problems import NotFound, PermissionDenied
from tenancy.engine.roles import GRANTS, Permission, Role, Scope
from tenancy.models import RoleBinding, Tenant, User
from tenancy.queries import SYSTEM, Actor, actor_for, require, tenant_by_id, tenant_by_path, visible_tenants
from tests.builders import bind, join, make_tenant, make_user
from tests.kept_rows import once_a_module

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("tree")]
TREE = ["acme", "acme/research", "acme/research/vision", "acme/sales", "other", "other/research"]


@once_a_module
def tree() -> None:
    for path in TREE:
        make_tenant(path)


def verdict(actor: Actor, path: str, permission: Permission) -> str:
    """allowed, denied (seen but not allowed) or absent; all ways of asking must agree."""
    answers = []
    tenant = Tenant.objects.get(path=path)
    for ask in (
        lambda: tenant_by_path(actor, path, permission),
        lambda: tenant_by_id(actor, tenant.id, permission),
        lambda: require(actor, tenant, permission),
    ):
        try:
            ask()
        except NotFound:
            answers.append("absent")
        except PermissionDenied:
            answers.append("denied")
        else:
            answers.append("allowed")
    listed = visible_tenants(actor, permission).filter(path=path).exists()
    assert len(set(answers)) == 1, answers
    assert listed == (answers[0] == "allowed")
    return answers[0]


@pytest.mark.parametrize("role", list(Role))
@pytest.mark.parametrize("permission", list(Permission))
def test_a_role_holds_at_its_tenant_and_below_and_nowhere_else(role, permission):
    user = make_user()
    bind(user, "acme/research", role)
    actor = actor_for(user)
    here = "allowed" if permission in GRANTS[role] else "denied"
    assert {path: verdict(actor, path, permission) for path in TREE} == {
        "acme": "absent",
        "acme/research": here,
        "acme/research/vision": here,
        "acme/sales": "absent",
        "other": "absent",
        "other/research": "absent",
    }


@pytest.mark.parametrize("scope", list(Scope))
@pytest.mark.parametrize("role", list(Role))
def test_a_token_never_reaches_further_than_its_user_or_its_scopes(scope, role):
    user = make_user()
    bind(user, "acme", role)
    free, narrowed = actor_for(user), Actor(user.id, user.email, scopes=frozenset({scope}))
    for permission in Permission:
        wide, narrow = verdict(free, "acme/sales", permission), verdict(narrowed, "acme/sales", permission)
        assert narrow == (wide if permission in narrowed.reach else "denied")


def test_a_name_that_begins_like_a_visible_tenant_is_still_foreign():
    make_tenant("acme-two/research")
    make_tenant("acme/research-two")
    user = make_user()
    bind(user, "acme/research")
    assert {t.path for t in visible_tenants(actor_for(user))} == {"acme/research", "acme/research/vision"}
    assert verdict(actor_for(user), "acme/research-two", Permission.VIEW) == "absent"


def test_roles_of_several_bindings_add_up():
    user = make_user()
    bind(user, "acme", Role.VIEWER)
    bind(user, "acme/research", Role.FINANCE)
    actor = actor_for(user)
    assert verdict(actor, "acme", Permission.MANAGE_PRICES) == "denied"
    assert verdict(actor, "acme/research/vision", Permission.MANAGE_PRICES) == "allowed"
    assert verdict(actor, "acme/sales", Permission.VIEW) == "allowed"


def test_an_expired_binding_does_not_count():
    user = make_user()
    bind(user, "acme", expires_at=now() - timedelta(seconds=1))
    assert verdict(actor_for(user), "acme", Permission.VIEW) == "absent"
    bind(user, "other", expires_at=now() + timedelta(hours=1))
    assert verdict(actor_for(user), "other", Permission.VIEW) == "allowed"


def test_a_groups_role_counts_for_its_members_only():
    group = Group.objects.create(name="vision people")
    RoleBinding.objects.create(tenant=Tenant.objects.get(path="acme"), group=group, role=Role.SUBMITTER)
    member, stranger, outsider = join(make_user(), "acme"), join(make_user(), "acme"), join(make_user(), "other")
    member.groups.add(group)
    outsider.groups.add(group)
    assert verdict(actor_for(member), "acme/sales", Permission.SUBMIT) == "allowed"
    assert verdict(actor_for(stranger), "acme/sales", Permission.VIEW) == "absent"
    assert verdict(actor_for(outsider), "acme/sales", Permission.VIEW) == "absent"
    assert not visible_tenants(actor_for(outsider)).exists()


def test_an_inactive_users_roles_do_not_count():
    user = make_user()
    bind(user, "acme")
    group = Group.objects.create(name="all")
    user.groups.add(group)
    RoleBinding.objects.create(tenant=Tenant.objects.get(path="other"), group=group, role=Role.ADMIN)
    User.objects.update(is_active=False)
    assert verdict(actor_for(user), "acme", Permission.VIEW) == "absent"
    assert verdict(actor_for(user), "other", Permission.VIEW) == "absent"


def test_the_system_may_do_everything():
    assert {verdict(SYSTEM, path, permission) for path in TREE for permission in Permission} == {"allowed"}


@pytest.mark.parametrize(
    "path", ["", "/", "acme/", "/acme", "acme//research", "ACME", "a\x00b", "x" * 2000, "a/" * 40, "%", "acme%"]
)
def test_a_path_that_is_none_is_absent(path):
    with pytest.raises(NotFound):
        tenant_by_path(SYSTEM, path)


def test_finding_a_tenant_and_judging_a_permission_is_one_query(django_assert_num_queries):
    user = make_user()
    bind(user, "acme")
    with django_assert_num_queries(1):
        tenant_by_path(actor_for(user), "acme/research/vision", Permission.SUBMIT)
    tenant_id = Tenant.objects.get(path="acme/sales").id
    with django_assert_num_queries(1):
        tenant_by_id(actor_for(user), tenant_id, Permission.VIEW)
