"""Stored sums of days are what their segments add up to, to the last digit, and reports of whole days read only them."""

import itertools
import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.db import DatabaseError, connection, transaction
from django.test.utils import CaptureQueriesContext
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from billing.models import Meter, MeterDay, TenantDay, UsageSegment
from billing.operations import create_price, record_runs
from billing.operations.prices import NewPrice
from billing.queries import GROUPS, costs_of, discrepancies, newest_place, usage_report
from billing.queries.proof import Place
from config.table_rights import OWNERS_TRIGGERS
from tenancy.queries import SYSTEM
from tests.builders import make_cluster, make_flavor, make_run
from tests.laws import examples
from tests.processes_role import as_processes
from tests.refusals import constraint_of

from .ledgers import settle_pending_checks

pytestmark = pytest.mark.django_db
START = datetime(2026, 11, 10, 22, tzinfo=UTC)
MONTH = datetime(2026, 11, 1, tzinfo=UTC), datetime(2026, 12, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)
MINUTE = timedelta(minutes=1)


@pytest.fixture
def north():
    cluster = make_cluster(name="north")
    make_flavor(cluster)
    create_price(SYSTEM, NewPrice("north", "h100", Decimal("2.333333"), effective_from=START + 30 * MINUTE))
    create_price(SYSTEM, NewPrice("north", "h100", Decimal("7.1"), effective_from=START + 3 * HOUR))
    return cluster


def some_runs(north):
    """Over midnight and two price changes, on parts of a GPU, without a price, with lost work, still running."""
    slices: dict[str, Any] = {"sharing": "mig:1g.10gb", "gpu_model": "H100-80GB", "gpu_units": 3}
    first = make_run(north, started_at=START, until_at=START + 4 * HOUR, redone_from=START + HOUR, **slices)
    return [
        first,
        replace(first, source_uid="same-job", started_at=START + 7 * MINUTE, redone_from=None, memory_mib=4097),
        make_run(north, "acme/research", started_at=START + HOUR, until_at=START + 50 * HOUR, is_final=False),
        make_run(north, "acme/research", started_at=START, until_at=START + HOUR, flavor="a100"),
        make_run(north, "acme/sales", started_at=START, until_at=START + 3 * HOUR, gpu_units=0, cpu_millicores=1),
    ]


