"""Unusual spending: found once over all clusters, decided by people with a reason, closed when a correction removes its cause."""

import re
from datetime import date
from decimal import Decimal

import pytest
from django.db import DatabaseError, connection, transaction
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from billing.models import SpendAnomaly
from billing.operations import record_runs
from billing.operations.anomalies import decide_anomaly, inspect_spending
from billing.queries.anomalies import FIRST_DAYS, clusters_behind, grouped, jobs_behind, known_since, visible_anomalies
from foundation.problems import Conflict, NotFound, PermissionDenied
from tenancy.models import AuditEntry, Tenant
from tenancy.operations import change_tenant
from tenancy.queries import SYSTEM, actor_for
from tests.builders import bearer, bind, make_run, make_tenant, make_user
from tests.laws import examples
from tests.refusals import constraint_of

from .ledgers import priced_cluster
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
    clusters = clusters_behind(found)
    assert [(one.name, one.cost, one.week_before) for one in clusters] == [("north", 610, 10)]
    jobs = jobs_behind(found, clusters)
    assert len(jobs) == 11
    assert {one.name for one in jobs[:10]} == {f"sweep {number}" for number in range(10)}
    assert sum(one.cost for one in jobs) == found.cost


@pytest.fixture
def three():
    """Clusters with the same flavor at the same price."""
    make_tenant("acme/one")
    return [priced_cluster(name, since=today() - 100 * A_DAY) for name in ("north", "south", "west")]


def spend(clusters, days, path="acme/one"):
    """A run of one hour on each of these clusters and days, with the given number of GPUs."""
    record_runs([
        make_run(cluster, path, started_at=today() - ago * A_DAY, until_at=today() - ago * A_DAY + A_DAY / 24, gpu_units=gpus)
        for ago, parts in days.items() for cluster, gpus in zip(clusters, parts, strict=True) if gpus
    ])  # fmt: skip


parts_of_a_day = st.tuples(*[st.integers(0, 9)] * 3)


@pytest.mark.law
@given(st.lists(parts_of_a_day, min_size=40, max_size=40), st.sampled_from([None, 1, 3]))
@examples(6, suppressed=[HealthCheck.function_scoped_fixture])
def test_spending_that_moves_between_clusters_is_usual_and_a_jump_over_many_is_one_finding(three, weights, jump):
    """Each day costs the same, however it is divided; with a jump, one day costs ten times as much on all clusters."""
    with transaction.atomic():
        usual = {ago: _divided(20, weights[ago - 1]) for ago in range(1, 41)}
        if jump:
            usual[jump] = tuple(10 * gpus for gpus in usual[jump])
        spend(three, usual)
        inspect_spending()
        found = list(SpendAnomaly.objects.values_list("day", "cost", "usual", "cluster"))
        assert found == ([((today() - jump * A_DAY).date(), 500, 50, None)] if jump else [])
        for one in SpendAnomaly.objects.all():
            behind = clusters_behind(one)
            assert sum(each.cost for each in behind) == 500
            assert sum(each.week_before for each in behind) == 50
            assert sum(job.cost for job in jobs_behind(one, behind)) == 500
        transaction.set_rollback(True)


