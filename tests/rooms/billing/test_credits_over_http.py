"""Policies and lost work over HTTP and on the page: to each user what they may see and do."""

import re
from datetime import UTC, datetime

import pytest
import time_machine

from billing.models import CreditPolicy
from tenancy.models import AuditEntry
from tests.builders import bearer, bind, make_tenant, make_user

from .ledgers import priced_cluster
from .test_credits import close, lose, ran, waive

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
        "/lost-work/",
        {"organisation": "acme", "effective_from": "2026-10", "causes": ["spot", "device"], "what": "set"},
    )
    assert answer.status_code == 302
    assert CreditPolicy.objects.latest("id").causes == ["device", "spot"]
    for wrong in ({"effective_from": "soon"}, {"causes": ["<b>"]}, {"organisation": "other"}, {"organisation": ""}):
        given = {"organisation": "acme", "effective_from": "2026-10", "causes": ["spot"], "what": "set"} | wrong
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


def tried(client, user, **changes):
    body = {"organisation": "acme", "causes": ["spot"], "month": "2026-10"} | changes
    given = {name: value for name, value in body.items() if value is not None}
    return client.post("/api/v1/credit-policies/preview", given, content_type="application/json", headers=bearer(user))


def test_a_preview_writes_nothing_and_is_what_the_report_says_once_the_policy_is_set(client, lost):
    user = person()
    seen = tried(client, user).json()
    assert (seen["month"], seen["causes"], CreditPolicy.objects.count()) == ("2026-10", ["spot"], 1)
    assert not AuditEntry.objects.filter(actor_name=user.email).exists()
    assert [(one["cause"], one["credits"], one["credits_by_policy"]) for one in seen["items"]] == [
        ("node_lost", "-7.500000000000", "0.000000000000"),
        ("spot", "0.000000000000", "-10.000000000000"),
    ]
    assert seen["totals"] == [{
        "currency": "USD", "credits": "-7.500000000000", "credits_by_policy": "-10.000000000000", "difference": "-2.500000000000",
    }]  # fmt: skip
    assert post(client, user, POLICY | {"causes": ["spot"]}).status_code == 201
    report = client.get("/api/v1/lost-work?organisation=acme&month=2026-10", headers=bearer(user)).json()
    assert [one["credits"] for one in report["items"]] == [one["credits_by_policy"] for one in seen["items"]]
    again = tried(client, user).json()
    assert [one["difference"] for one in again["totals"]] == ["0.000000000000"]


def test_a_preview_of_the_last_month_is_the_default_and_one_of_the_future_is_refused(client, lost):
    user = person()
    with time_machine.travel(datetime(2026, 11, 9, tzinfo=UTC), tick=False):
        assert tried(client, user, month=None).json()["month"] == "2026-10"
    for wrong, field in (({"month": "2199-01"}, "month"), ({"month": "10"}, "month"), ({"causes": ["x"]}, "causes[0]")):
        refused = tried(client, user, **wrong)
        assert (refused.status_code, [one["field"] for one in refused.json()["errors"]]) == (422, [field])


def test_who_may_not_set_a_policy_previews_none(client, lost):
    assert tried(client, person(role="viewer")).status_code == 403
    assert tried(client, person("acme/two", "admin")).status_code == 404
    assert tried(client, person("other", "admin")).status_code == 404
    page = {"organisation": "acme", "effective_from": "2026-10", "causes": ["spot"], "preview_month": "2026-10"}
    client.force_login(person(role="viewer"))
    assert client.post("/lost-work/", page).status_code == 403


def test_the_page_previews_a_policy_and_keeps_what_was_chosen(client, lost):
    client.force_login(person())
    page = {
        "organisation": "acme",
        "effective_from": "2026-10",
        "causes": ["spot"],
        "preview_month": "2026-10",
        "what": "preview",
    }
    shown = client.post("/lost-work/", page)
    text = shown.content.decode().replace("\xa0", " ")
    assert (shown.status_code, CreditPolicy.objects.count()) == (200, 1)
    part = text.split('id="preview"', 1)[1].split("</section>", 1)[0]
    amounts = re.findall(r"(-?[0-9.]+) USD", part.replace("\u2212", "-"))
    assert amounts == ["-7.50", "0.00", "7.50", "0.00", "-10.00", "-10.00", "-7.50", "-10.00", "-2.50"]
    assert re.search(r'value="spot" checked', text)
    assert not re.search(r'value="node_lost" checked', text)
    for wrong in ({"preview_month": "x"}, {"preview_month": "2199-01"}, {"causes": ["<b>"]}, {"effective_from": ""}):
        assert client.post("/lost-work/", page | wrong).status_code == 422, wrong
    empty = client.post("/lost-work/", page | {"preview_month": "2026-09"}).content.decode()
    assert "No lost work with a price in this month" in empty
    assert CreditPolicy.objects.count() == 1


def test_a_closed_month_can_be_previewed_although_no_policy_may_begin_with_it(client, lost):
    assert close()
    user = person()
    assert tried(client, user).json()["totals"][0]["credits_by_policy"] == "-10.000000000000"
    assert post(client, user, POLICY).status_code == 409
