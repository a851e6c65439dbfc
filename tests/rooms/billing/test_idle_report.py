"""The report of idle capacity: what it shows while a month is open and once it is closed, to whom, and over HTTP."""

from datetime import date
from decimal import Decimal

import pytest

from billing.models import NegativeIdle, SharingPolicy
from billing.operations import record_runs
from billing.queries import usage_report
from billing.queries.sharing_report import sharing_report
from foundation.problems import NotFound
from tenancy.queries import SYSTEM, actor_for
from tests.builders import bearer, bind, make_run, make_user

from .ledgers import OCTOBER, at, priced_cluster
from .test_idle import MONTH, NOVEMBER, close, offered, policy, used

pytestmark = pytest.mark.django_db
UNIT = 10**12


@pytest.fixture
def north():
    cluster = priced_cluster()
    offered(cluster)
    return cluster


def person(path, role="finance"):
    user = make_user()
    bind(user, path, role)
    return user


def shares(report):
    return {one.tenant: (one.direct / UNIT, one.idle / UNIT, one.platform / UNIT) for one in report.tenants}


def test_an_open_month_shows_what_its_close_would_post(north):
    policy(platform="even", platform_cost=Decimal(10), platform_currency="USD")
    used(north, one=4, two=2)
    before = sharing_report(SYSTEM, "acme", MONTH)
    assert not before.is_final
    assert shares(before) == {"acme/one": (10, 30, 5), "acme/two": (5, 15, 5)}
    assert close()
    after = sharing_report(SYSTEM, "acme", MONTH)
    assert after.is_final
    assert shares(after) == shares(before)
    assert [(one.key, one.balance, one.shared) for one in after.pools] == [
        (one.key, one.balance, one.shared) for one in before.pools
    ]
    (bridge,) = after.bridges
    assert after.bridges == before.bridges
    parts = (bridge.charged, bridge.idle_shared, bridge.idle_central, bridge.overhead, bridge.platform_shared)
    assert [part / UNIT for part in parts] == [15, 45, 1800, 0, 10]
    assert sum(parts) + bridge.platform_central == bridge.total == 1870 * UNIT


def test_what_tenants_are_charged_before_sharing_is_what_the_usage_report_says(north):
    record_runs([make_run(north, "acme/one", started_at=at(5), until_at=at(5, 7), gpu_units=1, is_final=False)])
    used(north, two=3)
    report = sharing_report(SYSTEM, "acme", MONTH)
    rows = usage_report(SYSTEM, "acme", OCTOBER, NOVEMBER, ["tenant"]).rows
    assert {row.keys["tenant"]: row.cost for row in rows} == {
        one.tenant: Decimal(one.direct).scaleb(-12).quantize(Decimal("1e-6")) for one in report.tenants
    }


def test_without_a_policy_or_history_nothing_is_shared():
    cluster = priced_cluster()
    used(cluster, one=4)
    report = sharing_report(SYSTEM, "acme", MONTH)
    assert shares(report) == {"acme/one": (10, 0, 0)}
    assert report.pools == ()
    (bridge,) = [*report.bridges]
    assert (bridge.outside / UNIT, bridge.total / UNIT) == (10, 10)


def test_a_team_sees_its_own_rows_only(north):
    policy()
    used(north, one=4, two=2)
    for is_closed in (False, True):
        if is_closed:
            assert close()
        report = sharing_report(actor_for(person("acme/one", "viewer")), "acme", MONTH)
        assert list(shares(report)) == ["acme/one"]
        assert (report.pools, report.bridges) == ((), ())
        with pytest.raises(NotFound):
            sharing_report(actor_for(person("other")), "acme", MONTH)


def test_over_http(client, north):
    used(north, one=4)
    headers = bearer(person("acme"))
    body = {
        "organisation": "acme", "effective_from": "2026-10", "idle": "proportional", "platform": "fixed",
        "platform_cost": {"amount": "12.50", "currency": "USD"}, "platform_weights": [{"tenant": "acme/one", "weight": 1}],
    }  # fmt: skip
    created = client.post("/api/v1/sharing-policies", body, "application/json", headers=headers)
    assert created.status_code == 201, created.content
    listed = client.get("/api/v1/sharing-policies", headers=headers).json()["items"]
    assert listed == [created.json()]
    shown = client.get("/api/v1/idle?organisation=acme&month=2026-10", headers=headers).json()
    assert shown["tenants"] == [
        {
            "tenant": "acme/one", "currency": "USD", "direct": "10.000000000000", "idle": "50.000000000000",
            "platform": "12.500000000000", "credits": "0.000000000000", "commitment": "0.000000000000", "total": "72.500000000000",
        }
    ]  # fmt: skip
    assert len(shown["pools"]) == 31
    text = client.get("/api/v1/idle?organisation=acme&month=2026-10&format=csv", headers=headers)
    assert text["Content-Disposition"] == 'attachment; filename="idle-2026-10-so-far.csv"'
    assert text.content.decode().splitlines()[0].startswith("cluster,cluster_id,flavor,day,currency,cost,charged")


