"""Two at once with one link, one invitation, one membership: one wins, and nothing is left that neither meant."""

import threading
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client

from foundation.clock import now
from foundation.problems import Problem
from tenancy.engine.roles import Role
from tenancy.models import Membership, OneTimeLink, RoleBinding, Tenant, User
from tenancy.operations import (
    Until,
    accept_as_new,
    accept_invitation,
    bind_role,
    change_binding,
    deactivate_person,
    invite,
    make_link,
    remove_member,
    set_password_by_link,
    unbind_role,
    withdraw_invitation,
)
from tenancy.queries import SYSTEM, actor_for, administers, permanent_admins
from tests.builders import bind, join, make_tenant, make_user
from tests.kept_sessions import end_sessions

pytestmark = pytest.mark.django_db(transaction=True)
MANY = 8
PASSWORD = "correct horse battery {}"


def at_once(*acts):
    """Runs each in a thread of its own, all starting together; what each returned, or the code of its refusal."""
    barrier = threading.Barrier(len(acts))
    answers: list[Any] = [None] * len(acts)

    def one(number, act):
        try:
            barrier.wait(timeout=30)
            answers[number] = act()
        except Problem as problem:
            answers[number] = problem.code
        finally:
            end_sessions()

    threads = [threading.Thread(target=one, args=item) for item in enumerate(acts)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    return answers


def test_many_use_one_link_and_one_of_them_sets_the_password():
    user = make_user()
    _, secret = make_link(SYSTEM, user.id)
    answers = at_once(*[lambda n=n: set_password_by_link(secret, PASSWORD.format(n)) and n for n in range(MANY)])
    winners = [answer for answer in answers if isinstance(answer, int)]
    assert len(winners) == 1
    assert User.objects.get(id=user.id).check_password(PASSWORD.format(winners[0]))
    assert answers.count("not_found") == MANY - 1


def test_many_make_a_link_for_one_person_and_one_of_them_works():
    user = make_user()
    secrets = [secret for _, secret in at_once(*[lambda: make_link(SYSTEM, user.id)] * MANY)]
    assert OneTimeLink.objects.filter(used_at__isnull=True, ended_at__isnull=True).count() == 1
    answers = at_once(*[lambda s=s: set_password_by_link(s, PASSWORD) and "set" for s in secrets])
    assert sorted(set(answers)) == ["not_found", "set"]
    assert answers.count("set") == 1


def test_many_accept_one_invitation_as_new_and_one_account_is_made():
    tenant = make_tenant("acme/team")
    _, secret = invite(SYSTEM, tenant.id, email="new@example.org", role=Role.VIEWER)
    answers = at_once(*[lambda n=n: accept_as_new(secret, PASSWORD.format(n)) and n for n in range(MANY)])
    winners = [answer for answer in answers if isinstance(answer, int)]
    assert len(winners) == 1, answers
    assert set(answers) - set(winners) <= {"not_found", "sign_in_instead"}
    user = User.objects.get(email="new@example.org")
    assert user.check_password(PASSWORD.format(winners[0]))
    assert RoleBinding.objects.filter(user=user).count() == Membership.objects.filter(user=user).count() == 1


def test_a_link_used_while_it_is_withdrawn_ends_one_way():
    for number in range(6):
        tenant, user = make_tenant("acme/team"), make_user(f"p{number}@example.org")
        link, secret = invite(SYSTEM, tenant.id, email=user.email, role=Role.VIEWER)
        used, withdrawn = at_once(
            lambda user=user, secret=secret: accept_invitation(user, secret) and "used",
            lambda link=link, tenant=tenant: withdraw_invitation(SYSTEM, tenant.id, link.id) or "withdrawn",
        )
        link.refresh_from_db()
        assert (used, withdrawn) in {("used", "not_found"), ("not_found", "withdrawn")}
        assert (link.used_at is not None, link.ended_at is not None) == (used == "used", withdrawn == "withdrawn")
        assert RoleBinding.objects.filter(user=user).exists() == (used == "used")


def test_a_link_used_while_its_person_is_deactivated_revives_nobody():
    for number in range(4):
        user = make_user(f"d{number}@example.org")
        _, secret = make_link(SYSTEM, user.id)
        at_once(
            lambda secret=secret: set_password_by_link(secret, PASSWORD),
            lambda user=user: User.objects.filter(id=user.id).update(is_active=False),
        )
        assert not User.objects.get(id=user.id).is_active
        assert not OneTimeLink.objects.filter(user=user, used_at__isnull=True, ended_at__isnull=True).exists()


def test_a_role_bound_while_its_member_is_removed_is_not_left_behind():
    admin = make_user()
    bind(admin, "acme", "admin")
    acme = Tenant.objects.get(path="acme")
    for number in range(6):
        user = join(make_user(f"m{number}@example.org"), "acme")
        answers = at_once(
            lambda user=user: bind_role(actor_for(admin), acme.id, role=Role.VIEWER, user=user.email) and "bound",
            lambda user=user: remove_member(actor_for(admin), acme.id, user.id) or "removed",
        )
        assert answers[0] in {"bound", "validation_failed"}, answers
        assert answers[1] == "removed"
        assert not RoleBinding.objects.filter(user=user).exists()


def test_of_two_admins_who_leave_at_once_one_stays():
    first, second = make_user(), make_user()
    for user in (first, second):
        bind(user, "acme", "admin")
    acme = Tenant.objects.get(path="acme")
    answers = at_once(
        *[lambda user=user: remove_member(actor_for(user), acme.id, user.id) or "left" for user in (first, second)]
    )
    assert sorted(answers) == ["last_admin", "left"]
    assert Membership.objects.filter(organisation=acme).count() == 1


ENDS = {
    "takes the role": lambda actor, other, acme: unbind_role(actor, acme.id, binding_of(other).id),
    "gives the role an end": lambda actor, other, acme: change_binding(
        actor, acme.id, binding_of(other).id, until=Until(now() + timedelta(days=1))
    ),
    "makes the other a viewer": lambda actor, other, acme: change_binding(
        actor, acme.id, binding_of(other).id, role=Role.VIEWER
    ),
    "removes the member": lambda actor, other, acme: remove_member(actor, acme.id, other.id),
    "ends the access": lambda actor, other, acme: deactivate_person(actor, other.id),
}


REFUSALS = {"last_admin", "not_found", "permission_denied", "role_exceeds_own"}


def binding_of(user):
    return RoleBinding.objects.get(user=user)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        *[(name, name) for name in ENDS],
        ("takes the role", "ends the access"),
        ("ends the access", "removes the member"),
    ],
)
def test_of_two_admins_who_end_each_other_at_once_one_remains(one, other):
    for number in range(3):
        acme = make_tenant(f"acme{number}")
        first, second = (bind(make_user(), acme.path, "admin").user for _ in range(2))
        acts = [(ENDS[one], first, second, acme), (ENDS[other], second, first, acme)]
        answers = at_once(*[lambda act=act: act[0](actor_for(act[1]), *act[2:]) and "done" for act in acts])
        refused = [answer for answer in answers if answer in REFUSALS]
        assert len(refused) == 1, answers
        left = permanent_admins(acme)
        assert left.count() == 1, answers
        assert administers(actor_for(left.get()), acme)


