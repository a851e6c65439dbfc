"""The balance of each node and hour against the ledger, and hours in which jobs paid too much: set aside, never changed."""

import csv
import io
from datetime import timedelta
from decimal import Decimal

import pytest
from django.db import IntegrityError, connection, transaction

from billing.engine.ledger import money
from billing.engine.months import midnight
from billing.engine.rating import READINGS_AN_HOUR
from billing.models import Meter, MeterDay, NegativeNodeHour, Price
from billing.operations import record_runs
from billing.operations.corrections import NewCorrection, correct_price
from billing.operations.node_hours import accept_node_hour, judge_node_hours
from billing.queries.node_hours import days_to_judge, judge
from billing.queries.pools import pools_of
from billing.queries.proof import newest_place
from foundation.clock import database_now
from foundation.problems import Conflict, NotFound, PermissionDenied
from tenancy.models import AuditEntry
from tenancy.queries import SYSTEM
from tests.builders import actor_for, bearer, bind, make_flavor, make_run, make_user
from tests.refusals import constraint_of

from .ledgers import OCTOBER, at, priced_cluster, settle_pending_checks
from .test_idle import offered

pytestmark = pytest.mark.django_db
DAY = at(5).date()


@pytest.fixture
def north():
    """A cluster with a node of two GPUs at 2.333333."""
    cluster = priced_cluster(amount="2.333333", cpu_price=Decimal("0.011"))
    offered(cluster, units=2)
    return cluster


def ran(cluster, start, until, node="n1", tenant="acme/one", **more):
    record_runs([make_run(cluster, tenant, started_at=start, until_at=until, node=node, **more)])


def negative():
    """What is set aside, without superseded rows."""
    rows = NegativeNodeHour.objects.exclude(state="superseded").order_by("hour", "node")
    return [(row.node, row.hour.hour, row.cause, row.state) for row in rows]


def test_each_hour_adds_up_and_all_of_them_to_what_the_ledger_charged_and_the_pool_cost(north):
    make_flavor(north, "cpu", gpu_model="")
    offered(north, "n2", start=at(5, 3) + timedelta(minutes=20), until=at(5, 9), units=1)
    for number in range(7):
        start = at(5, number) + timedelta(seconds=1237 * number)
        ran(
            north,
            start,
            start + timedelta(minutes=97, milliseconds=number),
            node=("n1", "n2")[number % 2],
            cpu_millicores=3001,
        )
    judged = judge(DAY)
    assert judged.errors == ()
    assert len([one for one in judged.hours if one.node == "n1"]) == 24
    for one in judged.hours:
        assert one.balance.charged + one.balance.overhead + one.balance.idle == one.balance.cost
    worth = pools_of([north.id], midnight(DAY), midnight(DAY) + timedelta(days=1)).worth
    assert sum(one.balance.cost for one in judged.hours) == sum(each.whole for each in worth.values())
    charged = sum(one.balance.charged for one in judged.hours)
    exact = sum(day.cost for day in MeterDay.objects.filter(day=DAY))
    assert 0 <= charged - int(exact * 10**12) * READINGS_AN_HOUR < MeterDay.objects.count() * READINGS_AN_HOUR
    assert judge_node_hours() == ()


def test_full_nodes_have_no_idle_to_the_last_digit(north):
    for _ in range(2):
        ran(north, at(5, 1), at(5, 3), cpu_millicores=32_000, memory_mib=512)
    found = {one.hour.hour: one.balance for one in judge(DAY).hours}
    assert (found[1].idle, found[2].idle) == (0, 0)
    assert not any(one.is_negative for one in found.values())


