"""Unusual spending: found once, decided by people with a reason, closed when a correction removes its cause."""

from decimal import Decimal

import pytest
from django.db import DatabaseError, connection, transaction
from django.urls import reverse

from billing.models import SpendAnomaly
from billing.operations import record_runs
from billing.operations.anomalies import decide_anomaly, inspect_spending
from billing.queries.anomalies import grouped, jobs_behind, visible_anomalies
from foundation.problems import Conflict, NotFound, PermissionDenied
from tenancy.models import AuditEntry
from tenancy.queries import SYSTEM, actor_for
from tests.builders import bearer, bind, make_run, make_user
from tests.refusals import constraint_of

from .test_budget_corrections import correct, post
from .test_forecasts import A_DAY, north, past_days, today

pytestmark = pytest.mark.django_db


@pytest.fixture
def cluster():
    found = north()
    past_days(found, "acme/one", days=40)
    return found


def spike(cluster, days_ago=1, path="acme/one", pods=10):
    """Ten pods for a whole day: 600 instead of the usual 10."""
    start = today() - days_ago * A_DAY
    record_runs([
        make_run(cluster, path, started_at=start, until_at=start + A_DAY, workload_name=f"sweep {number}")
        for number in range(pods)
    ])  # fmt: skip


def person(role="finance", path="acme"):
    user = make_user()
    bind(user, path, role)
    return user


def test_a_day_that_stands_out_is_found_once_with_the_jobs_behind_it(cluster):
    inspect_spending()
    assert not SpendAnomaly.objects.exists()
    spike(cluster)
    inspect_spending()
    inspect_spending()
    found = SpendAnomaly.objects.get()
    assert (found.cost, found.usual, found.spread, found.state) == (610, 10, 0, "open")
    assert (found.tenant_path, found.flavor, found.day) == ("acme/one", "h100", (today() - A_DAY).date())
    jobs = jobs_behind(found)
    assert len(jobs) == 11
    assert {one.name for one in jobs[:10]} == {f"sweep {number}" for number in range(10)}
    assert sum(one.cost for one in jobs) == found.cost


def test_later_time_of_the_day_changes_what_is_open_and_not_what_is_decided(cluster):
    spike(cluster)
    inspect_spending()
    spike(cluster, pods=1)
    inspect_spending()
    found = SpendAnomaly.objects.get()
    assert found.cost == 670
    decide_anomaly(SYSTEM, found.id, "explained", "the sweep before the deadline")
    spike(cluster, pods=1)
    inspect_spending()
    found = SpendAnomaly.objects.get()
    assert (found.cost, found.state) == (670, "explained")


def test_today_is_not_compared_and_neither_is_what_is_known_too_short(cluster):
    spike(cluster, days_ago=0)
    inspect_spending()
    assert not SpendAnomaly.objects.exists()


def test_a_correction_that_removes_the_cause_closes_it_with_the_reason_and_another_opens_it_again(cluster):
    spike(cluster)
    inspect_spending()
    post()
    correct("0.01", today() - A_DAY, today())
    post()
    inspect_spending()
    found = SpendAnomaly.objects.get()
    assert (found.state, found.decided_by_name) == ("closed", "")
    assert "after corrections the day costs 2.44 USD" in found.reason
    with pytest.raises(Conflict):
        decide_anomaly(SYSTEM, found.id, "explained", "x")
    correct("2.5", today() - A_DAY, today())
    post()
    inspect_spending()
    found = SpendAnomaly.objects.get()
    assert (found.state, found.reason, found.decided_at, found.cost) == ("open", "", None, 610)


def test_adjoining_days_of_a_tenant_are_one_group(cluster):
    for days_ago in (1, 2, 5):
        spike(cluster, days_ago)
    past_days(cluster, "acme/two", days=1, hours=4)
    spike(cluster, 2, "acme/two")
    inspect_spending()
    groups = grouped(SpendAnomaly.objects.all())
    assert [(one.tenant_path, len(one.anomalies), (one.last - one.first).days) for one in groups] == [
        ("acme/one", 2, 1), ("acme/two", 1, 0), ("acme/one", 1, 0),
    ]  # fmt: skip
    assert groups[0].excess == 1200


def test_who_sees_and_decides(cluster):
    spike(cluster)
    inspect_spending()
    found = SpendAnomaly.objects.get()
    viewer, stranger, sibling = person("viewer"), person("admin", "other"), person("admin", "acme/two")
    with pytest.raises(PermissionDenied):
        decide_anomaly(actor_for(viewer), found.id, "dismissed", "x")
    for user in (stranger, sibling):
        assert not visible_anomalies(actor_for(user)).exists()
        with pytest.raises(NotFound):
            decide_anomaly(actor_for(user), found.id, "dismissed", "x")
    manager = person("manager", "acme/one")
    decided = decide_anomaly(actor_for(manager), found.id, "dismissed", "a test of the quota")
    assert (decided.state, decided.reason, decided.decided_by_id) == ("dismissed", "a test of the quota", manager.id)
    entry = AuditEntry.objects.get(action="anomaly.dismiss")
    assert entry.detail["reason"] == "a test of the quota"
    with pytest.raises(Conflict):
        decide_anomaly(actor_for(manager), found.id, "explained", "again")


