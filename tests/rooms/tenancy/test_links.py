"""One-time links: who makes one for whom, what one is good for, and all the ways in which it dies."""

import re
from collections.abc import Callable
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest
from django.contrib.auth.hashers import make_password
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from foundation.clock import now
from foundation.problems import Conflict, Invalid, NotFound, PermissionDenied
from tenancy.engine.roles import Role
from tenancy.models import ApiToken, AuditEntry, Membership, OneTimeLink, RoleBinding, Tenant, User
from tenancy.operations import (
    accept_as_new,
    accept_invitation,
    invite,
    make_link,
    open_link,
    remove_member,
    set_password_by_link,
    withdraw_invitation,
)
from tenancy.queries import SYSTEM, actor_for
from tenancy.web.links import MISSES_OF_AN_ADDRESS
from tests.builders import bearer, bind, join, make_tenant, make_token, make_user

pytestmark = pytest.mark.django_db
PASSWORD = "correct horse battery"
LINK = "/sign-in/link/"


def changed(user, **fields):
    User.objects.filter(id=user.id).update(**fields)
    return User.objects.get(id=user.id)


@pytest.fixture
def people():
    """By name. Both organisations have an admin; `both` belongs to both, `free` to none."""
    found = {name: make_user(f"{name}@example.org") for name in ("root", "staff", "lead", "free", "both", "member")}
    found["root"] = changed(found["root"], is_staff=True, is_superuser=True)
    found["staff"] = changed(found["staff"], is_staff=True)
    bind(found["staff"], "acme", "manager")
    bind(found["lead"], "acme/team", "manager")
    bind(found["member"], "acme/team", "submitter")
    bind(found["both"], "acme/team", "viewer")
    join(found["both"], "other")
    for organisation in ("acme", "other"):
        found[f"{organisation} admin"] = admin = make_user(f"{organisation}-admin@example.org")
        bind(admin, organisation, "admin")
    found["elsewhere"] = bind(make_user("elsewhere@example.org"), "other/team", "viewer").user
    return found


MAY = {
    "root": {"staff", "lead", "free", "both", "member", "acme admin", "other admin", "elsewhere"},
    "staff": {"lead", "free", "both", "member"},
    "acme admin": {"lead", "member"},
    "other admin": {"elsewhere"},
}


def test_who_makes_a_link_for_whom(people):
    for maker, actor in people.items():
        for name, person in people.items():
            if name in MAY.get(maker, ()):
                link, secret = make_link(actor_for(actor), person.id)
                assert open_link(secret).user == person
                assert link.purpose == "first_sign_in"
            else:
                with pytest.raises((NotFound, PermissionDenied)):
                    make_link(actor_for(actor), person.id)


def test_a_narrowed_token_makes_no_link(people):
    for scope in ("read", "write"):
        path = f"/api/v1/people/{people['member'].id}/links"
        answer = Client().post(path, b"{}", content_type="application/json", headers=bearer(people["root"], scope))
        assert answer.status_code in {403, 404}
    assert not OneTimeLink.objects.exists()


def test_the_person_sets_their_own_password_once_and_everything_from_before_ends(people):
    member, session = changed(people["member"], password=make_password("the battery before")), Client()
    session.force_login(member)
    make_token(member)
    _, secret = make_link(actor_for(people["acme admin"]), member.id)
    with pytest.raises(Invalid):
        set_password_by_link(secret, "short")
    set_password_by_link(secret, PASSWORD)
    assert User.objects.get(id=member.id).check_password(PASSWORD)
    assert session.get("/api/v1/me").status_code == 401
    assert not ApiToken.objects.filter(user=member, revoked_at__isnull=True).exists()
    with pytest.raises(NotFound):
        set_password_by_link(secret, "another horse battery")
    trail = str(list(AuditEntry.objects.values()))
    assert [entry.action for entry in AuditEntry.objects.order_by("id")] == ["link.create", "link.use"]
    assert secret not in trail
    assert PASSWORD not in trail
    assert secret[:12] in trail


