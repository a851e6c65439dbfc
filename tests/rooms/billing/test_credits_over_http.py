"""Policies and lost work over HTTP and on the page: to each user what they may see and do."""

import pytest

from billing.models import CreditPolicy
from tests.builders import bearer, bind, make_tenant, make_user

from .ledgers import priced_cluster
from .test_credits import lose, ran, waive

pytestmark = pytest.mark.django_db
POLICY = {"organisation": "acme", "effective_from": "2026-10", "causes": ["spot", "node_lost"]}


def person(path="acme", role="finance"):
    make_tenant(path)
    user = make_user()
    bind(user, path, role)
    return user


@pytest.fixture
def lost():
    """Three of four hours of acme/one, and all of acme/two."""
    cluster = priced_cluster()
    waive("node_lost")
    lose(ran(cluster))
    lose(ran(cluster, "acme/two"), "spot", 0)


def post(client, user, body):
    return client.post("/api/v1/credit-policies", body, content_type="application/json", headers=bearer(user))


def test_a_policy_is_set_and_listed(client):
    user = person()
    made = post(client, user, POLICY)
    assert made.status_code == 201
    assert made.json()["causes"] == ["node_lost", "spot"]
    listed = client.get("/api/v1/credit-policies", headers=bearer(user)).json()["items"]
    assert listed == [made.json()]
    assert client.get("/api/v1/credit-policies", headers=bearer(person("acme/one"))).json()["items"] == []


@pytest.mark.parametrize(
    ("change", "status", "field"),
    [
        ({"effective_from": "2026-13"}, 422, "effective_from"),
        ({"effective_from": "10000-1"}, 422, "effective_from"),
        ({"causes": ["bad luck"]}, 422, "causes[0]"),
        ({"causes": "spot"}, 422, "causes"),
        ({"causes": ["spot"] * 50}, 422, "causes"),
        ({"more": 1}, 422, "more"),
        ({"organisation": "other"}, 404, None),
    ],
)
def test_what_makes_no_sense_is_refused(client, change, status, field):
    answer = post(client, person(), POLICY | change)
    assert answer.status_code == status, answer.content
    assert not CreditPolicy.objects.exists()
    if field:
        assert [one["field"] for one in answer.json()["errors"]] == [field]


def test_viewers_and_teams_set_none(client):
    assert post(client, person(role="viewer"), POLICY).status_code == 403
    assert post(client, person("acme/one", "admin"), POLICY).status_code == 404


def test_lost_work_is_shown_by_tenant_and_cause(client, lost):
    answer = client.get("/api/v1/lost-work?organisation=acme&month=2026-10", headers=bearer(person())).json()
    assert answer["causes"] == ["node_lost"]
    assert [(one["tenant"], one["cause"], one["cost"], one["credits"]) for one in answer["items"]] == [
        ("acme/one", "node_lost", "7.500000000000", "-7.500000000000"),
        ("acme/two", "spot", "10.000000000000", "0.000000000000"),
    ]
    assert answer["items"][0]["gpu_hours"] == "3.000000"
    own = client.get("/api/v1/lost-work?organisation=acme&month=2026-10", headers=bearer(person("acme/two", "viewer")))
    assert [one["tenant"] for one in own.json()["items"]] == ["acme/two"]
    for query, status in (("", 422), ("?organisation=acme&month=2199-01", 422), ("?organisation=other", 404)):
        assert client.get(f"/api/v1/lost-work{query}", headers=bearer(person())).status_code == status


def test_the_page_shows_it_and_sets_a_policy(client, lost):
    client.force_login(person())
    text = client.get("/lost-work/?month=2026-10").content.decode()
    for words in ("one</span>", "7.50 USD", "not charged: node lost", "Set the policy", "October 2026"):
        assert words in text
    answer = client.post(
        "/lost-work/", {"organisation": "acme", "effective_from": "2026-10", "causes": ["spot", "device"]}
    )
    assert answer.status_code == 302
    assert CreditPolicy.objects.latest("id").causes == ["device", "spot"]
    for wrong in ({"effective_from": "soon"}, {"causes": ["<b>"]}, {"organisation": "other"}, {"organisation": ""}):
        given = {"organisation": "acme", "effective_from": "2026-10", "causes": ["spot"]} | wrong
        assert client.post("/lost-work/", given).status_code in {404, 422}, wrong
    assert CreditPolicy.objects.count() == 2


def test_a_team_sees_its_own_rows_and_no_form(client, lost):
    client.force_login(person("acme/two", "viewer"))
    text = client.get("/lost-work/?month=2026-10").content.decode()
    assert "two</span>" in text
    assert "one</span>" not in text
    assert "Set the policy" not in text
    assert "No lost work in this month" in client.get("/lost-work/").content.decode()
    assert client.get("/lost-work/?organisation=other").status_code == 404
    assert client.get("/lost-work/?month=x").status_code == 422