def metered(north, *, minutes=15):
    """The same runs, as routines meter them: a piece at a time."""
    runs = some_runs(north)
    for step in range(1, 1 + 60 * 50 // minutes):
        until = START + step * minutes * MINUTE
        record_runs(
            [replace(run, until_at=until, is_final=False) for run in runs if run.started_at < until < run.until_at]
        )
    record_runs(runs)
    settle_pending_checks()
    return runs


def read_of(words):
    """How many rows of each table of this room the report of the month reads, by the plans that PostgreSQL runs."""
    with CaptureQueriesContext(connection) as seen:
        usage_report(SYSTEM, "acme", *MONTH, words)
    rows: dict[str, int] = {}
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE billing_meter, billing_usagesegment, billing_tenantday, billing_meterday")
        for each in seen:
            if "billing_usagesegment" in each["sql"] or "billing_meterday" in each["sql"]:
                cursor.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {each['sql']}")
                plan = cursor.fetchone()[0]
                nodes = [(json.loads(plan) if isinstance(plan, str) else plan)[0]["Plan"]]
                for node in nodes:
                    nodes += node.get("Plans", [])
                    if table := node.get("Relation Name"):
                        read = node["Actual Loops"] * (node["Actual Rows"] + node.get("Rows Removed by Filter", 0))
                        rows[table] = rows.get(table, 0) + read
    return rows


def test_sums_are_what_segments_add_up_to(north):
    metered(north, minutes=60)
    assert discrepancies() == ()
    assert discrepancies(Place(1, 1, 1)) == ()
    assert MeterDay.objects.count() < UsageSegment.objects.count()
    assert sum(day.segments for day in TenantDay.objects.all()) == UsageSegment.objects.count()
    cost = sum(segment.cost for segment in UsageSegment.objects.all())
    assert cost == sum(day.cost for day in TenantDay.objects.all()) == sum(day.cost for day in MeterDay.objects.all())


@pytest.mark.parametrize("words", [[], *([word] for word in GROUPS), ["tenant", "flavor", "day"], ["job", "day"]])
def test_the_report_of_whole_days_is_the_sum_of_its_hours(north, words):
    """The hours are read from segments, the days from sums: nothing gets lost or counted twice."""
    metered(north, minutes=240)
    days = START.replace(hour=0), START.replace(hour=0) + 72 * HOUR
    whole = usage_report(SYSTEM, "acme", *days, words)
    cuts = [days[0] + 11 * number * HOUR + number * MINUTE for number in range(7)] + [days[1]]
    parts = [usage_report(SYSTEM, "acme", a, b, words) for a, b in itertools.pairwise(cuts)]
    if words in ([], ["tenant"]):
        keys = {tuple(row.keys.values()) for part in parts for row in part.rows}
        assert keys == {tuple(row.keys.values()) for row in whole.rows}
    for name in ("gpu_milliseconds", "cpu_millicore_milliseconds", "unpriced_gpu_milliseconds"):
        assert sum(getattr(part.total, name) for part in parts) == getattr(whole.total, name) > 0
    for name in ("cost", "gpu_hours", "memory_gib_hours", "lost_gpu_hours"):
        total = sum(getattr(part.total, name) for part in parts)
        assert abs(total - getattr(whole.total, name)) < Decimal("0.00001"), name
        assert sum(getattr(row, name) for row in whole.rows) == getattr(whole.total, name) > 0


@pytest.mark.parametrize(
    ("words", "table"), [(["tenant", "flavor", "day"], "billing_tenantday"), (["job"], "billing_meterday")]
)
def test_the_report_of_a_month_reads_sums_and_no_segment(north, words, table):
    metered(north, minutes=60)
    rows = read_of(words)
    assert rows.get("billing_usagesegment", 0) == 0
    assert 0 < rows[table] < UsageSegment.objects.count() / 2


def test_the_cost_of_a_job_reads_its_days(north):
    runs = metered(north, minutes=120)
    costs = costs_of([runs[0].workload_id, runs[3].workload_id])
    assert costs[runs[0].workload_id].is_unpriced
    cost = sum(segment.cost for segment in UsageSegment.objects.filter(meter__workload_id=runs[0].workload_id))
    assert costs.get(runs[0].workload_id).amount == cost


@given(st.lists(st.integers(1, 90), min_size=1, max_size=12))
@examples(15, suppressed=[HealthCheck.function_scoped_fixture])
@pytest.mark.law
def test_pieces_of_any_length_add_up_to_the_same_days(north, minutes):
    with transaction.atomic():
        run = make_run(north, started_at=START, until_at=START)
        for end in itertools.accumulate(minutes):
            record_runs([replace(run, until_at=START + end * MINUTE, is_final=False)])
        whole = replace(run, source_uid="whole", until_at=START + sum(minutes) * MINUTE)
        record_runs([whole])
        sums: dict[str, Any] = {}
        for row in MeterDay.objects.order_by("day", "price_id").select_related("meter"):
            sums.setdefault(row.meter.source_uid, []).append((row.day, row.price_id, row.milliseconds, row.cost))
        assert sums[run.source_uid] == sums["whole"]
        assert discrepancies() == ()
        transaction.set_rollback(True)


FORGERIES = {
    "UPDATE billing_meterday SET cost = cost + 0.000000000001": "is kept with",
    "DELETE FROM billing_meterday": "is kept with 0 ms and a cost of 0",
    "UPDATE billing_meterday SET milliseconds = milliseconds - 1": "is kept with",
    "UPDATE billing_meterday SET price_id = NULL, currency = ''": "is kept with",
    "UPDATE billing_tenantday SET gpu_milliseconds = gpu_milliseconds + 1": "GPU-ms",
    "UPDATE billing_tenantday SET memory_mib_milliseconds = 0": "MiB-ms",
    "UPDATE billing_tenantday SET gpu_denominator = 9": "the sum of acme",
    "DELETE FROM billing_tenantday": "the sum of acme",
}


@pytest.mark.parametrize("since", [Place(), Place(1, 1, 1)], ids=["full", "nightly"])
def test_the_proof_finds_a_sum_that_was_forged(north, since):
    for _ in range(2):
        record_runs([make_run(north, started_at=START + HOUR, until_at=START + 2 * HOUR, memory_mib=4096)])
    settle_pending_checks()
    place = since if not since.meter else Place(1, newest_place().segment - 2, 1)
    for forgery, said in FORGERIES.items():
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("SET LOCAL session_replication_role = replica")
            cursor.execute(forgery)
            assert any(said in sentence for sentence in discrepancies(place)), forgery
            transaction.set_rollback(True)


@pytest.fixture
def meter(processes_role, north):
    """An open meter from 22:00 to 23:00 in one segment, and the session as the processes' role."""
    record_runs([make_run(north, started_at=START, until_at=START + 30 * MINUTE, is_final=False)])
    settle_pending_checks()
    with as_processes():
        yield {"meter": Meter.objects.get().id}


def run_on(until):
    return f"UPDATE billing_meter SET metered_until = '2026-11-10T{until}Z' WHERE id = %(meter)s;"


def segments(*periods):
    """One statement that adds these, at the first price."""
    rows = []
    for period in periods:
        start, until = (datetime.fromisoformat(f"2026-11-10T{each}+00:00") for each in period.split("-"))
        length = int((until - start) / timedelta(milliseconds=1))
        rows.append(f"('[{start.isoformat()},{until.isoformat()})'::tstzrange, {length}::bigint)")
    return (
        "INSERT INTO billing_usagesegment (meter_id, period, gpu_milliseconds, cpu_millicore_milliseconds, price_id, cost,"
        " currency, is_estimated) SELECT m.id, piece.period, piece.length, piece.length * 2000, p.id, billing_cost(false, 1, 2000, 0,"
        " m.metered_from, p.unit_price, NULL, NULL, p.valid, piece.period), 'USD', false FROM billing_meter AS m, billing_price AS p,"
        f" (VALUES {', '.join(rows)}) AS piece(period, length) WHERE m.id = %(meter)s AND p.unit_price = 2.333333;"
    )


NO_RIGHT = "no right"
ATTACKS = {
    "gap after what is metered": (run_on("23:30") + segments("23:00-23:30"), "meter_has_no_gaps"),
    "gap inside one statement": (run_on("23:30") + segments("22:30-23:00", "23:10-23:30"), "meter_has_no_gaps"),
    "overlap inside one statement": (
        run_on("23:30") + segments("22:30-23:00", "22:50-23:30"), "each_moment_is_metered_once",
    ),
    "overlap and gap of one length": (
        run_on("23:30") + segments("22:30-22:50", "22:40-23:00", "23:10-23:30"), "each_moment_is_metered_once",
    ),
    "same segment twice": (run_on("23:00") + segments("22:30-23:00", "22:30-23:00"), "each_moment_is_metered_once"),
    "same segment again": (
        run_on("23:00") + segments("22:30-23:00") + segments("22:30-23:00"), "each_moment_is_metered_once",
    ),
    "from the beginning": (run_on("23:00") + segments("22:00-23:00"), "each_moment_is_metered_once"),
    "before the beginning": (segments("21:00-22:00"), "each_moment_is_metered_once"),
    "inside what is metered": (segments("22:10-22:20"), "each_moment_is_metered_once"),
    "over the end of what is metered": (run_on("23:00") + segments("22:20-23:00"), "each_moment_is_metered_once"),
    "backwards": (run_on("23:30") + segments("23:00-23:30") + segments("22:30-23:00"), "meter_has_no_gaps"),
    "less than the meter says": (run_on("23:30") + segments("22:30-23:00"), "meter_has_no_gaps"),
    "more than the meter says": (run_on("23:00") + segments("22:30-23:30"), "segment_is_what_its_meter_counted"),
    "sum of a meter's day forged": ("UPDATE billing_meterday SET cost = 0", NO_RIGHT),
    "sum of a meter's day invented": ("INSERT INTO billing_meterday DEFAULT VALUES", NO_RIGHT),
    "sum of a meter's day hidden": ("DELETE FROM billing_meterday", NO_RIGHT),
    "quantity of a tenant's day forged": ("UPDATE billing_tenantday SET gpu_milliseconds = 0", NO_RIGHT),
}  # fmt: skip


def attack(statements, values):
    with transaction.atomic(), connection.cursor() as cursor:
        for statement in statements.rstrip(";").split(";"):
            cursor.execute(statement, values)
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
        cursor.execute("SET CONSTRAINTS ALL DEFERRED")


def test_the_database_refuses_the_processes_role(meter):
    for name, (statements, constraint) in ATTACKS.items():
        with pytest.raises(DatabaseError) as refused:
            attack(statements, meter)
        cause: Any = refused.value.__cause__
        assert (NO_RIGHT if cause.sqlstate == "42501" else constraint_of(refused.value)) == constraint, (
            f"{name}: {cause}"
        )
    attack(run_on("23:30") + segments("23:00-23:30", "22:30-23:00"), meter)
    attack(run_on("23:40") + run_on("23:50") + segments("23:30-23:40") + segments("23:40-23:50"), meter)
    assert discrepancies() == ()
    assert "billing_add_to_meter_days" in OWNERS_TRIGGERS
