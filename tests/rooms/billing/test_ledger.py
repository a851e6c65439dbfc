"""Raw SQL against every promise of the ledger: each attack must be refused by the database itself."""

from datetime import UTC, datetime
from decimal import Decimal

import pytest
from django.core.management import CommandError, call_command
from django.db import IntegrityError, connection, transaction

from billing.models import Meter, Price, UsageSegment
from billing.operations import create_price, record_runs
from billing.operations.prices import NewPrice
from billing.queries import discrepancies
from foundation.ids import new_id
from tenancy.queries import SYSTEM
from tests.builders import make_cluster, make_flavor, make_run
from tests.kept_rows import once_a_module
from tests.refusals import constraint_of

pytestmark = pytest.mark.django_db


@once_a_module
def books():
    """An open meter from 12:00 to 13:00 with one segment at 2.50, and a price of another flavor."""
    north = make_cluster(name="north")
    for flavor in ("h100", "a100"):
        make_flavor(north, flavor)
        at = datetime(2026, 11, 1, tzinfo=UTC)
        create_price(SYSTEM, NewPrice("north", flavor, Decimal("2.5"), effective_from=at))
    record_runs([make_run(north, is_final=False)])
    settle_pending_checks()
    prices = dict(Price.objects.values_list("rate__flavor", "id"))
    return {
        "meter": Meter.objects.get().id,
        "price": prices["h100"],
        "foreign": prices["a100"],
        "rate": Price.objects.get(id=prices["h100"]).rate_id,
        "fresh": new_id(),
    }


def settle_pending_checks():
    """What commit would do; the surrounding test transaction never gets there."""
    with connection.cursor() as cursor:
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
        cursor.execute("SET CONSTRAINTS ALL DEFERRED")


def attack(statements, values):
    with transaction.atomic(), connection.cursor() as cursor:
        for statement in statements.split(";"):
            cursor.execute(statement, values)
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
        cursor.execute("SET CONSTRAINTS ALL DEFERRED")


def run_on(until):
    return f"UPDATE billing_meter SET metered_until = '2026-11-10T{until}Z' WHERE id = %(meter)s;"


def segment(period, gpu, cpu, cost, *, price="%(price)s", currency="USD"):
    start, until = period.split("-")
    return (
        "INSERT INTO billing_usagesegment (meter_id, period, gpu_milliseconds, cpu_millicore_milliseconds, price_id, cost,"
        f" currency, is_estimated) VALUES (%(meter)s, '[2026-11-10T{start}Z,2026-11-10T{until}Z)', {gpu}, {cpu},"
        f" {price}, {cost}, '{currency}', false)"
    )


