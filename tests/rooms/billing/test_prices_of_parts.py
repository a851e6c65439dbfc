"""Pods pay for what they ask: GPUs, and cores and memory where these have a price. Pods without GPUs on GPU nodes pay too."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.db import IntegrityError

from billing.models import Meter, Price, UsageSegment
from billing.operations import create_price, record_runs
from billing.operations.prices import NewPrice
from billing.queries import costs_of, discrepancies, usage_report
from foundation.problems import Conflict, Invalid
from tenancy.queries import SYSTEM
from tests.builders import bearer, bind, make_cluster, make_flavor, make_run, make_user
from tests.refusals import constraint_of

from .test_ledger import attack, run_on, settle_pending_checks

pytestmark = pytest.mark.django_db
NOON = datetime(2026, 11, 10, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
CORES = 2000 * 3_600_000


@pytest.fixture
def north():
    cluster = make_cluster(name="north")
    make_flavor(cluster, "h100")
    for name, capacity_type in (("cpu-b", "on_demand"), ("cpu-a", "on_demand"), ("cpu-0", "spot")):
        make_flavor(cluster, name, gpu_model="", vendor="", capacity_type=capacity_type)
    return cluster


def put(flavor, amount, at=NOON - 24 * HOUR, **beside):
    amounts: dict[str, Any] = {name: Decimal(text) for name, text in beside.items()}
    return create_price(SYSTEM, NewPrice("north", flavor, Decimal(amount), effective_from=at, **amounts))


def guest(cluster, **fields):
    return make_run(cluster, gpu_units=0, memory_mib=4096, **fields)


def test_a_guest_pays_the_first_cpu_only_flavor_of_its_capacity_type(north):
    for flavor, amount in (("h100", "2.5"), ("cpu-a", "0.05"), ("cpu-b", "7"), ("cpu-0", "8")):
        put(flavor, amount)
    run = guest(north)
    record_runs([run])
    view = costs_of([run.workload_id])[run.workload_id]
    assert (view.amount, view.is_unpriced) == (Decimal("0.1"), False)
    assert discrepancies() == ()


def test_a_price_of_cores_set_in_the_middle_of_a_run_splits_it_there(north):
    put("h100", "2.5")
    put("cpu-a", "0.05", memory_price="0.01")
    run = guest(north, is_final=False, until_at=NOON + HOUR / 4)
    record_runs([run])
    put("h100", "2.5", at=NOON + HOUR / 2, cpu_price="0.2", memory_price="0.04")
    record_runs([replace(run, is_final=True, until_at=NOON + HOUR)])

    costs = list(UsageSegment.objects.order_by("period").values_list("cost", flat=True))
    assert costs == [Decimal("0.035"), Decimal("0.035"), Decimal("0.28")]
    assert discrepancies() == ()
    total = usage_report(SYSTEM, "acme", NOON, NOON + HOUR).total
    assert (total.cost, total.unpriced_cpu_millicore_milliseconds) == (Decimal("0.35"), 0)


def test_without_a_price_of_cores_anywhere_a_guest_is_unpriced_and_it_shows(north, client):
    put("h100", "2.5")
    run = guest(north)
    record_runs([run])
    view = costs_of([run.workload_id])[run.workload_id]
    assert (view.amount, view.currency, view.is_unpriced) == (0, "", True)
    total = usage_report(SYSTEM, "acme", NOON, NOON + HOUR).total
    assert total.unpriced_cpu_millicore_milliseconds == CORES


def test_a_pod_with_gpus_pays_for_cores_and_memory_only_where_they_have_a_price(north):
    put("h100", "2.5")
    make_flavor(north, "a100")
    put("a100", "1.5", cpu_price="0.25", memory_price="0.0625")
    plain, priced = (make_run(north, flavor=name, memory_mib=4096) for name in ("h100", "a100"))
    record_runs([plain, priced])
    costs = costs_of([plain.workload_id, priced.workload_id])
    assert costs[plain.workload_id].amount == Decimal("2.5")
    assert costs[priced.workload_id].amount == Decimal("1.5") + 2 * Decimal("0.25") + 4 * Decimal("0.0625")
    assert discrepancies() == ()


def test_a_price_that_guests_were_charged_by_cannot_be_set_again_for_that_time(north):
    put("cpu-a", "0.05")
    record_runs([guest(north)])
    for flavor in ("cpu-a", "h100"):
        with pytest.raises(Conflict) as refused:
            put(flavor, "1", at=NOON + HOUR / 2)
        assert refused.value.code == "price_already_used"
    put("cpu-a", "1", at=NOON + HOUR)


def test_a_cpu_only_flavor_has_one_price_of_a_core(north):
    with pytest.raises(Invalid) as refused:
        put("cpu-a", "0.05", cpu_price="0.05")
    assert [(error.field, error.code) for error in refused.value.errors] == [("cpu_price", "priced_by_the_core")]
    assert put("cpu-a", "0.05", memory_price="0.01").memory_price == Decimal("0.01")


@pytest.fixture
def books(north):
    """A guest's open meter from 12:00 to 13:00 at the price of the CPU-only flavor; the host asks for cores from 15:00."""
    stand_in = put("cpu-a", "0.05", memory_price="0.01")
    put("h100", "2.5")
    own = put("h100", "2.5", at=NOON + 3 * HOUR, cpu_price="0.2")
    record_runs([guest(north, is_final=False)])
    settle_pending_checks()
    silent = Price.objects.get(rate__flavor="h100", valid__endswith=NOON + 3 * HOUR)
    return {"meter": Meter.objects.get().id, "stand_in": stand_in.id, "own": own.id, "silent": silent.id}


