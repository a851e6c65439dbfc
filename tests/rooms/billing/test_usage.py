import csv
import io
import itertools
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction

import pytest
from django.db import connection

from billing.operations import create_price, record_runs
from billing.operations.prices import NewPrice
from billing.queries import usage_report
from foundation.problems import Invalid, NotFound
from tenancy.queries import SYSTEM, actor_for
from tests.builders import bearer, bind, make_cluster, make_flavor, make_run, make_tenant, make_user

pytestmark = pytest.mark.django_db
MONTH = (datetime(2026, 11, 1, tzinfo=UTC), datetime(2026, 12, 1, tzinfo=UTC))
NUMBERS = (
    "gpu_milliseconds", "gpu_hours", "cpu_millicore_milliseconds", "cpu_core_hours", "unpriced_gpu_hours", "memory_gib_hours",
    "unpriced_memory_gib_hours", "provisional_memory_gib_hours",
)  # fmt: skip
MILLISECOND = timedelta(milliseconds=1)


@pytest.fixture
def november():
    """Odd durations at odd prices, in two clusters and three teams, over midnight, month end and a price change."""
    north, south = make_cluster(name="north"), make_cluster(name="south")
    for number, cluster in enumerate((north, south)):
        make_flavor(cluster, "h100")
        for day, amount in ((1, "2.333333"), (12, "3.777777")):
            at = datetime(2026, 10, day, tzinfo=UTC) + timedelta(days=31 * (day == 12))
            create_price(SYSTEM, NewPrice(cluster.name, "h100", Decimal(amount) + number, effective_from=at))
    runs = []
    for number in range(24):
        started_at = datetime(2026, 10, 30, 23, 17, 3, tzinfo=UTC) + timedelta(hours=31 * number, milliseconds=number)
        runs.append(
            make_run(
                north if number % 3 else south,
                f"acme/{('research', 'sales', 'research/vision')[number % 3]}",
                started_at=started_at,
                until_at=started_at + timedelta(hours=5, milliseconds=7919 * number),
                gpu_units=number % 4,
                memory_mib=700 + 37 * number,
                flavor="unpriced" if number == 7 else "h100",
                user_name=f"=cmd|{number}@example.org",
                workload_name=f"train-{number}",
            )
        )
    record_runs(runs)
    return runs


def sums_in_sql(start, until):
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT sum(gpu_milliseconds), sum(cpu_millicore_milliseconds), sum(cost),"
            " sum(memory_mib * extract(epoch FROM upper(period) - lower(period))) / 1024 / 3600"
            " FROM billing_usagesegment AS segment JOIN billing_meter AS meter ON meter.id = segment.meter_id"
            " WHERE lower(period) >= %s AND upper(period) <= %s",
            [start, until],
        )
        return cursor.fetchone()


@pytest.mark.parametrize(
    "group_by",
    ["", "tenant", "cluster", "flavor", "user", "job", "day", "month", "tenant,cluster,flavor,user,job,day,month"],
)
def test_page_json_csv_and_sql_agree_and_totals_equal_their_parts(november, client, group_by):
    reader = make_user()
    bind(reader, "acme", "viewer")
    query = {"tenant": "acme", "month": "2026-11", "group_by": group_by}

    shown = client.get("/api/v1/usage", query, headers=bearer(reader)).json()
    sheet = client.get("/api/v1/usage", query, headers={**bearer(reader), "Accept": "text/csv"})

    gpu, cpu, cost, memory = sums_in_sql(*MONTH)
    totals = shown["totals"]
    assert (totals["gpu_milliseconds"], totals["cpu_millicore_milliseconds"]) == (gpu, cpu)
    assert Decimal(totals["cost"]["amount"]) == cost.quantize(Decimal("0.000001"))
    assert memory > 100
    assert Decimal(totals["memory_gib_hours"]) == memory.quantize(Decimal("0.000001"))
    assert Decimal(totals["gpu_hours"]) == (Decimal(gpu) / 3_600_000).quantize(Decimal("0.000001"))
    for name in NUMBERS:
        assert sum(Decimal(item[name]) for item in shown["items"]) == Decimal(totals[name])
    assert sum(Decimal(item["cost"]["amount"]) for item in shown["items"]) == Decimal(totals["cost"]["amount"])
    rows = list(csv.DictReader(io.StringIO(sheet.content.decode(), newline="")))
    assert [[row[name] for name in NUMBERS] for row in rows] == [
        [str(i[name]) for name in NUMBERS] for i in shown["items"]
    ]
    assert [row["cost"] for row in rows] == [item["cost"]["amount"] for item in shown["items"]]


