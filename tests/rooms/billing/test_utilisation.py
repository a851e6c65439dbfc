"""The report of utilisation: what was allocated, measured and used; what the database refuses; what others see of it."""

import csv
import io
from datetime import timedelta
from decimal import Decimal

import pytest
from django.db import DatabaseError, connection, transaction

from billing.models import Meter, TelemetryHour, UtilisationHour
from billing.operations import record_runs
from billing.queries import usage_report
from billing.queries.utilisation import utilisation_report
from clusters.operations.telemetry import WantedPrometheus, set_prometheus
from foundation.clock import now
from foundation.problems import Invalid
from tenancy.operations import change_tenant
from tenancy.queries import SYSTEM
from tests.builders import bearer, bind, make_run, make_user
from tests.refusals import constraint_of, refusal_of

from .ledgers import at, priced_cluster

pytestmark = pytest.mark.django_db
GROUPS = ("tenant", "cluster", "flavor", "user", "job", "day", "month")
MODEL = {"gpu_model": "H100-80GB", "sharing": "whole"}


def seen(meter, hour, utilisation="0.5", seconds=3600, **more):
    return UtilisationHour.objects.create(
        meter=meter, hour=hour, coverage_seconds=seconds, utilisation=Decimal(utilisation), **more
    )


def meter_of(cluster, path="acme/one", hours=2, *, start=None, **fields):
    run = make_run(
        cluster,
        path,
        started_at=start or at(5, 10),
        until_at=(start or at(5, 10)) + timedelta(hours=hours),
        **MODEL | fields,
    )
    record_runs([run])
    return Meter.objects.get(source_uid=run.source_uid)


@pytest.fixture
def october():
    """Two GPUs for two hours at 2.50: the first hour measured in full, of the second half an hour; and a pod that is not measured."""
    north = priced_cluster()
    meter = meter_of(north, gpu_units=2)
    seen(meter, at(5, 10), "0.5", sm_active="0.4", tensor_active="0.1", peak_memory_mib=40_960)
    seen(meter, at(5, 11), "0.1", 1800, sm_active="0.1", peak_memory_mib=20_480)
    meter_of(north, "acme/two", 1)
    return north


def report(words=(), path="", actor=SYSTEM):
    return utilisation_report(actor, path, at(1), at(1, month=11), words)


def test_the_numbers_of_a_row(october):
    one, two = report(("tenant",)).rows
    assert one.keys == {"tenant": "acme/one"}
    assert (one.allocated_gpu_hours, one.measured_gpu_hours, one.unmeasured_gpu_hours) == (4, 3, 1)
    assert (one.utilised_gpu_hours, one.utilisation) == (Decimal("1.1"), Decimal("0.366667"))
    assert (one.cost, one.measured_cost, one.waste, one.currency) == (10, Decimal("7.5"), Decimal("4.75"), "USD")
    assert (one.cost_per_allocated_gpu_hour, one.cost_per_utilised_gpu_hour) == (Decimal("2.5"), Decimal("6.818182"))
    assert (one.sm_active, one.tensor_active) == (Decimal("0.3"), Decimal("0.1"))
    assert (one.peak_memory_mib, one.peak_memory_ratio) == (40_960, Decimal("0.5"))
    assert (two.allocated_gpu_hours, two.measured_gpu_hours, two.unmeasured_gpu_hours) == (1, 0, 1)
    assert (two.utilisation, two.cost_per_utilised_gpu_hour, two.peak_memory_mib, two.sm_active) == (None,) * 4
    assert (two.cost, two.measured_cost, two.waste) == (Decimal("2.5"), 0, 0)


@pytest.mark.parametrize("words", [(), *((word,) for word in GROUPS), GROUPS])
def test_rows_add_up_and_agree_with_the_report_of_usage(october, words):
    found, usage = report(words), usage_report(SYSTEM, "", at(1), at(1, month=11), words)
    [total] = found.totals
    for name in ("allocated_gpu_hours", "measured_gpu_hours", "utilised_gpu_hours", "cost", "measured_cost", "waste"):
        assert sum(getattr(row, name) for row in found.rows) == getattr(total, name)
    assert (total.allocated_gpu_hours, total.cost) == (usage.total.gpu_hours, usage.total.cost)
    assert (total.measured_gpu_hours, total.utilised_gpu_hours) == (3, Decimal("1.1"))
    usual = [(row.keys, row.gpu_hours, row.cost) for row in usage.rows]
    assert [(row.keys, row.allocated_gpu_hours, row.cost) for row in found.rows] == usual


def test_a_slice_is_a_part_of_a_gpu_and_has_the_memory_of_its_profile():
    north = priced_cluster()
    meter = meter_of(north, hours=1, sharing="mig:1g.10gb", gpu_units=7)
    seen(meter, at(5, 10), "0.5", peak_memory_mib=5120)
    [row] = report().rows
    assert (row.allocated_gpu_hours, row.measured_gpu_hours, row.utilised_gpu_hours) == (1, 1, Decimal("0.5"))
    assert row.peak_memory_ratio == Decimal("0.5")