def test_what_jobs_paid_too_much_is_set_aside_with_its_cause_and_its_runs(north):
    offered(north, "late", start=at(5, 2) + timedelta(minutes=30), units=1)
    ran(north, at(5, 2), at(5, 3), node="late", workload_name="early bird")
    ran(north, at(5, 4), at(5, 5), node="never")
    for _ in range(3):
        ran(north, at(5, 6), at(5, 7), cpu_millicores=30_000)
    for uid in ("pod", "pod~1"):
        ran(north, at(5, 8), at(5, 9), source_uid=uid, cpu_millicores=60_000)
    assert judge_node_hours() == ()
    assert negative() == [
        ("late", 2, "node_seen_late", "open"), ("never", 4, "unknown_node", "open"), ("n1", 6, "overlap", "open"),
        ("n1", 8, "double_report", "open"),
    ]  # fmt: skip
    row = NegativeNodeHour.objects.get(node="late")
    assert (row.organisation.path, row.cost < row.charged) == ("acme", True)
    (run,) = row.runs
    assert (run["job_name"], run["tenant"], Decimal(run["charged"])) == ("early bird", "acme/one", row.charged)
    assert sum(
        Decimal(each["charged"]) for each in NegativeNodeHour.objects.get(cause="overlap").runs
    ) == pytest.approx(NegativeNodeHour.objects.get(cause="overlap").charged, abs=Decimal("3e-12"))
    judge_node_hours(newest_place())
    assert NegativeNodeHour.objects.count() == 4


def test_late_truth_ends_it_and_the_same_numbers_open_it_again(north):
    ran(north, at(5, 4), at(5, 5), node="n9")
    judge_node_hours()
    offered(north, "n9", units=1)
    judge_node_hours(newest_place())
    (row,) = NegativeNodeHour.objects.all()
    assert (row.state, row.decided_by_name) == ("superseded", "")
    assert row.decided_at is not None
    before = newest_place()
    for _ in range(2):
        ran(north, at(5, 4), at(5, 5), node="n9")
    judge_node_hours(before)
    assert [(one.state, one.cause) for one in NegativeNodeHour.objects.order_by("seen_at")] == [
        ("superseded", "unknown_node"), ("open", "overlap"),
    ]  # fmt: skip


def test_a_corrected_price_is_late_truth_too(north):
    price = Price.objects.get()
    ran(north, at(5, 4), at(5, 5), node="n9")
    judge_node_hours()
    correct_price(SYSTEM, NewCorrection(price.id, Decimal(0), "USD", at(5), at(6), reason="it was free"))
    assert judge_node_hours(newest_place()) == ()
    assert negative() == []


def test_a_person_accepts_it_once_and_the_same_numbers_stay_accepted(north):
    ran(north, at(5, 4), at(5, 5), node="n9")
    judge_node_hours()
    row = NegativeNodeHour.objects.get()
    viewer, finance, stranger = make_user(), make_user(), make_user()
    bind(viewer, "acme", "viewer")
    bind(finance, "acme", "finance")
    bind(stranger, "other", "finance")
    with pytest.raises(PermissionDenied):
        accept_node_hour(actor_for(viewer), row.id, "fine")
    with pytest.raises(NotFound):
        accept_node_hour(actor_for(stranger), row.id, "fine")
    assert accept_node_hour(actor_for(finance), row.id, "a node of a partner").state == "accepted"
    with pytest.raises(Conflict):
        accept_node_hour(actor_for(finance), row.id, "again")
    assert AuditEntry.objects.get(action="node_hour.accept").detail["note"] == "a node of a partner"
    judge_node_hours()
    assert negative() == [("n9", 4, "unknown_node", "accepted")]


def test_runs_that_do_not_say_their_node_and_days_before_the_history_are_not_judged(north):
    ran(north, at(5, 4), at(5, 5), node="")
    ran(north, OCTOBER - timedelta(hours=3), OCTOBER - timedelta(hours=2), node="n9")
    judge_node_hours()
    assert negative() == []
    assert all(one.balance.charged == 0 for one in judge(DAY).hours)


def test_time_that_was_metered_before_it_had_a_price_was_charged_to_no_job(north):
    ran(north, at(5, 4), at(5, 5), flavor="none", node="n1")
    assert judge(DAY).errors == ()
    assert {one.balance.charged for one in judge(DAY).hours} == {0}


def test_only_hours_that_have_ended_are_judged(north):
    today = database_now()
    offered(north, "n3", start=at(1, month=11), until=None)
    hours = [one.hour for one in judge(today.date()).hours]
    assert all(hour + timedelta(hours=1) <= today for hour in hours)
    assert len(set(hours)) == today.hour
    assert judge(today.date() + timedelta(days=2)).hours == ()


def test_the_days_of_new_segments_and_of_open_hours_are_judged(north):
    ran(north, at(5, 4), at(5, 5), node="n9")
    before = newest_place()
    assert DAY in days_to_judge(type(before)())
    assert DAY not in days_to_judge(before)
    judge_node_hours()
    assert DAY in days_to_judge(before)