HOUR = 3_600_000
CORES = 2000 * HOUR
GOOD = segment("13:00-14:00", HOUR, CORES, "2.5")
ATTACKS = {
    "second price at a time": (
        (
            "INSERT INTO billing_price (id, rate_id, unit_price, currency, valid)"
            " VALUES (%(fresh)s, %(rate)s, 1, 'USD', '[2026-11-10T00:00Z,2026-11-11T00:00Z)')"
        ),
        "one_price_at_a_time",
    ),
    "negative price": (
        (
            "INSERT INTO billing_price (id, rate_id, unit_price, currency, valid)"
            " VALUES (%(fresh)s, %(rate)s, -1, 'USD', '[2026-10-01T00:00Z,2026-10-02T00:00Z)')"
        ),
        "price_is_not_negative",
    ),
    "price in no currency": (
        (
            "INSERT INTO billing_price (id, rate_id, unit_price, currency, valid)"
            " VALUES (%(fresh)s, %(rate)s, 1, 'us', '[2026-10-01T00:00Z,2026-10-02T00:00Z)')"
        ),
        "price_currency_is_three_letters",
    ),
    "price since ever": (
        (
            "INSERT INTO billing_price (id, rate_id, unit_price, currency, valid)"
            " VALUES (%(fresh)s, %(rate)s, 1, 'USD', '(,2026-10-02T00:00Z)')"
        ),
        "price_period_is_half_open",
    ),
    "price finer than a millisecond": (
        (
            "INSERT INTO billing_price (id, rate_id, unit_price, currency, valid)"
            " VALUES (%(fresh)s, %(rate)s, 1, 'USD', '[2026-10-01T00:00:00.0001Z,2026-10-02T00:00Z)')"
        ),
        "price_is_in_whole_milliseconds",
    ),
    "price rewritten": ("UPDATE billing_price SET unit_price = 1 WHERE id = %(foreign)s", "price_stands"),
    "price begun earlier": (
        "UPDATE billing_price SET valid = '[2026-10-01T00:00Z,)' WHERE id = %(foreign)s",
        "price_stands",
    ),
    "price prolonged": (
        (
            "UPDATE billing_price SET valid = tstzrange(lower(valid), '2026-12-01T00:00Z') WHERE id = %(foreign)s;"
            "UPDATE billing_price SET valid = tstzrange(lower(valid), NULL) WHERE id = %(foreign)s"
        ),
        "price_stands",
    ),
    "price ended in charged time": (
        "UPDATE billing_price SET valid = tstzrange(lower(valid), '2026-11-10T12:59Z') WHERE id = %(price)s",
        "used_price_stands",
    ),
    "charged price deleted": ("DELETE FROM billing_price WHERE id = %(price)s", "used_price_stands"),
    "price book emptied": ("TRUNCATE billing_price CASCADE", "ledger_is_append_only"),
    "segment rewritten": ("UPDATE billing_usagesegment SET cost = 0", "ledger_is_append_only"),
    "segment struck out": ("DELETE FROM billing_usagesegment", "ledger_is_append_only"),
    "ledger emptied": ("TRUNCATE billing_usagesegment", "ledger_is_append_only"),
    "meter deleted": ("DELETE FROM billing_meter", "ledger_is_append_only"),
    "meter turned back": (run_on("12:30"), "meter_only_runs_on"),
    "meter of another tenant": (
        "UPDATE billing_meter SET user_id = %(fresh)s WHERE id = %(meter)s",
        "meter_only_runs_on",
    ),
    "meter counting more GPUs": ("UPDATE billing_meter SET gpu_units = 8 WHERE id = %(meter)s", "meter_only_runs_on"),
    "meter begun earlier": (
        "UPDATE billing_meter SET metered_from = '2026-11-10T11:00Z' WHERE id = %(meter)s",
        "meter_only_runs_on",
    ),
    "meter reopened": (
        (
            "UPDATE billing_meter SET is_closed = true WHERE id = %(meter)s;"
            "UPDATE billing_meter SET is_closed = false WHERE id = %(meter)s"
        ),
        "meter_only_runs_on",
    ),
    "meter run on without segments": (run_on("14:00"), "meter_has_no_gaps"),
    "gap before the segment": (run_on("15:00") + segment("14:00-15:00", HOUR, CORES, "2.5"), "meter_has_no_gaps"),
    "moment metered twice": (
        segment("12:30-13:00", HOUR // 2, CORES // 2, "1.25"),
        "each_moment_is_metered_once",
    ),
    "segment beyond its meter": (GOOD, "segment_is_what_its_meter_counted"),
    "segment of too few GPUs": (
        run_on("14:00") + segment("13:00-14:00", HOUR - 1, CORES, "2.5"),
        "segment_is_what_its_meter_counted",
    ),
    "segment of too many cores": (
        run_on("14:00") + segment("13:00-14:00", HOUR, CORES + 1, "2.5"),
        "segment_is_what_its_meter_counted",
    ),
    "segment too cheap": (
        run_on("14:00") + segment("13:00-14:00", HOUR, CORES, "2.499999999999"),
        "segment_costs_what_its_price_says",
    ),
    "segment too dear": (
        run_on("14:00") + segment("13:00-14:00", HOUR, CORES, "2.500000000001"),
        "segment_costs_what_its_price_says",
    ),
    "segment at a foreign price": (
        run_on("14:00") + segment("13:00-14:00", HOUR, CORES, "2.5", price="%(foreign)s"),
        "segment_costs_what_its_price_says",
    ),
    "segment in another currency": (
        run_on("14:00") + segment("13:00-14:00", HOUR, CORES, "2.5", currency="EUR"),
        "segment_costs_what_its_price_says",
    ),
    "segment unpriced beside a price": (
        run_on("14:00") + segment("13:00-14:00", HOUR, CORES, "0", price="NULL", currency=""),
        "segment_takes_the_price_there_is",
    ),
    "cost without a price": (
        run_on("14:00") + segment("13:00-14:00", HOUR, CORES, "1", price="NULL", currency=""),
        "segment_costs_only_with_a_price",
    ),
    "segment with its end inside": (
        run_on("14:00") + GOOD.replace("Z)'", "Z]'"),
        "segment_period_is_half_open",
    ),
    "segment finer than a millisecond": (
        run_on("14:00") + GOOD.replace("14:00Z", "13:59:59.9999Z"),
        "segment_is_in_whole_milliseconds",
    ),
    "segment over midnight": (
        "UPDATE billing_meter SET metered_until = '2026-11-11T13:00Z' WHERE id = %(meter)s;"
        + segment("13:00-13:00", 24 * HOUR, 24 * CORES, "60").replace("2026-11-10T13:00Z)", "2026-11-11T13:00Z)"),
        "segment_lies_within_a_day",
    ),
    "second meter of a pod": (
        (
            "INSERT INTO billing_meter (cluster_id, source_uid, tenant_id, user_id, user_name, workload_id, workload_name,"
            " run_id, flavor, capacity_type, unit, gpu_units, cpu_millicores, metered_from, metered_until, is_closed)"
            " SELECT cluster_id, source_uid, tenant_id, user_id, '', workload_id, '', run_id, flavor, capacity_type, unit,"
            " gpu_units, cpu_millicores, metered_from, metered_from, false FROM billing_meter"
        ),
        "one_meter_per_pod",
    ),
    "meter born in the middle": (
        (
            "INSERT INTO billing_meter (cluster_id, source_uid, tenant_id, user_id, user_name, workload_id, workload_name,"
            " run_id, flavor, capacity_type, unit, gpu_units, cpu_millicores, metered_from, metered_until, is_closed)"
            " SELECT cluster_id, 'other', tenant_id, user_id, '', workload_id, '', run_id, flavor, capacity_type, unit,"
            " gpu_units, cpu_millicores, metered_from, metered_until, false FROM billing_meter"
        ),
        "meter_has_no_gaps",
    ),
    "GPUs priced as cores": (
        (
            "INSERT INTO billing_meter (cluster_id, source_uid, tenant_id, user_id, user_name, workload_id, workload_name,"
            " run_id, flavor, capacity_type, unit, gpu_units, cpu_millicores, metered_from, metered_until, is_closed)"
            " SELECT cluster_id, 'other', tenant_id, user_id, '', workload_id, '', run_id, flavor, capacity_type, 'core',"
            " 1, cpu_millicores, metered_from, metered_from, false FROM billing_meter"
        ),
        "gpus_are_priced_as_gpus",
    ),
}


def test_the_good_statement_that_the_attacks_vary_is_taken(books):
    attack(run_on("14:00") + GOOD, books)
    assert UsageSegment.objects.count() == 2
    assert discrepancies() == ()


@pytest.mark.parametrize(("statements", "constraint"), ATTACKS.values(), ids=ATTACKS.keys())
def test_the_database_refuses(books, statements, constraint):
    with pytest.raises(IntegrityError) as refused:
        attack(statements.rstrip(";"), books)
    assert constraint_of(refused.value) == constraint
    assert discrepancies() == ()


def test_a_unused_price_may_be_withdrawn(books):
    attack("DELETE FROM billing_price WHERE id = %(foreign)s", books)
    assert Price.objects.count() == 1


def test_the_proof_says_so_when_the_books_are_right(books, capsys):
    call_command("prove_ledger")
    assert capsys.readouterr().out == "the ledger is correct: 1 segments, 0 movements\n"


FORGERIES = {
    "UPDATE billing_usagesegment SET cost = 2": "costs 2.000000000000, but by its price 2.500000000000",
    "UPDATE billing_usagesegment SET gpu_milliseconds = 1": "counts 1 GPU-ms",
    "UPDATE billing_usagesegment SET period = tstzrange(lower(period), upper(period) - interval '1 second')": "cover 3599000 ms",
    "UPDATE billing_meter SET metered_until = metered_until + interval '1 hour'": "of the 7200000 ms",
    "UPDATE billing_price SET unit_price = 3": "but by its price 3.000000000000",
    "DELETE FROM billing_usagesegment": "cover 0 ms",
}


@pytest.mark.parametrize(("forgery", "said"), FORGERIES.items())
def test_the_proof_finds_what_was_forged_past_the_triggers(books, forgery, said, capsys):
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL session_replication_role = replica")
        cursor.execute(forgery)
        cursor.execute("SET LOCAL session_replication_role = origin")
    with pytest.raises(CommandError):
        call_command("prove_ledger")
    assert said in capsys.readouterr().err