def _divided(gpus, weights):
    """The GPUs in whole parts by these weights."""
    whole = sum(weights) or 1
    first, second = (gpus * weight // whole for weight in weights[:2])
    return first, second, gpus - first - second


def test_a_renamed_team_spends_as_usual():
    cluster = north()
    spend([cluster], dict.fromkeys(range(2, 41), (60,)))
    change_tenant(SYSTEM, Tenant.objects.get(path="acme/one").id, name="two")
    spend([cluster], {1: (60,)}, "acme/two")
    inspect_spending()
    assert not SpendAnomaly.objects.exists()
    spike(cluster, path="acme/two")
    inspect_spending()
    assert SpendAnomaly.objects.get().tenant_path == "acme/two"


def found_per_cluster(cluster, days_ago, cost="400"):
    """A finding of an earlier version, which compared each cluster apart."""
    tenant = Tenant.objects.get(path="acme/one")
    return SpendAnomaly.objects.create(
        organisation=Tenant.objects.get(path="acme"), tenant=tenant, tenant_path=tenant.path, cluster=cluster, flavor="h100",
        currency="USD", day=(today() - days_ago * A_DAY).date(), cost=cost, usual=10, spread=0,
    )  # fmt: skip


def test_findings_of_single_clusters_give_way_to_one_and_decisions_about_them_remain(three):
    cluster = three[0]
    past_days(cluster, "acme/one", days=80)
    for days_ago in (1, 2, 3, 40):
        spike(cluster, days_ago)
    decided = [found_per_cluster(cluster, 1), found_per_cluster(cluster, 2)]
    still_open = [found_per_cluster(three[1], 2), found_per_cluster(cluster, 20), found_per_cluster(cluster, 40)]
    for one in decided:
        decide_anomaly(SYSTEM, one.id, "explained", "a sweep")
    for _ in range(2):
        inspect_spending()
        whole = SpendAnomaly.objects.filter(cluster=None).order_by("-day").values_list("day", "state", "cost")
        assert [((today().date() - day).days, state, cost) for day, state, cost in whole] == [
            (2, "open", 610), (3, "open", 610), (40, "open", 610),
        ]  # fmt: skip
        assert {one.reason for one in SpendAnomaly.objects.filter(id__in=[one.id for one in decided])} == {"a sweep"}
        for one in still_open:
            one.refresh_from_db()
            assert (one.state, one.decided_by_name) == ("closed", "")
            assert "over all clusters" in one.reason
    assert sum(job.cost for job in jobs_behind(decided[0], clusters_behind(decided[0]))) == 610


def test_a_finding_of_a_single_cluster_says_so(three, client):
    past_days(three[0], "acme/one", days=2)
    past_days(three[1], "acme/one", days=2)
    found = found_per_cluster(three[1], 1)
    user = person()
    client.force_login(user)
    for page in (reverse("anomalies"), reverse("anomaly", args=[found.id])):
        assert "on south alone" in client.get(page).content.decode()
    shown = client.get(f"/api/v1/anomalies/{found.id}", headers=bearer(user)).json()
    assert shown["cluster"] == "south"
    assert shown["clusters"] == [{"cluster": "south", "cost": "10.00", "week_before": "0.00"}]
    assert [job["cluster"] for job in shown["jobs"]] == ["south"]


def test_what_is_read_is_bounded_however_old_an_open_day_is(cluster):
    old, recent = found_per_cluster(cluster, 92), found_per_cluster(cluster, 91)
    with CaptureQueriesContext(connection) as seen:
        inspect_spending()
    read = [date.fromisoformat(day) for query in seen for day in re.findall(r"day >= '([0-9-]+)'", query["sql"])]
    assert min(read) == (today() - (91 + 56) * A_DAY).date()
    old.refresh_from_db()
    recent.refresh_from_db()
    assert (old.state, old.cost, recent.state) == ("open", 400, "closed")


def test_the_first_day_of_an_organisation_is_one_row_of_an_index_however_many_days_it_has(cluster):
    past_days(cluster, "other/one", days=70)
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE billing_tenantday; ANALYZE tenancy_tenant; SET LOCAL enable_seqscan = off")
        cursor.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {FIRST_DAYS}")
        nodes = list(_nodes(cursor.fetchone()[0][0]["Plan"]))
    read = [node for node in nodes if node.get("Relation Name") == "billing_tenantday"]
    assert [(node["Index Name"], node["Actual Rows"], node["Actual Loops"]) for node in read] == [
        ("days_by_organisation", 1, 2)
    ]
    firsts = {Tenant.objects.get(id=key).path: (today().date() - day).days for key, day in known_since().items()}
    assert firsts == {"acme": 40, "other": 70}


def _nodes(plan):
    yield plan
    for part in plan.get("Plans", ()):
        yield from _nodes(part)


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
    shown = client.get(path, headers=own).json()
    assert (len(shown["jobs"]), shown["jobs"][0]["cluster"], shown["cluster"]) == (11, "north", None)
    assert shown["clusters"] == [{"cluster": "north", "cost": "610.00", "week_before": "10.00"}]
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


COPY = """
INSERT INTO billing_spendanomaly
    (id, organisation_id, tenant_id, tenant_path, cluster_id, flavor, currency, day, cost, usual, spread, state, reason, decided_by_name)
SELECT gen_random_uuid(), organisation_id, tenant_id, {path}, {cluster}, flavor, currency, {day}, cost, usual, spread, 'open', '', ''
  FROM billing_spendanomaly
"""
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
    assert refused_by(COPY.format(path="'other'", cluster="NULL", day="day")) == "one_anomaly_a_day_of_all_clusters"
    assert refused_by(COPY.format(path="tenant_path", cluster="NULL", day="current_date")) == "anomaly_begins_open"
    of_one = COPY.format(path="tenant_path", cluster=f"'{cluster.id}'::uuid", day="day")
    with connection.cursor() as cursor:
        cursor.execute(of_one)
    assert refused_by(f"{of_one} WHERE cluster_id IS NULL") == "one_anomaly_a_day"
    assert (
        refused_by("UPDATE billing_spendanomaly SET cluster_id = NULL WHERE cluster_id IS NOT NULL")
        == "anomaly_goes_its_way"
    )
    decide_anomaly(SYSTEM, SpendAnomaly.objects.get(cluster=None).id, "explained", "a sweep")
    for change in (
        "reason = 'y'",
        "state = 'open', reason = '', decided_by_name = '', decided_at = NULL",
        "cost = 700",
    ):
        assert (
            refused_by(f"UPDATE billing_spendanomaly SET {change} WHERE cluster_id IS NULL") == "anomaly_goes_its_way"
        )
    assert SpendAnomaly.objects.get(cluster=None).cost == Decimal(610)