def test_the_first_password_leaves_the_token_that_came_with_its_link(people):
    token = make_token(people["member"])
    _, secret = make_link(actor_for(people["acme admin"]), people["member"].id)
    set_password_by_link(secret, PASSWORD)
    headers = {"Authorization": f"Bearer {token}"}
    assert Client().get("/api/v1/me", headers=headers).status_code == 200
    _, secret = make_link(actor_for(people["acme admin"]), people["member"].id)
    set_password_by_link(secret, "another horse battery")
    assert Client().get("/api/v1/me", headers=headers).status_code == 401


def test_the_page_says_that_tokens_ended_only_if_they_did(people, client):
    said = []
    for password in (PASSWORD, "another horse battery"):
        _, secret = make_link(actor_for(people["acme admin"]), people["member"].id)
        fields = {"link": secret, "step": "password", "password": password, "password_again": password}
        said.append("API tokens no longer work" in client.post(LINK, fields, follow=True).content.decode())
    assert said == [False, True]


KILL = {
    "a newer link": lambda p: make_link(SYSTEM, p["member"].id),
    "its time": lambda p: OneTimeLink.objects.all().delete() or _expired(p),
    "the person's deactivation": lambda p: changed(p["member"], is_active=False),
    "the maker's deactivation": lambda p: changed(p["acme admin"], is_active=False),
    "the maker's lost role": lambda p: RoleBinding.objects.filter(user=p["acme admin"]).delete(),
    "a password set meanwhile": lambda p: _sets_password(p["member"]),
    "the person's new power": lambda p: changed(p["member"], is_staff=True),
    "the person's other organisation": lambda p: bind(p["member"], "other", "admin"),
}


def _sets_password(user):
    user.set_password("another horse battery")
    user.save()


def _expired(people):
    OneTimeLink.objects.create(
        user=people["member"],
        purpose="reset_password",
        prefix="swyl_",
        digest=__import__("hashlib").sha256(b"swyl_old").digest(),
        expires_at=now() - timedelta(seconds=1),
    )


@pytest.mark.parametrize("what", KILL)
def test_a_link_is_ended_by(people, what):
    _, secret = make_link(actor_for(people["acme admin"]), people["member"].id)
    open_link(secret)
    KILL[what](people)
    for dead in (secret, "swyl_old"):
        with pytest.raises(NotFound):
            open_link(dead)
        with pytest.raises(NotFound):
            set_password_by_link(dead, PASSWORD)
    assert not User.objects.get(id=people["member"].id).check_password(PASSWORD)


def test_no_link_is_made_for_who_is_deactivated(people):
    changed(people["member"], is_active=False)
    with pytest.raises(Conflict):
        make_link(SYSTEM, people["member"].id)


def test_looking_at_a_link_changes_nothing_and_a_post_uses_it_once(people, client):
    _, secret = make_link(SYSTEM, people["member"].id)
    for _ in range(3):
        page = client.get(LINK)
        assert page.status_code == 200
        assert client.head(LINK).status_code == 200
        shown = client.post(LINK, {"link": f"https://gateway{LINK}#{secret}"})
        assert "Choose your password" in shown.content.decode()
        assert "no-cache" in shown["Cache-Control"]
        assert shown["Referrer-Policy"] == "same-origin"
    typed = {"link": secret, "step": "password", "password": PASSWORD}
    assert client.post(LINK, typed | {"password_again": "not the same"}).status_code == 422
    assert client.post(LINK, typed | {"password": "short", "password_again": "short"}).status_code == 422
    done = client.post(LINK, typed | {"password_again": PASSWORD})
    assert (done.status_code, done["Location"]) == (302, "/login/")
    assert client.post(LINK, typed | {"password_again": PASSWORD}).status_code == 404
    assert client.login(username="member@example.org", password=PASSWORD)


def test_a_forms_token_is_needed_on_the_page_of_links(people):
    _, secret = make_link(SYSTEM, people["member"].id)
    strict = Client(enforce_csrf_checks=True)
    assert strict.post(LINK, {"link": secret, "step": "password", "password": PASSWORD}).status_code == 403
    assert open_link(secret)