def test_of_two_superusers_who_end_each_other_at_once_one_remains():
    for _ in range(3):
        User.objects.all().delete()
        first, second = make_user(), make_user()
        User.objects.update(is_superuser=True)
        first.refresh_from_db()
        second.refresh_from_db()
        pairs = [(first, second), (second, first)]
        answers = at_once(*[lambda p=p: deactivate_person(actor_for(p[0]), p[1].id) and "done" for p in pairs])
        assert sorted(answers) == ["done", "not_found"]
        assert User.objects.filter(is_active=True, is_superuser=True).count() == 1


def test_of_two_superusers_who_take_each_others_powers_one_remains():
    pair = [make_user(f"{name}@example.org") for name in ("ann", "bob")]
    User.objects.filter(id__in=[user.id for user in pair]).update(is_staff=True, is_superuser=True)

    def takes_from(own, other):
        client = Client()
        client.force_login(User.objects.get(id=own.id))
        form = {"email": other.email, "display_name": "", "is_staff": "on", "_save": "Save"}
        return lambda: client.post(f"/admin/tenancy/user/{other.id}/change/", form).status_code

    answers = at_once(takes_from(*pair), takes_from(*reversed(pair)))
    assert sorted(answers) == [302, 403]
    assert User.objects.filter(is_superuser=True).count() == 1