def test_the_api_and_the_pages(cluster, client):
    user = person()
    own = bearer(user)
    client.force_login(user)
    assert "Nothing unusual is open" in client.get(reverse("anomalies")).content.decode()
    spike(cluster)
    inspect_spending()
    listed = client.get("/api/v1/anomalies?state=open&tenant=acme", headers=own).json()["items"]
    assert [(one["cost"], one["usual"], one["decided_by"]) for one in listed] == [("610.00", "10.00", None)]
    path = f"/api/v1/anomalies/{listed[0]['id']}"
    assert len(client.get(path, headers=own).json()["jobs"]) == 11
    assert client.get("/api/v1/anomalies?state=odd", headers=own).status_code == 422
    for body in ({"outcome": "open", "reason": "x"}, {"outcome": "explained"}, {"outcome": "explained", "reason": ""}):
        assert client.post(f"{path}/decide", body, content_type="application/json", headers=own).status_code == 422
    page = reverse("anomaly", args=[listed[0]["id"]])
    shown = client.get(page).content.decode()
    assert "sweep 3" in shown
    assert "600.00 USD more than usual" in client.get(reverse("anomalies")).content.decode()
    for values in ({"outcome": "odd", "reason": "x"}, {"outcome": "explained", "reason": " "}, {}):
        assert client.post(page, values).status_code == 422
    assert client.post(page, {"outcome": "explained", "reason": "<b>sweep</b>"}).status_code == 302
    assert "&lt;b&gt;sweep" in client.get(reverse("anomalies")).content.decode()
    body = {"outcome": "dismissed", "reason": "x"}
    answer = client.post(f"{path}/decide", body, content_type="application/json", headers=own)
    assert (answer.status_code, answer.json()["code"]) == (409, "anomaly_not_open")
    assert client.get(page).status_code == 200


DECIDED = "decided_by_name = 'x', decided_at = now()"
ATTACKS = {
    "no more than usual": ("SET cost = usual", "anomaly_is_more_than_usual"),
    "less than nothing usual": ("SET usual = -1", "anomaly_is_more_than_usual"),
    "explained by nobody": ("SET state = 'explained', reason = 'x', decided_at = now()", "anomaly_says_who_and_why"),
    "explained without a reason": (f"SET state = 'explained', {DECIDED}", "anomaly_says_who_and_why"),
    "explained at no time": ("SET state = 'explained', reason = 'x', decided_by_name = 'x'", "anomaly_says_who_and_why"),
    "closed by a person": (f"SET state = 'closed', reason = 'x', {DECIDED}", "anomaly_says_who_and_why"),
    "open with a reason": ("SET reason = 'x'", "anomaly_says_who_and_why"),
    "another state": ("SET state = 'odd'", "anomaly_says_who_and_why"),
    "another day": ("SET day = day - 1", "anomaly_goes_its_way"),
    "another figure with the decision": (
        f"SET cost = cost + 1, state = 'explained', reason = 'x', {DECIDED}", "anomaly_goes_its_way",
    ),
}  # fmt: skip


def refused_by(statement):
    with pytest.raises(DatabaseError) as refused, transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(statement)
    return constraint_of(refused.value)


def test_the_database_refuses(cluster):
    spike(cluster)
    inspect_spending()
    for name, (change, constraint) in ATTACKS.items():
        assert refused_by(f"UPDATE billing_spendanomaly {change}") == constraint, name
    assert refused_by("DELETE FROM billing_spendanomaly") == "ledger_is_append_only"
    copy = (
        "INSERT INTO billing_spendanomaly (id, organisation_id, tenant_id, tenant_path, cluster_id, flavor, currency, day,"
        " cost, usual, spread, state, reason, decided_by_name) SELECT gen_random_uuid(), organisation_id, tenant_id,"
        " tenant_path, cluster_id, flavor, currency, {day}, cost, usual, spread, 'open', '', '' FROM billing_spendanomaly"
    )
    assert refused_by(copy.format(day="day")) == "one_anomaly_a_day"
    assert refused_by(copy.format(day="current_date")) == "anomaly_begins_open"
    decide_anomaly(SYSTEM, SpendAnomaly.objects.get().id, "explained", "a sweep")
    for change in (
        "reason = 'y'",
        "state = 'open', reason = '', decided_by_name = '', decided_at = NULL",
        "cost = 700",
    ):
        assert refused_by(f"UPDATE billing_spendanomaly SET {change}") == "anomaly_goes_its_way"
    assert SpendAnomaly.objects.get().cost == Decimal(610)
