"""What a tenant's month adds up to is kept with each segment: the overview reads a few rows, however long the history."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
from django.db import connection

from billing.models import TenantMonth, UsageSegment
from billing.operations import create_price, record_runs
from billing.operations.prices import NewPrice
from billing.queries import discrepancies, usage_report
from billing.queries.pages import SPENT, spend_this_month, spent_values
from billing.queries.progress import Whose, open_runs
from tenancy.models import Tenant
from tenancy.queries import SYSTEM
from tests.builders import actor_for, bind, make_cluster, make_flavor, make_run, make_user

pytestmark = pytest.mark.django_db
FIRST = datetime(2026, 11, 1, tzinfo=UTC)
NOVEMBER = (FIRST, datetime(2026, 12, 1, tzinfo=UTC))
HOUR = timedelta(hours=1)


@pytest.fixture
def north(time_machine):
    time_machine.move_to(FIRST + 600 * HOUR, tick=False)
    cluster = make_cluster(name="north")
    make_flavor(cluster)
    create_price(SYSTEM, NewPrice("north", "h100", Decimal(2), effective_from=FIRST + HOUR))
    return cluster


def runs(north, count, *, start=FIRST, tenant="acme", **more):
    times = [start + number * HOUR for number in range(count)]
    record_runs([make_run(north, tenant, started_at=at, until_at=at + HOUR, **more) for at in times])


def read_of(table, first=FIRST):
    """How many rows of a table the overview's question reads, by the plan that PostgreSQL ran with statistics of now."""
    tenants = list(Tenant.objects.values_list("id", flat=True))
    running = open_runs(Whose(tenants=tenants), FIRST + 600 * HOUR)
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE billing_tenantmonth, billing_usagesegment")
        cursor.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {SPENT}", spent_values(first, tenants, running))
        plan = cursor.fetchone()[0]
    nodes = [(json.loads(plan) if isinstance(plan, str) else plan)[0]["Plan"]]
    for node in nodes:
        nodes += node.get("Plans", [])
    return sum(
        node["Actual Loops"] * (node["Actual Rows"] + node.get("Rows Removed by Filter", 0))
        for node in nodes
        if node.get("Relation Name") == table
    )


def test_what_the_overview_reads_does_not_grow_with_the_month(north):
    runs(north, 4, is_final=False)
    assert read_of("billing_tenantmonth") == 2
    runs(north, 400, start=FIRST + 10 * HOUR)
    assert UsageSegment.objects.count() >= 400
    assert (read_of("billing_tenantmonth"), read_of("billing_usagesegment")) == (2, 0)


def test_the_sums_of_a_month_are_those_of_its_segments(north):
    runs(north, 3)
    runs(north, 2, start=FIRST - HOUR, tenant="acme/research", gpu_units=2)
    user = make_user()
    bind(user, "acme")
    spent, total = spend_this_month(actor_for(user)), usage_report(SYSTEM, "acme", *NOVEMBER).total
    assert (spent.amount, spent.gpu_hours) == (total.cost, total.gpu_hours)
    assert spent.unpriced_gpu_hours == total.unpriced_gpu_hours > 0
    assert {(row.tenant.path, f"{row.month:%Y-%m}", row.currency) for row in TenantMonth.objects.all()} == {
        ("acme", "2026-11", "USD"), ("acme", "2026-11", ""),
        ("acme/research", "2026-10", ""), ("acme/research", "2026-11", ""),
    }  # fmt: skip
    assert discrepancies() == ()


def test_a_sum_that_was_tampered_with_is_found(north):
    runs(north, 3)
    TenantMonth.objects.filter(currency="USD").update(cost=7)
    (told,) = discrepancies()
    assert told.startswith(
        "the sum of acme for 2026-11 in USD is 7.000000000000 with 7200000 unit-ms, but its segments add up to 4."
    )


def test_what_was_recorded_while_runs_were_looked_at_counts_once(north, monkeypatch):
    run = make_run(north, started_at=FIRST + 590 * HOUR, until_at=FIRST + 594 * HOUR)
    record_runs([replace(run, until_at=run.started_at + HOUR, is_final=False)])
    user = make_user()
    bind(user, "acme")

    def look_then_record(*_):
        record_runs([run])
        return found

    tenants = list(Tenant.objects.values_list("id", flat=True))
    found = open_runs(Whose(tenants=tenants), FIRST + 593 * HOUR)
    monkeypatch.setattr("billing.queries.pages.open_runs", look_then_record)
    assert spend_this_month(actor_for(user)).gpu_hours == Decimal("3.00")