def test_a_day_whose_charge_is_not_what_its_hours_say_is_an_error(north):
    ran(north, at(5, 4), at(5, 5))
    with connection.cursor() as cursor:
        cursor.execute("UPDATE billing_meterday SET cost = cost + 0.000000000001")
    (error,) = judge_node_hours()
    assert error.startswith(f"the hours of meter {Meter.objects.get().id} on 2026-10-05 add up to ")


def test_rows_that_cannot_be_true_do_not_stop_the_check_of_other_days(north):
    ran(north, at(5, 4), at(5, 5), node="n9")
    ran(north, at(6, 4), at(6, 5), node="n9")
    with connection.cursor() as cursor:
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
        cursor.execute("ALTER TABLE billing_usagesegment DROP CONSTRAINT segment_lies_within_a_day")
        cursor.execute("SET LOCAL session_replication_role = replica")
        cursor.execute(
            "UPDATE billing_usagesegment SET period = tstzrange(lower(period), 'infinity')"
            " WHERE lower(period) < '2026-10-06'"
        )
        cursor.execute("SET LOCAL session_replication_role = origin")
    (error,) = judge_node_hours()
    assert error.startswith(f"the hours of meter {Meter.objects.earliest('id').id} on 2026-10-05 ")
    assert [row[:3] for row in negative()] == [("n9", 4, "unknown_node")]


def test_a_day_that_cannot_be_checked_is_named(north, monkeypatch):
    ran(north, at(5, 4), at(5, 5), node="n9")
    monkeypatch.setattr("billing.queries.node_hours.RUNS", "SELECT 1 / 0 WHERE %(start)s < %(until)s")
    assert (
        "could not check the hours of nodes on 2026-10-05: a row makes it fail (division by zero)" in judge_node_hours()
    )


@pytest.mark.parametrize(
    ("statement", "constraint"),
    [
        ("UPDATE billing_meter SET node = 'other' WHERE node <> ''", "meter_keeps_what_it_was_opened_with"),
        ("UPDATE billing_negativenodehour SET cost = charged - 1", "node_hour_is_decided_once"),
        ("UPDATE billing_negativenodehour SET runs = '[]'", "node_hour_is_decided_once"),
        ("UPDATE billing_negativenodehour SET state = 'accepted', decided_at = now()", "accepted_node_hour_says_why"),
        ("UPDATE billing_negativenodehour SET state = 'superseded'", "accepted_node_hour_says_why"),
        ("DELETE FROM billing_negativenodehour", "ledger_is_append_only"),
        ("TRUNCATE billing_negativenodehour", "ledger_is_append_only"),
        ("""INSERT INTO billing_negativenodehour (id, organisation_id, cluster_id, node, hour, currency, cost, charged, cause, runs)
            SELECT gen_random_uuid(), organisation_id, cluster_id, 'x', hour, currency, 5, 5, cause, runs FROM billing_negativenodehour""",
         "negative_node_hour_is_negative"),
        ("""INSERT INTO billing_negativenodehour (id, organisation_id, cluster_id, node, hour, currency, cost, charged, cause, runs)
            SELECT gen_random_uuid(), organisation_id, cluster_id, node, hour + interval '1 minute', currency, cost, charged, cause, runs
            FROM billing_negativenodehour""", "node_hour_begins_with_an_hour"),
        ("""INSERT INTO billing_negativenodehour (id, organisation_id, cluster_id, node, hour, currency, cost, charged, cause, runs,
                state, decided_at, note)
            SELECT gen_random_uuid(), organisation_id, cluster_id, 'x', hour, currency, cost, charged, cause, runs, 'accepted', now(), 'x'
            FROM billing_negativenodehour""", "node_hour_begins_open"),
    ],
)  # fmt: skip
def test_the_database_refuses(north, statement, constraint):
    ran(north, at(5, 4), at(5, 5), node="n9", is_final=False)
    judge_node_hours()
    settle_pending_checks()
    with pytest.raises(IntegrityError) as refused, transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(statement)
    assert constraint_of(refused.value) == constraint


def test_an_accepted_hour_does_not_open_again(north):
    ran(north, at(5, 4), at(5, 5), node="n9")
    judge_node_hours()
    accept_node_hour(SYSTEM, NegativeNodeHour.objects.get().id, "yes")
    with pytest.raises(IntegrityError) as refused, transaction.atomic():
        NegativeNodeHour.objects.update(state="open", decided_at=None, note="")
    assert constraint_of(refused.value) == "node_hour_is_decided_once"