def test_dead_and_invented_links_get_one_answer_and_guesses_are_counted_by_address(people, client):
    _, used = make_link(SYSTEM, people["member"].id)
    set_password_by_link(used, PASSWORD)
    answers = [client.post(LINK, {"link": secret}) for secret in (used, "swyl_" + "x" * 43, "", "\x00é" * 400)]
    assert {answer.status_code for answer in answers} == {404}
    assert len({answer.content.decode().split("alert-heading")[1].split("<")[0] for answer in answers}) == 1
    for _ in range(MISSES_OF_AN_ADDRESS - len(answers)):
        assert client.post(LINK, {"link": "again"}).status_code == 404
    assert client.post(LINK, {"link": "again"}).status_code == 429
    assert Client(REMOTE_ADDR="192.0.2.9").post(LINK, {"link": "again"}).status_code == 404


def invitation(people, email="new@example.org", maker="lead", path="acme/team", role=Role.VIEWER, **more):
    return invite(actor_for(people[maker]), Tenant.objects.get(path=path).id, email=email, role=role, **more)[1]


def test_an_invitation_looks_nobody_up(people, client):
    """The same status, members and statements, so the same time, whether there is such an account or not."""
    answers, statements = [], []
    path = f"/api/v1/tenants/{Tenant.objects.get(path='acme/team').id}/invitations"
    headers = bearer(people["lead"])
    client.get("/api/v1/me", headers=headers)
    for email in ("unknown@example.org", "elsewhere@example.org", "member@example.org", "root@example.org"):
        body = {"email": email, "role": "viewer"}
        with CaptureQueriesContext(connection) as asked:
            answer = client.post(path, body, content_type="application/json", headers=headers)
        told = answer.json()
        assert told["email"] == email
        answers.append((answer.status_code, sorted(told), told["role"], told["tenant"], told["role_expires_at"]))
        texts = [query["sql"] for query in asked]
        assert not any("tenancy_user" in text and email in text for text in texts)
        statements.append([text[:50] for text in texts if "SAVEPOINT" not in text])
    assert all(one == other for one, other in pairwise(answers))
    assert all(one == other for one, other in pairwise(statements))


def test_an_existing_person_joins_with_their_own_account(people):
    secret = invitation(people, "elsewhere@example.org", role=Role.SUBMITTER, expires_at=now() + timedelta(days=9))
    for stranger in ("member", "free"):
        with pytest.raises(NotFound):
            accept_invitation(people[stranger], secret)
    before = people["elsewhere"].password
    assert accept_invitation(people["elsewhere"], secret).path == "acme/team"
    binding = RoleBinding.objects.get(user=people["elsewhere"], tenant__path="acme/team")
    assert (binding.role, binding.expires_at is None) == ("submitter", False)
    assert Membership.objects.filter(user=people["elsewhere"], organisation__path="acme").exists()
    assert User.objects.get(id=people["elsewhere"].id).password == before
    with pytest.raises(NotFound):
        accept_invitation(people["elsewhere"], secret)
    assert AuditEntry.objects.filter(action="invitation.accept", tenant_id=binding.tenant_id).count() == 1


def test_a_new_person_joins_with_a_password_of_their_own(people, client):
    secret = invitation(people)
    with pytest.raises(Invalid):
        accept_as_new(secret, "short")
    assert not User.objects.filter(email="new@example.org").exists()
    accept_as_new(secret, PASSWORD)
    assert client.login(username="new@example.org", password=PASSWORD)
    with pytest.raises(NotFound):
        accept_as_new(secret, PASSWORD)


def test_an_invitation_sets_no_password_of_an_account_that_is_there(people):
    secret = invitation(people, "elsewhere@example.org")
    before = people["elsewhere"].password
    with pytest.raises(Conflict):
        accept_as_new(secret, PASSWORD)
    with pytest.raises(NotFound):
        set_password_by_link(secret, PASSWORD)
    assert User.objects.get(id=people["elsewhere"].id).password == before
    assert open_link(secret)  # and stays good for its owner


INVITATION_ENDS: dict[str, Callable[[Any], object]] = {
    "withdrawal": lambda p: withdraw_invitation(
        SYSTEM, Tenant.objects.get(path="acme/team").id, OneTimeLink.objects.get().id
    ),
    "a newer one": invitation,
    "the inviter's lost role": lambda p: RoleBinding.objects.filter(user=p["lead"]).delete(),
    "the inviter's removal": lambda p: remove_member(SYSTEM, Tenant.objects.get(path="acme").id, p["lead"].id),
    "the inviter's deactivation": lambda p: changed(p["lead"], is_active=False),
    "the inviter's lesser role": lambda p: RoleBinding.objects.filter(user=p["lead"]).update(role="viewer"),
    "the tenant's removal": lambda p: _without_tenant(),
}