def test_time_without_a_price_has_hours_and_no_money():
    north = priced_cluster()
    seen(meter_of(north, hours=1, flavor="unpriced", gpu_model="strange"), at(5, 10), "0.5", peak_memory_mib=9)
    [row] = report().rows
    assert (row.currency, row.cost, row.measured_cost, row.waste) == ("", None, None, None)
    assert (row.cost_per_allocated_gpu_hour, row.cost_per_utilised_gpu_hour) == (None, None)
    assert (row.utilised_gpu_hours, row.peak_memory_mib, row.peak_memory_ratio) == (Decimal("0.5"), 9, None)


def test_pods_without_gpus_are_no_part_of_it():
    north = priced_cluster()
    meter_of(north, gpu_units=0)
    assert report(("job",)).rows == ()
    assert report().totals[0].allocated_gpu_hours == 0


def test_a_day_counts_its_own_hours():
    north = priced_cluster()
    meter = meter_of(north, start=at(5, 23))
    seen(meter, at(5, 23), "1")
    seen(meter, at(6, 0), "0.25")
    found = [
        (row.keys["day"], row.measured_gpu_hours, row.utilised_gpu_hours, row.waste) for row in report(("day",)).rows
    ]
    assert found == [("2026-10-05", 1, 1, 0), ("2026-10-06", 1, Decimal("0.25"), Decimal("1.875"))]
    [row] = utilisation_report(SYSTEM, "", at(6), at(7)).rows
    assert (row.allocated_gpu_hours, row.utilised_gpu_hours) == (1, Decimal("0.25"))


def test_a_meter_that_was_shortened_counts_no_more_than_its_time(october):
    meter = Meter.objects.get(gpu_units=2)
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL session_replication_role = replica")
        cursor.execute(
            "UPDATE billing_meter SET metered_until = %s WHERE id = %s", [at(5, 10) + timedelta(minutes=30), meter.id]
        )
        cursor.execute("UPDATE billing_meterday SET milliseconds = 1800000, cost = 2.5 WHERE meter_id = %s", [meter.id])
        cursor.execute("SET LOCAL session_replication_role = origin")
    row = report(("tenant",)).rows[0]
    assert (row.allocated_gpu_hours, row.measured_gpu_hours, row.utilised_gpu_hours) == (1, 1, Decimal("0.5"))


@pytest.mark.parametrize(
    ("start", "until", "words", "code"),
    [
        (at(1, 1), at(2), (), "not_whole_days"),
        (at(1), at(2, 1), (), "not_whole_days"),
        (at(2), at(2), (), "empty_period"),
        (at(2), at(1), (), "empty_period"),
        (at(1), at(1) + timedelta(days=367), (), "span_too_large"),
        (at(1), at(2), ("gpu",), "unknown_group"),
    ],
)
def test_what_is_refused(start, until, words, code):
    with pytest.raises(Invalid) as refused:
        utilisation_report(SYSTEM, "", start, until, words)
    assert [one.code for one in refused.value.errors] == [code]


QUERY = {"month": "2026-10", "group_by": "tenant,job"}


def reader(path="acme", role="viewer"):
    user = make_user()
    bind(user, path, role)
    return user


def test_page_json_and_csv_agree(client, october):
    user = reader()
    shown = client.get("/api/v1/utilisation", QUERY, headers=bearer(user)).json()
    sheet = client.get("/api/v1/utilisation", QUERY | {"format": "csv"}, headers=bearer(user)).content.decode()
    table = list(csv.DictReader(io.StringIO(sheet)))
    assert len(table) == len(shown["items"]) == 2
    for line, item in zip(table, shown["items"], strict=True):
        assert line == {name: "" if value is None else str(value) for name, value in item.items()}
    assert shown["totals"][0]["utilised_gpu_hours"] == "1.100000"
    client.force_login(user)
    page = client.get("/usage/utilisation/", QUERY).content.decode()
    assert "acme/one" in page.replace("<wbr>", "")
    assert "unmeasured" in page
    assert "USD" in page


def test_rows_of_others_are_absent(client, october):
    team, stranger = reader("acme/one"), reader("other", "admin")
    items = client.get("/api/v1/utilisation", QUERY, headers=bearer(team)).json()["items"]
    assert [item["tenant"] for item in items] == ["acme/one"]
    own = client.get("/api/v1/utilisation", QUERY, headers=bearer(stranger)).json()
    assert (own["items"], own["totals"][0]["allocated_gpu_hours"]) == ([], "0.000000")
    for path in ("acme", "acme/one", "nothing"):
        assert client.get("/api/v1/utilisation", QUERY | {"tenant": path}, headers=bearer(stranger)).status_code == 404
    assert client.get("/api/v1/utilisation", QUERY | {"tenant": "acme/two"}, headers=bearer(team)).status_code == 404
    client.force_login(stranger)
    assert "acme" not in client.get("/usage/utilisation/", QUERY).content.decode()