@pytest.fixture
def ask(client):
    def asked(path, role="finance", at_path="acme", body=None, **query):
        user = make_user()
        bind(user, at_path, role)
        if body is None:
            return client.get(f"/api/v1/{path}", query, headers=bearer(user))
        return client.post(f"/api/v1/{path}", body, content_type="application/json", headers=bearer(user))

    return asked


def test_finance_reads_decides_and_exports_over_http(north, ask):
    ran(north, at(5, 4), at(5, 5), node="n9", workload_name="=1+1")
    ran(north, at(5, 4), at(5, 5), node="n9", tenant="guest/lab", workload_name="secret")
    judge_node_hours()
    (item,) = ask("node-hours", state="open", organisation="acme", month="2026-10").json()["items"]
    assert (item["node"], item["cause"], item["idle"][0]) == ("n9", "unknown_node", "-")
    assert {(run["tenant"], run["job_name"]) for run in item["runs"]} == {("acme/one", "=1+1"), ("guest", None)}
    assert ask(f"node-hours/{item['id']}").json() == item
    assert ask("node-hours", at_path="acme/one").json()["items"] == []
    assert ask(f"node-hours/{item['id']}", at_path="acme/one").status_code == 404
    text = b"".join(ask("node-hours", format="csv").streaming_content).decode()
    rows = list(csv.DictReader(io.StringIO(text)))
    assert {(row["run_tenant"], row["run_job_name"]) for row in rows} == {("acme/one", "'=1+1"), ("guest", "")}
    assert "secret" not in text
    assert ask(f"node-hours/{item['id']}/accept", body={"note": ""}).status_code == 422
    assert ask(f"node-hours/{item['id']}/accept", role="viewer", body={"note": "x"}).status_code == 403
    assert ask(f"node-hours/{item['id']}/accept", body={"note": "known"}).json()["state"] == "accepted"
    assert ask(f"node-hours/{item['id']}/accept", body={"note": "known"}).status_code == 409
    for wrong in ({"state": "x"}, {"format": "pdf"}, {"month": "x"}):
        assert ask("node-hours", **wrong).status_code == 422


def test_the_balance_of_a_node_is_over_http(north, ask):
    ran(north, at(5, 4), at(5, 5))
    found = ask("node-hours/balance", cluster=str(north.id), day="2026-10-05", node="n1").json()
    assert len(found["items"]) == 24
    for item in found["items"]:
        assert sum(Decimal(item[name]) for name in ("charged", "overhead", "idle")) == Decimal(item["cost"])
    assert Decimal(found["items"][4]["charged"]) == MeterDay.objects.get().cost
    assert ask("node-hours/balance", cluster=str(north.id), day="2026-10-05", node="n7").json()["items"] == []
    assert ask("node-hours/balance", at_path="other", cluster=str(north.id), day="2026-10-05").status_code == 404
    for wrong in ({}, {"cluster": "x"}, {"cluster": str(north.id), "day": "5.10."}):
        assert ask("node-hours/balance", **wrong).status_code == 422


def test_the_pages_list_it_show_its_runs_and_take_the_decision(north, client):
    ran(north, at(5, 4), at(5, 5), node="n9", workload_name="<b>train</b>")
    judge_node_hours()
    row = NegativeNodeHour.objects.get()
    user = make_user()
    bind(user, "acme", "finance")
    client.force_login(user)
    text = client.get("/idle/node-hours/").content.decode()
    assert "unknown node" in text
    assert "state=open&amp;format=csv" in text
    shown = client.get(f"/idle/node-hours/{row.id}/").content.decode()
    assert "&lt;b&gt;train&lt;/b&gt;" in shown
    assert "Accept these numbers" in shown
    assert client.post(f"/idle/node-hours/{row.id}/", {"note": " "}).status_code == 422
    assert client.post(f"/idle/node-hours/{row.id}/", {"note": "known"}).status_code == 302
    assert "None" in client.get("/idle/node-hours/?state=open").content.decode()
    assert "n9" in client.get("/idle/node-hours/?state=all").content.decode()
    assert client.get("/idle/node-hours/?state=x").status_code == 422
    assert money(1) == Decimal("1e-12")