def test_a_spreadsheet_cell_cannot_be_a_formula(november, client):
    reader = make_user()
    bind(reader, "acme", "viewer")
    answer = client.get(
        "/api/v1/usage", {"month": "2026-11", "group_by": "user", "format": "csv"}, headers=bearer(reader)
    )
    assert answer["Content-Type"] == "text/csv; charset=utf-8"
    rows = list(csv.DictReader(io.StringIO(answer.content.decode(), newline="")))
    assert len(rows) > 10
    assert all(row["user"].startswith("'=cmd|") for row in rows)


def test_unpriced_time_is_shown_beside_the_priced(november):
    report = usage_report(SYSTEM, "acme", *MONTH)
    assert report.total.unpriced_gpu_milliseconds == 3 * (5 * 3_600_000 + 7 * 7919)
    assert 0 < report.total.unpriced_gpu_milliseconds < report.total.gpu_milliseconds
    guests = [run for run in november[1:] if run.flavor == "unpriced" or not run.gpu_units]  # the first ended before
    memory = sum(run.memory_mib * ((run.until_at - max(run.started_at, MONTH[0])) // MILLISECOND) for run in guests)
    gib_hours = Fraction(memory, 1024 * 3_600_000)
    assert abs(Fraction(report.total.unpriced_memory_gib_hours) - gib_hours) < Fraction(1, 1_000_000)
    assert len(report.rows) == 1


def test_reports_of_adjoining_periods_add_up_wherever_they_are_cut(november):
    whole = usage_report(SYSTEM, "acme", *MONTH).total
    cuts = [MONTH[0], *(MONTH[0] + timedelta(hours=37 * n, milliseconds=13 * n) for n in range(1, 19)), MONTH[1]]
    parts = [usage_report(SYSTEM, "acme", a, b).total for a, b in itertools.pairwise(cuts)]
    assert sum(part.gpu_milliseconds for part in parts) == whole.gpu_milliseconds
    assert sum(part.cpu_millicore_milliseconds for part in parts) == whole.cpu_millicore_milliseconds
    for name in ("cost", "memory_gib_hours"):
        together = sum(getattr(part, name) for part in parts)
        assert abs(together - getattr(whole, name)) <= Decimal("0.000001") * len(parts)


def test_a_parent_counts_its_children_and_a_child_only_itself(november):
    whole, research, vision = (
        usage_report(SYSTEM, path, *MONTH).total.gpu_milliseconds
        for path in ("acme", "acme/research", "acme/research/vision")
    )
    by_tenant = {
        row.keys["tenant"]: row.gpu_milliseconds for row in usage_report(SYSTEM, "acme", *MONTH, ["tenant"]).rows
    }
    assert whole == sum(by_tenant.values())
    assert research == by_tenant["acme/research"] + by_tenant["acme/research/vision"]
    assert vision == by_tenant["acme/research/vision"]


def test_a_tenant_whose_name_begins_alike_is_not_below_it(november):
    make_tenant("acme/research-two")
    assert usage_report(SYSTEM, "acme/research-two", *MONTH).rows == ()


def test_without_a_tenant_the_report_covers_what_may_be_seen_and_no_more(november):
    reader, stranger = make_user(), make_user()
    bind(reader, "acme/sales", "viewer")
    own = usage_report(actor_for(reader), "", *MONTH)
    assert own.total == usage_report(SYSTEM, "acme/sales", *MONTH).total
    assert usage_report(actor_for(stranger), "", *MONTH).rows == ()
    with pytest.raises(NotFound):
        usage_report(actor_for(reader), "acme/research", *MONTH)


def test_days_are_those_of_utc_and_months_hold_their_days(november):
    days = usage_report(SYSTEM, "acme", datetime(2026, 10, 1, tzinfo=UTC), MONTH[1], ["day"]).rows
    months = usage_report(SYSTEM, "acme", datetime(2026, 10, 1, tzinfo=UTC), MONTH[1], ["month"]).rows
    assert days[0].keys == {"day": "2026-10-30"}
    for month in months:
        in_it = [day for day in days if day.keys["day"].startswith(month.keys["month"])]
        assert sum(day.gpu_milliseconds for day in in_it) == month.gpu_milliseconds
    assert [month.keys["month"] for month in months] == ["2026-10", "2026-11"]


def test_a_report_is_incomplete_while_something_in_it_runs_unrecorded(november, time_machine):
    time_machine.move_to(datetime(2026, 12, 5, tzinfo=UTC), tick=False)
    assert usage_report(SYSTEM, "acme", *MONTH).is_complete
    record_runs([make_run(make_cluster(name="west"), "acme/sales", is_final=False)])
    assert not usage_report(SYSTEM, "acme", *MONTH).is_complete
    assert usage_report(SYSTEM, "acme/research", *MONTH).is_complete
    assert usage_report(SYSTEM, "acme", datetime(2026, 9, 1, tzinfo=UTC), datetime(2026, 10, 1, tzinfo=UTC)).is_complete


def test_costs_in_two_currencies_are_not_added_up(november):
    lab = make_cluster("lab", name="lab")
    make_flavor(lab, "h100")
    price = NewPrice("lab", "h100", Decimal(1), currency="EUR", effective_from=MONTH[0])
    create_price(SYSTEM, price)
    record_runs([make_run(lab, "lab")])

    report = usage_report(SYSTEM, "", *MONTH)
    assert [(one.currency, one.cost) for one in report.totals] == [
        (one.currency, one.cost) for path in ("lab", "acme") for one in usage_report(SYSTEM, path, *MONTH).totals
    ]
    with pytest.raises(Invalid) as refused:
        assert report.total
    assert refused.value.errors[0].code == "mixed_currencies"
    assert usage_report(SYSTEM, "lab", *MONTH).currency == "EUR"


@pytest.mark.parametrize(
    ("query", "field", "code"),
    [
        ({"group_by": "tenant,colour"}, "group_by", "unknown_group"),
        ({"from": "2026-11-02", "to": "2026-11-01"}, "to", "empty_period"),
        ({"from": "2026-11-02", "to": "2026-11-02"}, "to", "empty_period"),
        ({"from": "yesterday"}, "from", "not_an_instant"),
        ({"to": "2026-11-02T00:00:00"}, "to", "not_an_instant"),
        ({"from": "2026-02-30"}, "from", "not_an_instant"),
        ({"from": "0001-01-01T00:00:00+14:00"}, "from", "not_an_instant"),
        ({"month": "2026-13"}, "month", "not_a_month"),
        ({"month": "0000-01"}, "month", "not_a_month"),
        ({"month": "2026-11", "from": "2026-11-01"}, "month", "given_twice"),
        ({"colour": "red"}, "colour", "unknown_filter"),
        ({"format": "pdf"}, "format", "unknown_format"),
    ],
)
def test_a_senseless_question_is_refused_with_its_field(client, query, field, code):
    user = make_user()
    bind(user, "acme", "viewer")
    answer = client.get("/api/v1/usage", query, headers=bearer(user))
    assert answer.status_code == 422
    assert [(error["field"], error["code"]) for error in answer.json()["errors"]] == [(field, code)]


def test_a_report_is_of_the_current_month_unless_told_otherwise(client, time_machine):
    time_machine.move_to(datetime(2026, 11, 21, 8, tzinfo=UTC), tick=False)
    user = make_user()
    bind(user, "acme", "viewer")

    def period(**query):
        shown = client.get("/api/v1/usage", query, headers=bearer(user)).json()
        return shown["from"], shown["to"]

    november = ("2026-11-01T00:00:00.000Z", "2026-12-01T00:00:00.000Z")
    assert period() == period(month="2026-11") == period(to="2026-12-01") == november
    assert period(**{"from": "2026-10-05"}) == ("2026-10-05T00:00:00.000Z", november[1])
    assert period(to="2026-11-05T12:00:00Z") == (november[0], "2026-11-05T12:00:00.000Z")


def test_a_foreign_tenant_looks_absent(november, client):
    stranger = make_user()
    bind(stranger, "other", "admin")
    for path in ("acme", "acme/research", "nowhere"):
        answer = client.get("/api/v1/usage", {"tenant": path}, headers=bearer(stranger))
        assert (answer.status_code, answer.json()["code"]) == (404, "not_found")