def test_usage_stays_under_the_path_that_it_had(october):
    change_tenant(SYSTEM, Meter.objects.get(gpu_units=2).tenant_id, name="optics")
    assert report(("tenant",), "acme/one").rows[0].utilised_gpu_hours == Decimal("1.1")


def test_an_empty_month_says_how_to_connect_a_prometheus(client):
    client.force_login(reader())
    page = client.get("/usage/utilisation/?month=2026-10").content.decode()
    assert "No GPU usage in this month" in page
    assert "None of your clusters has a Prometheus" in page


def test_who_manages_a_cluster_sees_what_its_prometheus_answered(client, october):
    set_prometheus(SYSTEM, october.id, WantedPrometheus("http://127.0.0.1:9090"))
    hour = now().replace(minute=0, second=0, microsecond=0) - timedelta(hours=2)
    TelemetryHour.objects.create(
        cluster=october, hour=hour, asks=1, asked_at=now(), pods=3, measured=1, foreign=7, why_not="it answered 401"
    )
    client.force_login(reader(role="admin"))
    page = client.get("/usage/utilisation/").content.decode()
    assert "it answered 401" in page
    assert "None of your clusters" not in page
    for user in (reader(), reader("other", "admin")):
        client.force_login(user)
        assert "it answered 401" not in client.get("/usage/utilisation/").content.decode()


@pytest.mark.parametrize(
    ("change", "constraint"),
    [
        ("utilisation = 1.000001", "utilisation_is_a_ratio"),
        ("utilisation = -0.000001", "utilisation_is_a_ratio"),
        ("sm_active = 1.1", "utilisation_is_a_ratio"),
        ("tensor_active = -1", "utilisation_is_a_ratio"),
        ("power_watts = -1", "power_is_not_negative"),
        ("coverage_seconds = 3601, meter_id = long.id", "utilisation_lies_within_its_meter"),
        ("coverage_seconds = 0", "utilisation_covers_part_of_its_hour"),
        ("coverage_seconds = 601", "utilisation_lies_within_its_meter"),
        ("hour = hour + interval '1 hour'", "utilisation_lies_within_its_meter"),
        ("hour = hour - interval '1 hour'", "utilisation_lies_within_its_meter"),
        ("hour = hour + interval '1 second'", "utilisation_hour_is_whole"),
        ("hour = hour + interval '1 microsecond'", "utilisation_hour_is_whole"),
        ("meter_id = 0", "utilisation_lies_within_its_meter"),
        ("meter_id = cpu.id", "utilisation_lies_within_its_meter"),
    ],
)
@pytest.mark.parametrize("zone", ["UTC", "Asia/Kathmandu"])
def test_raw_sql_cannot_store_what_cannot_be(change, constraint, zone):
    north = priced_cluster()
    short = meter_of(north, hours=1 / 6)
    meter_of(north, hours=3, workload_name="long")
    meter_of(north, hours=3, workload_name="cpu", gpu_units=0)
    seen(short, at(5, 10), seconds=600)
    if "second'" in change:
        change += ", coverage_seconds = 1"
    statement = (
        f"UPDATE billing_utilisationhour AS u SET {change} FROM billing_meter AS long, billing_meter AS cpu"
        " WHERE long.workload_name = 'long' AND cpu.workload_name = 'cpu'"
    )
    with connection.cursor() as cursor:
        cursor.execute("SELECT set_config('TimeZone', %s, true)", [zone])
    assert refusal_of(statement) == constraint


def test_a_meter_has_one_row_an_hour_and_a_cluster_one_telemetry_hour():
    north = priced_cluster()
    meter = meter_of(north)
    seen(meter, at(5, 10))
    with pytest.raises(DatabaseError) as refused, transaction.atomic():
        seen(meter, at(5, 10))
    assert constraint_of(refused.value) == "one_utilisation_a_meter_and_hour"
    TelemetryHour.objects.create(cluster=north, hour=at(5, 10))
    for fields, constraint in (
        ({"hour": at(5, 10)}, "one_telemetry_hour_a_cluster_and_hour"),
        ({"hour": at(5, 11) + timedelta(seconds=1)}, "telemetry_hour_is_whole"),
        ({"hour": at(5, 12), "measured": 1}, "telemetry_measures_pods"),
    ):
        with pytest.raises(DatabaseError) as refused, transaction.atomic():
            TelemetryHour.objects.create(cluster=north, **fields)
        assert constraint_of(refused.value) == constraint
