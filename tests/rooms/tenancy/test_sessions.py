"""The end of sessions and tokens: on the account's page, over the API, and by those who help."""

import json

import pytest
from django.test import Client

from tenancy.models import ApiToken, AuditEntry, User
from tests.builders import bearer, bind, make_user

pytestmark = pytest.mark.django_db
OLD, NEW = "correct horse battery", "another horse battery"


@pytest.fixture
def ann():
    user = make_user("ann@example.org")
    user.set_password(OLD)
    user.save()
    bind(user, "acme/team", "submitter")
    return user


def signed_in(user):
    client = Client()
    client.force_login(User.objects.get(id=user.id))
    return client


def is_in(client):
    return client.get("/api/v1/me").status_code == 200


def typed(old=OLD, new=NEW, again=None):
    return {"old_password": old, "new_password": new, "new_password_again": again or new}


def test_a_password_change_ends_all_but_the_session_that_made_it(ann):
    own, stolen, headers = signed_in(ann), signed_in(ann), [bearer(ann), bearer(ann)]
    page = own.get("/account/").content.decode()
    assert "at least 12 characters" in page
    assert own.post("/account/", typed()).status_code == 302
    assert "2 API tokens are revoked" in own.get("/account/").content.decode()
    assert is_in(own)
    assert not is_in(stolen)
    assert [Client().get("/api/v1/me", headers=one).status_code for one in headers] == [401, 401]
    assert Client().login(username=ann.email, password=NEW)
    entry = AuditEntry.objects.get(action="user.change_password")
    assert (entry.actor_id, entry.detail) == (ann.id, {"tokens_revoked": 2})


def test_an_open_page_of_a_session_that_ended_goes_to_the_sign_in_at_its_next_poll(ann):
    stolen, own = signed_in(ann), signed_in(ann)
    poll = {"HX-Request": "true"}
    assert stolen.get("/jobs/", headers=poll).status_code == 200
    own.post("/account/", typed())
    answer = stolen.get("/jobs/", headers=poll)
    assert (answer.status_code, answer["HX-Refresh"]) == (401, "true")


@pytest.mark.parametrize(
    ("body", "field"),
    [
        (typed(old="wrong"), "old_password"),
        (typed(old=""), "old_password"),
        (typed(new="short"), "new_password"),
        (typed(again="not the same at all"), "new_password_again"),
        (typed(new="x" * 2000), "new_password"),
        (typed(old="x" * 2000), "old_password"),
    ],
)
def test_a_password_change_that_is_refused_changes_nothing(ann, body, field):
    own, other, headers = signed_in(ann), signed_in(ann), bearer(ann)
    answer = own.post("/account/", body)
    assert answer.status_code == 422
    assert f'id="e-{field}"' in answer.content.decode()
    assert is_in(own)
    assert is_in(other)
    assert Client().get("/api/v1/me", headers=headers).status_code == 200
    assert User.objects.get(id=ann.id).check_password(OLD)


def test_a_stolen_session_guesses_the_password_no_faster_than_the_sign_in(ann):
    stolen = signed_in(ann)
    for _ in range(5):
        assert stolen.post("/account/", typed(old="a guess")).status_code == 422
    assert stolen.post("/account/", typed()).status_code == 429
    assert User.objects.get(id=ann.id).check_password(OLD)


@pytest.mark.parametrize("tokens", [True, False])
def test_one_signs_out_everywhere_but_here(ann, tokens):
    own, other, headers = signed_in(ann), signed_in(ann), bearer(ann)
    assert own.post("/account/end-sessions/", {"tokens": "1"} if tokens else {}).status_code == 302
    assert is_in(own)
    assert not is_in(other)
    assert Client().get("/api/v1/me", headers=headers).status_code == (401 if tokens else 200)


def end(caller, person, body=None, *scopes):
    return Client().post(
        f"/api/v1/people/{person.id}/end-sessions",
        json.dumps(body or {}),
        content_type="application/json",
        headers=bearer(caller, *scopes),
    )


def test_sessions_end_over_the_api_and_the_token_that_asks_is_spared(ann):
    session, kept, headers = signed_in(ann), bearer(ann), bearer(ann)
    answer = Client().post(
        f"/api/v1/people/{ann.id}/end-sessions", {"tokens": True}, content_type="application/json", headers=kept
    )
    assert (answer.status_code, answer.json()) == (200, {"tokens_revoked": 1})
    assert not is_in(session)
    assert Client().get("/api/v1/me", headers=headers).status_code == 401
    assert Client().get("/api/v1/me", headers=kept).status_code == 200


def test_who_may_end_anothers_sessions(ann):
    session = signed_in(ann)
    manager, foreign, admin = make_user(), make_user(), make_user()
    bind(manager, "acme", "manager")
    bind(foreign, "other", "admin")
    bind(admin, "acme", "admin")
    assert end(manager, ann).status_code == 403
    assert end(foreign, ann).status_code == 404
    assert end(admin, ann, {}, "write").status_code == 404
    assert end(ann, ann, {}, "read").status_code == 403
    assert is_in(session)
    assert end(admin, ann, {"tokens": True}).status_code == 200
    assert not is_in(session)
    assert AuditEntry.objects.get(action="user.end_sessions").actor_id == admin.id
    User.objects.filter(id=ann.id).update(is_staff=True)
    assert end(admin, ann).json()["code"] == "person_beyond_own"


def test_a_live_link_of_the_account_ends_with_a_password_change(ann, client):
    admin = make_user()
    bind(admin, "acme", "admin")
    made = (
        Client()
        .post(f"/api/v1/people/{ann.id}/links", b"{}", content_type="application/json", headers=bearer(admin))
        .json()
    )
    signed_in(ann).post("/account/", typed())
    assert client.post("/sign-in/link/", {"link": made["link"]}).status_code == 404


def test_ending_sessions_costs_a_request_with_a_token_no_further_query(ann, django_assert_num_queries):
    headers = bearer(ann)
    Client().get("/api/v1/me", headers=headers)
    with django_assert_num_queries(2):  # the token with its user, and the roles
        Client().get("/api/v1/me", headers=headers)
    assert ApiToken.objects.filter(user=ann).count() == 1