def segment(period, cost, price, currency="USD", cpu=CORES):
    start, until = period.split("-")
    return (
        "INSERT INTO billing_usagesegment (meter_id, period, gpu_milliseconds, cpu_millicore_milliseconds, price_id, cost,"
        f" currency, is_estimated) VALUES (%(meter)s, '[2026-11-10T{start}Z,2026-11-10T{until}Z)', 0, {cpu},"
        f" {price}, {cost}, '{currency}', false)"
    )


FIRST = segment("13:00-15:00", "0.28", "%(stand_in)s", cpu=2 * CORES)
GOOD = run_on("16:00") + FIRST + ";" + segment("15:00-16:00", "0.4", "%(own)s")
ATTACKS = {
    "cores for nothing": (
        run_on("14:00") + segment("13:00-14:00", "0", "%(silent)s"),
        "segment_costs_what_its_price_says",
    ),
    "memory forgotten": (
        run_on("14:00") + segment("13:00-14:00", "0.1", "%(stand_in)s"),
        "segment_costs_what_its_price_says",
    ),
    "unpriced beside a price that stands in": (
        run_on("14:00") + segment("13:00-14:00", "0", "NULL", ""),
        "segment_takes_the_price_there_is",
    ),
    "another flavor's price beside its own": (
        run_on("16:00") + FIRST + ";" + segment("15:00-16:00", "0.14", "%(stand_in)s"),
        "segment_takes_the_price_there_is",
    ),
    "core price below zero": (
        (
            "INSERT INTO billing_price (id, rate_id, unit_price, cpu_price, currency, valid)"
            " SELECT gen_random_uuid(), rate_id, 1, -1, 'USD', '[2020-01-01T00:00Z,2020-01-02T00:00Z)' FROM billing_price LIMIT 1"
        ),
        "prices_of_cpu_and_memory_are_not_negative",
    ),
    "memory price below zero": (
        (
            "INSERT INTO billing_price (id, rate_id, unit_price, memory_price, currency, valid)"
            " SELECT gen_random_uuid(), rate_id, 1, -1, 'USD', '[2020-01-01T00:00Z,2020-01-02T00:00Z)' FROM billing_price LIMIT 1"
        ),
        "prices_of_cpu_and_memory_are_not_negative",
    ),
    "core price rewritten": ("UPDATE billing_price SET cpu_price = 0.1 WHERE id = %(own)s", "price_stands"),
    "memory price struck out": ("UPDATE billing_price SET memory_price = NULL WHERE id = %(stand_in)s", "price_stands"),
    "less memory": ("UPDATE billing_meter SET memory_mib = 1", "meter_only_runs_on"),
    "another stand-in": ("UPDATE billing_meter SET cpu_flavor = 'cpu-b'", "meter_only_runs_on"),
    "GPUs at the price of cores": (
        (
            "INSERT INTO billing_meter (cluster_id, source_uid, tenant_id, user_id, user_name, workload_id, workload_name,"
            " run_id, flavor, capacity_type, unit, gpu_units, cpu_millicores, metered_from, metered_until, is_closed, cpu_flavor)"
            " SELECT cluster_id, 'other', tenant_id, user_id, '', workload_id, '', run_id, flavor, capacity_type, 'gpu',"
            " 1, cpu_millicores, metered_from, metered_from, false, 'cpu-a' FROM billing_meter"
        ),
        "only_guests_pay_another_flavors_price",
    ),
}


def test_the_good_statement_that_the_attacks_vary_is_taken(books):
    attack(GOOD, books)
    assert UsageSegment.objects.count() == 3
    assert discrepancies() == ()


@pytest.mark.parametrize(("statements", "constraint"), ATTACKS.values(), ids=ATTACKS.keys())
def test_the_database_refuses(books, statements, constraint):
    with pytest.raises(IntegrityError) as refused:
        attack(statements, books)
    assert constraint_of(refused.value) == constraint


def test_prices_of_parts_over_http_and_on_the_page(north, client):
    user = make_user()
    bind(user, "acme", "finance")
    body = {"cluster": "north", "flavor": "h100", "unit_price": "2.50", "cpu_price": "0.04", "memory_price": "0.005"}
    shown = client.post("/api/v1/prices", body, content_type="application/json", headers=bearer(user)).json()
    assert (shown["cpu_price"]["amount"], shown["memory_price"]["amount"]) == ("0.040000", "0.005000")
    for change, field, code in (
        ({"cpu_price": {"amount": "1", "currency": "EUR"}}, "cpu_price", "mixed_currencies"),
        ({"memory_price": "-1"}, "memory_price", "not_money"),
        ({"memory_price": 1}, "memory_price", "not_money"),
        ({"flavor": "cpu-a"}, "cpu_price", "priced_by_the_core"),
    ):
        refused = client.post("/api/v1/prices", body | change, content_type="application/json", headers=bearer(user))
        assert [(e["field"], e["code"]) for e in refused.json()["errors"]] == [(field, code)]
    client.force_login(user)
    typed = {"cluster": "north", "flavor": "h100", "unit_price": "3", "currency": "USD", "memory_price": "NaN"}
    assert b"a number such as 2.74" in client.post("/prices/", typed).content
    assert client.post("/prices/", typed | {"memory_price": "0.007"}).status_code == 302
    assert Price.objects.get(unit_price=3).memory_price == Decimal("0.007")
    assert b"included" in client.get("/prices/").content