def test_a_preview_over_http_writes_nothing_and_is_what_the_report_says_once_the_policy_is_set(client, north):
    used(north, one=4)
    headers = bearer(person("acme"))
    body = {"organisation": "acme", "effective_from": "2026-10", "idle": "proportional"}

    def ask(which, **more):
        return client.post(f"/api/v1/sharing-policies{which}", body | more, "application/json", headers=headers)

    seen = ask("/preview", month="2026-10").json()
    assert seen == {
        "organisation": "acme",
        "month": "2026-10",
        "tenants": [
            {
                "tenant": "acme/one", "currency": "USD", "total": "10.000000000000", "total_by_policy": "60.000000000000",
                "difference": "50.000000000000",
            }
        ],
    }  # fmt: skip
    assert not SharingPolicy.objects.exists()
    assert ask("").status_code == 201
    shown = client.get("/api/v1/idle?organisation=acme&month=2026-10", headers=headers).json()["tenants"]
    assert [one["total"] for one in shown] == [one["total_by_policy"] for one in seen["tenants"]]
    assert [one["difference"] for one in ask("/preview", month="2026-10").json()["tenants"]] == ["0.000000000000"]
    for wrong, status in (({"month": "2199-01"}, 422), ({"month": "soon"}, 422), ({"organisation": "other"}, 404)):
        assert ask("/preview", **wrong).status_code == status
    viewer = bearer(person("acme", "viewer"))
    refused = client.post("/api/v1/sharing-policies/preview", body, "application/json", headers=viewer)
    assert refused.status_code == 403


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ("", "required"),
        ("?organisation=acme&month=2026-13", "not_a_month"),
        ("?organisation=acme&month=9000-01", "in_the_future"),
        ("?organisation=acme&format=xml", "unknown_format"),
    ],
)
def test_a_wrong_question_is_refused(client, north, query, code):
    answer = client.get(f"/api/v1/idle{query}", headers=bearer(person("acme")))
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["code"] == code


@pytest.mark.parametrize(
    "change",
    [
        {"effective_from": "2026-10-01"},
        {"idle": "all"},
        {"platform_cost": {"amount": "-1", "currency": "USD"}},
        {"platform_weights": [{"tenant": "acme", "weight": 0}]},
        {"platform_weights": [{"tenant": "acme", "weight": 10**10}]},
        {"more": 1},
    ],
)
def test_a_wrong_policy_is_refused(client, north, change):
    body = {"organisation": "acme", "effective_from": "2026-10", "idle": "central", "platform": "fixed"} | change
    answer = client.post("/api/v1/sharing-policies", body, "application/json", headers=bearer(person("acme")))
    assert answer.status_code == 422, answer.content


def test_negative_idle_is_accepted_over_http(client, north):
    policy()
    record_runs([make_run(north, f"acme/{name}", started_at=at(5), until_at=at(5, 20)) for name in ("one", "two")])
    assert not close()
    headers = bearer(person("acme"))
    (row,) = client.get("/api/v1/negative-idle?state=open", headers=headers).json()["items"]
    assert (row["cost"]["amount"], row["charged"]["amount"]) == ("60.000000000000", "100.000000000000")
    assert row["day"] == str(date(2026, 10, 5))
    path = f"/api/v1/negative-idle/{row['id']}/accept"
    assert client.post(path, {"note": ""}, "application/json", headers=headers).status_code == 422
    assert (
        client.post(path, {"note": "known"}, "application/json", headers=bearer(person("acme", "viewer"))).status_code
        == 403
    )
    assert client.post(path, {"note": "known"}, "application/json", headers=headers).json()["state"] == "accepted"
    assert (
        client.post(path, {"note": "known"}, "application/json", headers=headers).json()["code"]
        == "negative_idle_decided"
    )
    assert NegativeIdle.objects.get().note == "known"