def _without_tenant():
    RoleBinding.objects.filter(tenant__path="acme/team").delete()
    Tenant.objects.get(path="acme/team").delete()


@pytest.mark.parametrize("what", INVITATION_ENDS)
def test_an_invitation_is_ended_by(people, what):
    secret = invitation(people)
    INVITATION_ENDS[what](people)
    with pytest.raises(NotFound):
        accept_as_new(secret, PASSWORD)
    assert not User.objects.filter(email="new@example.org").exists()


def test_whoever_asks_by_an_invitation_whether_an_email_has_an_account_is_in_the_trail_and_soon_stopped(people, client):
    secret = invitation(people, "elsewhere@example.org")
    asked = {"link": secret, "step": "new", "password": PASSWORD, "password_again": PASSWORD}
    statuses = [client.post(LINK, asked).status_code for _ in range(MISSES_OF_AN_ADDRESS + 2)]
    assert statuses == [409] * MISSES_OF_AN_ADDRESS + [429] * 2
    entries = AuditEntry.objects.filter(action="invitation.accept")
    assert 1 <= entries.count() < MISSES_OF_AN_ADDRESS, "refusals of the same minute are one entry"
    assert {entry.outcome for entry in entries} == {"refused"}
    first = entries.exclude(detail__has_key="further")
    assert {entry.detail["why"] for entry in first} == {"email_has_account"}, (
        "a next minute tells the count of the last"
    )


def test_nobody_invites_to_more_than_they_hold_or_where_they_may_not(people):
    with pytest.raises(PermissionDenied):
        invitation(people, role=Role.ADMIN)
    with pytest.raises(NotFound):
        invitation(people, path="other")
    with pytest.raises(PermissionDenied):
        invitation(people, maker="member")
    for email in ("", "nobody", "a@b\x00.c", "x" * 300 + "@example.org"):
        with pytest.raises(Invalid):
            invitation(people, email=email)


def test_the_pages_of_an_invitation_say_the_same_whoever_is_invited(people, client):
    def page(email):
        text = client.post(LINK, {"link": invitation(people, email)}).content.decode()
        secrets = r'value="[^"]{20,}"|datetime="[^"]*"|title="[^"]*"'
        return re.sub(secrets, "", text.replace(email, "EMAIL").split("<main")[1])

    assert page("elsewhere@example.org") == page("nobody@example.org") == page("member@example.org")
    wrong = {
        client.post(
            LINK, {"link": invitation(people, f"{name}@example.org"), "step": "account", "old_password": "guess"}
        ).status_code
        for name in ("elsewhere", "nobody")
    }
    assert wrong == {401}


def test_an_invitation_is_accepted_on_its_page_by_signing_in(people, client):
    elsewhere = people["elsewhere"]
    elsewhere.set_password(PASSWORD)
    elsewhere.save()
    secret = invitation(people, elsewhere.email)
    wrong = client.post(LINK, {"link": secret, "step": "account", "old_password": "wrong"})
    assert (wrong.status_code, Membership.objects.filter(user=elsewhere).count()) == (401, 1)
    done = client.post(LINK, {"link": secret, "step": "account", "old_password": PASSWORD})
    assert done.status_code == 302
    assert client.get(done["Location"]).status_code == 200
    assert Membership.objects.filter(user=elsewhere).count() == 2
    again = client.post(LINK, {"link": invitation(people, elsewhere.email, role=Role.SUBMITTER)})
    assert f"Join as {elsewhere.email}" in again.content.decode()


def test_an_organisation_has_a_bounded_number_of_pending_invitations(people, monkeypatch):
    monkeypatch.setattr("tenancy.operations.links.MOST_INVITATIONS", 2)
    make_tenant("acme-two")
    invite(SYSTEM, Tenant.objects.get(path="acme-two").id, email="a@example.org", role=Role.VIEWER)
    for email in ("a@example.org", "b@example.org", "a@example.org"):
        invitation(people, email)
    with pytest.raises(Conflict):
        invitation(people, "c@example.org")
