"""Forged POSTs to every address of the operators' admin, for every person, as everybody: nobody gains, nobody's account is taken."""

from collections import defaultdict

import pytest
from django.contrib.auth.models import Group, Permission
from django.contrib.contenttypes.models import ContentType
from django.test import Client

from tenancy.models import ApiToken, Membership, OneTimeLink, RoleBinding, Tenant, User
from tenancy.operations import bootstrap
from tests.builders import bind, join, make_token, make_user
from tests.house.test_routes import walk
from tests.laws import third_of

pytestmark = [pytest.mark.django_db, pytest.mark.law]
PASSWORD = "another horse battery"


@pytest.fixture
def people():
    """Everybody there may be, by what they are; `staff` is who bootstrap makes: an operator, admin of acme."""
    found = {
        "staff": bootstrap("acme", "staff@example.org").user,
        "colleague": make_user("colleague@example.org"),
        "superuser": make_user("superuser@example.org"),
        "admin": make_user("admin@example.org"),
        "nobody": make_user("nobody@example.org"),
        "member": join(make_user("member@example.org"), "other"),
    }
    User.objects.filter(id=found["colleague"].id).update(is_staff=True)
    User.objects.filter(id=found["superuser"].id).update(is_staff=True, is_superuser=True)
    bind(found["admin"], "other", "admin")
    make_token(found["admin"])
    group = Group.objects.create(name="owners")
    RoleBinding.objects.create(tenant=Tenant.objects.get(path="other"), group=group, role="admin")
    return {name: User.objects.get(id=user.id) for name, user in found.items()}


def addresses(people):
    """Every address of the admin, with each person's id, and each other row's, in the place of the id."""
    rows = {
        "user": [person.pk for person in people.values()],
        "group": [group.pk for group in Group.objects.all()],
        "contenttype": [ContentType.objects.get_for_model(User).pk],
    }
    for route, _ in walk():
        if not route.startswith("/admin/") or "(" in route:
            continue
        if "<" not in route:
            yield route
        elif "<path:object_id>" in route:
            for pk in rows.get(route.split("/")[3], []):
                yield route.replace("<path:object_id>", str(pk))
    for pk in rows["user"]:
        yield f"/admin/tenancy/user/{pk}/password/"  # where Django's own has it
        yield f"/admin/r/{rows['contenttype'][0]}/{pk}/"


def forgeries(people):
    """Bodies that ask for all that might be had."""
    groups, rights = [str(g.pk) for g in Group.objects.all()], [str(p.pk) for p in Permission.objects.all()[:50]]
    grab = {
        "email": "taken@example.org",
        "display_name": "x",
        "password": PASSWORD,
        "password1": PASSWORD,
        "password2": PASSWORD,
        "new_password1": PASSWORD,
        "new_password2": PASSWORD,
        "usable_password": "true",
        "is_staff": "on",
        "is_superuser": "on",
        "groups": groups,
        "user_permissions": rights,
        "permissions": rights,
        "name": "taken",
        "_save": "Save",
    }
    yield grab | {"is_active": "on"}
    yield grab  # and deactivates
    chosen = [str(person.pk) for person in people.values()]
    yield {"action": "delete_selected", "_selected_action": chosen, "post": "yes", "form-TOTAL_FORMS": "0"}


def state():
    """What the attacks are after. Read in a fixed number of statements: it is asked for after each address."""
    their_groups, their_rights, rights_of_groups = (
        names_by_owner(table, of, name)
        for table, of, name in (
            (User.groups.through, "user_id", "group__name"),
            (User.user_permissions.through, "user_id", "permission__codename"),
            (Group.permissions.through, "group_id", "permission__codename"),
        )
    )
    powers = ("id", "password", "is_active", "is_staff", "is_superuser")
    users = {
        email: (pk, *values, their_groups[pk], their_rights[pk])
        for email, pk, *values in User.objects.values_list("email", *powers)
    }
    groups = {name: rights_of_groups[pk] for pk, name in Group.objects.values_list("id", "name")}
    rows = [sorted(map(str, m.objects.values_list())) for m in (RoleBinding, Membership, ApiToken, OneTimeLink, Tenant)]
    return users, groups, rows


def names_by_owner(table, owner, name):
    """Of a table between two: the sorted names by owner."""
    found = defaultdict(list)
    for pk, one in table.objects.values_list(owner, name).order_by(name):
        found[pk].append(one)
    return found


def attack(people, name):
    """Sends every forgery everywhere as that person; what changed after each, with the address."""
    client, attacker = Client(), people[name]
    bodies = list(forgeries(people))
    before = after = None
    for address in sorted(set(addresses(people))):
        if "logout" in address:
            continue
        attacker.save()  # what they did to themselves is undone, so that they can go on
        client.force_login(attacker)
        before = state() if after is None or after != before else after
        for body in bodies:
            assert client.post(address, body).status_code < 500, address
        after = state()
        yield address, before, after


def test_the_walk_finds_the_pages_that_matter(people):
    found = set(addresses(people))
    assert {f"/admin/tenancy/user/{people['superuser'].pk}/change/", "/admin/auth/group/add/"} <= found
    assert "/admin/tenancy/user/add/" in found


@pytest.mark.parametrize("name", third_of(["admin", "nobody", "member"]))
def test_who_is_no_operator_changes_nothing_in_the_operators_admin(people, name):
    for address, before, after in attack(people, name):
        assert before == after, address


@pytest.mark.parametrize("name", third_of(["staff", "colleague"]))
def test_an_operator_takes_no_account_and_gains_nothing(people, name):
    above = {people[one].email for one in ("staff", "colleague", "superuser", "admin")}
    for address, (users, groups, rows), (users_after, groups_after, rows_after) in attack(people, name):
        assert groups == groups_after, address
        assert rows == rows_after, address
        for email, was in users.items():
            now_is = users_after[email]  # no email changed
            assert now_is[:2] == was[:2], address
            assert now_is[3:] == was[3:], address
            if email in above:
                assert now_is == was, address
        for email in set(users_after) - set(users):
            _, password, _, *powers = users_after[email]
            assert password.startswith("!"), address
            assert powers == [False, False, [], []], address


def test_a_superuser_sets_no_password_in_the_operators_admin(people):
    for address, (users, _, _), (users_after, _, _) in attack(people, "superuser"):
        passwords = {was[0]: was[1] for was in users.values()}
        for pk, password, *_ in users_after.values():
            assert password == passwords.get(pk, password), address
            assert password.startswith("!") or passwords[pk] == password, address
