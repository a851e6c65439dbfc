"""A report of an earlier end than was assumed: the tail of the meter is replaced, and all sums and the ledger follow."""

from dataclasses import replace
from datetime import timedelta
from decimal import Decimal

import pytest
from django.db import DatabaseError, connection, transaction
from django.db.models import Sum

from billing.models import (
    BudgetMovement,
    BudgetPeriod,
    LedgerEntry,
    LedgerLine,
    LedgerPeriod,
    Meter,
    MeterDay,
    ReplacedSegment,
    TenantDay,
    TenantMonth,
    UsageSegment,
)
from billing.operations import TrueEnd, correct_ends, create_price, periods, posting, record_lost_work, record_runs
from billing.operations.conversion import convert_days
from billing.operations.prices import NewPrice
from billing.queries import discrepancies, newest_place, usage_report
from billing.queries.periods import checksum_of
from foundation.problems import Conflict
from tenancy.operations import change_tenant
from tenancy.queries import SYSTEM
from tests.builders import make_budget, make_run, make_tenant
from tests.processes_role import as_processes
from tests.refusals import constraint_of

from .committing import balances, committed, split
from .exchanging import billed_in, override
from .ledgers import OCTOBER, at, expense, priced_cluster, settle_pending_checks
from .test_credits import waive

pytestmark = pytest.mark.django_db
HOUR = timedelta(hours=1)
MS = timedelta(milliseconds=1)


def guessed(north, *, hours=4, seen=1, start=None, **more):
    """A run that was seen for the first hours, and assumed until the last."""
    begun = start or at(10, 22)
    run = make_run(
        north,
        started_at=begun,
        until_at=begun + hours * HOUR,
        certain_until=begun + seen * HOUR,
        is_estimated=True,
        **more,
    )
    record_runs([run])
    return run


def reported(run, hours, *more):
    settle_pending_checks()
    found = correct_ends([TrueEnd(run.key, run.started_at + hours * HOUR), *more])
    settle_pending_checks()
    return found


def sums():
    return {
        "segments": UsageSegment.objects.aggregate(c=Sum("cost"), g=Sum("gpu_milliseconds")),
        "days": TenantDay.objects.aggregate(c=Sum("cost"), g=Sum("gpu_milliseconds")),
        "months": TenantMonth.objects.aggregate(c=Sum("cost"), g=Sum("gpu_milliseconds")),
        "meters": MeterDay.objects.aggregate(c=Sum("cost"), g=Sum("milliseconds")),
    }


def test_a_reported_end_takes_back_what_was_assumed_beyond_it():
    north = priced_cluster(amount="2.333333")
    run = guessed(north)
    whole = guessed(north, hours=3, seen=0, source_uid="whole", run_id=run.run_id)

    assert reported(run, 1.5) == {run.run_id}

    meter = Meter.objects.get(source_uid=run.source_uid)
    assert meter.metered_until == meter.certain_until == run.started_at + 1.5 * HOUR
    assert [segment.period.upper for segment in meter.segments.order_by("period")] == [run.started_at + 1.5 * HOUR]
    kept = list(ReplacedSegment.objects.order_by("period"))
    assert [row.period.upper for row in kept] == [at(11), run.until_at]
    expected = Decimal("2.333333") * Decimal("4.5")
    assert {tuple(each.values()) for each in sums().values()} == {(expected, int(4.5 * 3_600_000))}
    assert discrepancies() == ()
    assert discrepancies(newest_place()) == ()
    assert reported(whole, 0) == {whole.run_id}
    assert sums()["segments"]["g"] == 1.5 * 3_600_000
    assert discrepancies() == ()


def test_the_same_report_again_and_one_that_contradicts_it_change_nothing():
    north = priced_cluster()
    run = guessed(north)
    assert reported(run, 2)
    for hours in (2, 1.5, 0, 3, 9, -5):
        assert reported(run, hours) == set()
    assert Meter.objects.get().metered_until == run.started_at + 2 * HOUR
    record_runs([replace(run, is_estimated=False)])
    assert UsageSegment.objects.aggregate(g=Sum("gpu_milliseconds"))["g"] == 2 * 3_600_000


def test_what_was_seen_to_run_stands_whatever_is_reported():
    north = priced_cluster()
    run = guessed(north, seen=3)
    reported(run, -100)
    assert Meter.objects.get().metered_until == run.started_at + 3 * HOUR
    sure = make_run(north, source_uid="sure", certain_until=at(10, 13), started_at=at(10, 12))
    record_runs([sure])
    assert reported(sure, 0.5) == set()
    old = make_run(north, source_uid="old", is_estimated=True)
    record_runs([old])
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL session_replication_role = replica")
        cursor.execute("UPDATE billing_meter SET certain_until = NULL WHERE source_uid = 'old'")
        cursor.execute("SET LOCAL session_replication_role = origin")
    assert reported(old, 0.5) == set(), "of a meter from before an upgrade it is not known what was assumed"


def test_running_pods_are_metered_ahead_and_their_end_takes_it_back():
    north = priced_cluster()
    run = make_run(north, is_final=False, until_at=at(10, 16), started_at=at(10, 12))
    record_runs([run])
    assert reported(run, 1) == set(), "it runs"
    ended = replace(run, is_final=True, until_at=at(10, 13), certain_until=at(10, 13))
    record_runs([ended])
    assert Meter.objects.get().metered_until == at(10, 16)
    assert reported(run, 1) == {run.run_id}
    assert (Meter.objects.get().metered_until, expense()) == (at(10, 13), 0)
    assert discrepancies() == ()


def test_in_an_open_month_the_day_is_posted_again():
    north = priced_cluster()
    run = guessed(north, hours=12, start=at(10, 6))
    guessed(north, hours=2, start=at(10, 6), source_uid="other", run_id=run.run_id)
    posting.post_days()
    assert expense() == 14 * Decimal("2.5")
    reported(run, 5)
    assert TenantDay.objects.get().is_due
    for _ in range(2):
        posting.post_days()
        settle_pending_checks()
    assert expense() == 7 * Decimal("2.5")
    amounts = [entry.lines.get(account__kind="tenant_expense").amount for entry in LedgerEntry.objects.order_by("id")]
    assert amounts == [Decimal(35), Decimal("-17.5")]
    assert discrepancies() == ()
    reported(replace(run, source_uid="other"), 1)
    posting.post_days()
    record_runs([make_run(north, source_uid="late", started_at=at(10, 1))])
    posting.post_days()
    settle_pending_checks()
    assert expense() == 7 * Decimal("2.5")
    assert LedgerEntry.objects.count() == 4
    assert discrepancies() == ()


def test_after_the_close_it_is_a_line_of_the_next_open_month_and_the_closed_one_stands():
    north = priced_cluster()
    run = guessed(north, hours=12, start=at(31, 18))
    posting.post_days()
    october = LedgerPeriod.objects.get(month=OCTOBER.date())
    periods.begin_closing(SYSTEM, october.id)
    periods.keep_ledger()
    october.refresh_from_db()
    assert october.state == "closed"
    report = usage_report(SYSTEM, "acme", OCTOBER, at(1, month=11)).total.cost

    reported(run, 2)
    posting.post_days()
    settle_pending_checks()

    checksum = october.checksum
    october.refresh_from_db()
    assert (october.checksum, report) == (checksum, 15)
    taken = LedgerEntry.objects.exclude(period=october).order_by("charge_day", "id")
    rows = [
        (row.charge_day.isoformat(), row.period.month.isoformat(), row.lines.get(account__kind="tenant_expense").amount)
        for row in taken
    ]
    assert rows == [
        ("2026-10-31", "2026-11-01", Decimal(-10)),
        ("2026-11-01", "2026-11-01", Decimal(15)),
        ("2026-11-01", "2026-11-01", Decimal(-15)),
    ]
    assert expense() == 5
    assert discrepancies() == ()


def test_budgets_get_back_what_they_counted():
    north = priced_cluster(since=at(1))
    money = make_budget("acme", period="month", starts_at=None, ends_at=None)
    hours = make_budget("acme", measure="gpu_hours", period="month", starts_at=None, ends_at=None)
    begun = money.counts_from + HOUR
    run = make_run(
        north, started_at=begun, until_at=begun + 4 * HOUR, certain_until=begun, is_estimated=True, gpu_units=3
    )
    record_runs([run])
    spent = {row.budget_id: row.spent for row in BudgetPeriod.objects.all() if row.spent}
    assert spent == {money.id: 30, hours.id: 12}
    reported(run, 1.5)
    for budget, amount in ((money, Decimal("11.25")), (hours, Decimal("4.5"))):
        assert BudgetPeriod.objects.filter(budget=budget).aggregate(s=Sum("spent"))["s"] == amount
    lines = BudgetMovement.objects.filter(run_id=run.run_id).order_by("period__budget_id", "id")
    assert sorted((row.kind, row.spent) for row in lines) == [
        ("post", 12), ("post", 30), ("revise", Decimal("-18.75")), ("revise", Decimal("-7.5")),
    ]  # fmt: skip
    assert discrepancies() == ()


def test_a_budget_gets_back_what_it_counted_although_the_tenant_has_moved_since():
    """And no budget of where the tenant is now counts the part that was used."""
    north = priced_cluster(since=at(1))
    team, goal = make_tenant("acme/old/team"), make_tenant("acme/new")
    old, new = (make_budget(path, period="month", starts_at=None, ends_at=None) for path in ("acme/old", "acme/new"))
    begun = max(old.counts_from, new.counts_from) + HOUR
    run = make_run(
        north,
        tenant_path="acme/old/team",
        started_at=begun,
        until_at=begun + 4 * HOUR,
        certain_until=begun,
        is_estimated=True,
    )
    record_runs([run])
    change_tenant(SYSTEM, team.id, parent_id=goal.id)
    reported(run, 1)
    spent = {row.budget_id: row.spent for row in BudgetPeriod.objects.all()}
    assert spent == {old.id: Decimal("2.5")} | ({new.id: 0} if new.id in spent else {})
    assert discrepancies() == ()


def test_what_is_left_is_an_estimate_only_if_its_start_or_its_end_is():
    north = priced_cluster()
    for name, seen, hours, is_estimated in (("sure", 1, 1.5, False), ("start", 1, 1.5, True), ("end", 3, 2, False)):
        run = guessed(north, source_uid=name, seen=seen)
        reported(run, hours, TrueEnd(run.key, run.started_at + hours * HOUR, is_estimated))
    last = {row.meter.source_uid: row.is_estimated for row in UsageSegment.objects.order_by("period")}
    assert last == {"sure": False, "start": True, "end": True}


def test_a_price_that_replaced_time_had_remains():
    """Files of closed months show it."""
    north = priced_cluster()
    create_price(SYSTEM, NewPrice("north", "h100", Decimal(7), effective_from=at(11, 1)))
    reported(guessed(north, hours=4, seen=0, start=at(10, 22)), 1)
    with pytest.raises(Conflict) as refused:
        create_price(SYSTEM, NewPrice("north", "h100", Decimal(9), effective_from=at(11)))
    assert refused.value.code == "price_already_used"
    create_price(SYSTEM, NewPrice("north", "h100", Decimal(9), effective_from=at(11, 2)))
    assert discrepancies() == ()


def test_time_without_a_price_lost_work_and_a_price_change_are_cut_too():
    north = priced_cluster(since=at(10, 23))
    create_price(SYSTEM, NewPrice("north", "h100", Decimal(7), effective_from=at(11, 1)))
    run = guessed(north, hours=4, seen=0, start=at(10, 22), redone_from=at(10, 23))
    reported(run, 3.5)
    assert [(row.cost, row.currency) for row in UsageSegment.objects.order_by("period")] == [
        (0, ""), (Decimal("2.5"), "USD"), (Decimal("2.5"), "USD"), (Decimal("3.5"), "USD"),
    ]  # fmt: skip
    assert Meter.objects.get().redone_from == at(10, 23)
    other = guessed(north, hours=4, seen=0, start=at(12, 22), redone_from=at(12, 23), source_uid="other")
    reported(other, 0.5)
    assert Meter.objects.get(source_uid="other").redone_from is None
    assert discrepancies() == ()


def test_commitments_credits_and_conversions_follow():
    """All are derived from the day, whose month is closed meanwhile."""
    north = priced_cluster()
    billed_in("EUR")
    override("0.5")
    waive("spot")
    run = guessed(north, tenant_path="acme/one", hours=6, seen=0, start=at(5, 10), source_uid="long")
    record_lost_work({run.run_id: ("spot", at(5, 12))})
    guessed(north, tenant_path="acme/two", hours=6, seen=6, start=at(5, 10), source_uid="two")
    committed({"units": 1})
    before = {kind: balances(entry__kind=kind).get("acme/one") for kind in ("usage", "credit")}
    assert before == {"usage": 15, "credit": -10}
    posting.post_days()
    october = LedgerPeriod.objects.get(month=OCTOBER.date())
    periods.begin_closing(SYSTEM, october.id, accepts_unpriced=True)
    periods.keep_ledger()
    october.refresh_from_db()
    assert october.state == "closed"

    reported(run, 3)
    split()
    convert_days()
    settle_pending_checks()

    lines = LedgerLine.objects.filter(account__tenant__path="acme/one", account__kind="tenant_expense")
    assert lines.filter(entry__kind="usage").aggregate(s=Sum("amount"))["s"] == Decimal("7.5")
    credited = lines.filter(entry__kind="credit") | lines.filter(entry__reverses__kind="credit")
    assert credited.aggregate(s=Sum("amount"))["s"] == Decimal("-2.5")
    assert {row.period.month.month for row in LedgerEntry.objects.exclude(period=october)} == {11}
    october.refresh_from_db()
    assert october.checksum == checksum_of(october.id)
    assert discrepancies() == ()


ROW = "INSERT INTO billing_meterrevision (is_estimated, meter_id, number, counted_until, until"
REVISION = ROW + ") SELECT false, id, {}, {}, {} FROM billing_meter WHERE source_uid = '{}';"
CUT = "metered_until, metered_from + interval '2 hours'"
NO_RIGHT = "no right"
ATTACKS = {
    "below what was seen": (REVISION.format(1, "metered_until", "metered_from", "seen"), "only_estimates_are_revised"),
    "a certain end": (
        REVISION.format(1, "metered_until", "metered_until - interval '1 ms'", "sure"), "only_estimates_are_revised",
    ),
    "twice": (
        REVISION.format(1, "metered_until", "metered_from + interval '2 hours'", "seen")
        + REVISION.format(2, "metered_until", "metered_from + interval '90 minutes'", "seen"),
        "only_estimates_are_revised",
    ),
    "longer": (REVISION.format(1, "metered_until", "metered_until + interval '1 hour'", "seen"), "a_revision_shortens"),
    "of what is not counted": (
        REVISION.format(1, "metered_until + interval '1 hour'", "metered_from + interval '2 hours'", "seen"),
        "revision_is_of_what_is_counted",
    ),
    "another number": (
        REVISION.format(2, "metered_until", "metered_from + interval '2 hours'", "seen"), "revision_is_of_what_is_counted",
    ),
    "before the beginning": (
        REVISION.format(1, "metered_until", "metered_from - interval '2 hours'", "seen"), "revision_is_of_what_is_counted",
    ),
    "between milliseconds": (
        REVISION.format(1, "metered_until", "metered_from + interval '2 hours 1 us'", "seen"),
        "revision_is_of_what_is_counted",
    ),
    "of an open meter": (
        REVISION.format(1, "metered_until", "metered_from + interval '2 hours'", "open"), "revision_is_of_what_is_counted",
    ),
    "dated back": (
        ROW + ", recorded_at) SELECT false, id, 1, metered_until, metered_from + interval '2 hours', now() - interval '1 day'"
        " FROM billing_meter WHERE source_uid = 'seen'",
        "revision_is_of_what_is_counted",
    ),
    "a meter shortened without one": (
        "UPDATE billing_meter SET metered_until = metered_from + interval '2 hours' WHERE source_uid = 'seen'",
        "meter_only_runs_on",
    ),
    "an open meter shortened": (
        "UPDATE billing_meter SET metered_until = metered_from, certain_until = metered_from WHERE source_uid = 'open'",
        "meter_only_runs_on",
    ),
    "a number taken": ("UPDATE billing_meter SET revisions = revisions + 1", "meter_only_runs_on"),
    "a revision counted twice": (
        REVISION.format(1, "metered_until", "metered_from + interval '2 hours'", "seen")
        + "UPDATE billing_meter SET metered_until = metered_from, certain_until = metered_from, revisions = 2"
        " WHERE source_uid = 'seen'",
        "meter_only_runs_on",
    ),
    "what is certain made uncertain": (
        "UPDATE billing_meter SET certain_until = metered_from WHERE source_uid = 'sure'", "meter_only_runs_on",
    ),
    "what was seen made unseen": (
        "UPDATE billing_meter SET certain_until = metered_from WHERE source_uid = 'open'", "meter_only_runs_on",
    ),
    "what was seen made unknown": (
        "UPDATE billing_meter SET certain_until = NULL WHERE source_uid = 'open'", "meter_only_runs_on",
    ),
    "more certain than metered": (
        "UPDATE billing_meter SET certain_until = metered_until + interval '1 hour' WHERE source_uid = 'open'",
        "a_meter_is_certain_of_its_own_time",
    ),
    "budgets relieved": (
        "INSERT INTO billing_budgetmovement (run_id, period_id, kind, held, spent) VALUES (gen_random_uuid(), 1, 'revise', 0, -1)",
        "only_revisions_return_what_was_spent",
    ),
    "segments deleted": ("DELETE FROM billing_usagesegment", NO_RIGHT),
    "a copy invented": ("INSERT INTO billing_replacedsegment DEFAULT VALUES", NO_RIGHT),
    "a copy deleted": ("DELETE FROM billing_replacedsegment", NO_RIGHT),
    "a revision rewritten": ("UPDATE billing_meterrevision SET until = until", NO_RIGHT),
    "a revision deleted": ("DELETE FROM billing_meterrevision", NO_RIGHT),
}  # fmt: skip


def refusal(statements):
    try:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(statements)
            cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
            transaction.set_rollback(True)
    except DatabaseError as error:
        return NO_RIGHT if "permission denied" in str(error) else constraint_of(error)
    return "nothing"


def test_the_database_refuses(processes_role):
    north = priced_cluster()
    guessed(north, source_uid="seen")
    record_runs([make_run(north, source_uid="sure", started_at=at(10, 12), certain_until=at(10, 13))])
    record_runs([
        make_run(
            north, source_uid="open", started_at=at(10), until_at=at(10, 9), certain_until=at(10, 8), is_final=False
        )
    ])  # fmt: skip
    settle_pending_checks()
    with as_processes():
        found = {name: refusal(statements) for name, (statements, _) in ATTACKS.items()}
    assert found == {name: expected for name, (_, expected) in ATTACKS.items()}


def test_not_even_the_owner_deletes_or_invents():
    north = priced_cluster()
    run = guessed(north)
    copied = "SELECT 1, id, meter_id, period, gpu_milliseconds, cpu_millicore_milliseconds, price_id, cost, currency, false, now()"
    invented = (
        "INSERT INTO billing_replacedsegment (revision_id, segment_id, meter_id, period, gpu_milliseconds,"
        f" cpu_millicore_milliseconds, price_id, cost, currency, is_estimated, recorded_at) {copied} FROM billing_usagesegment"
    )
    attacks = {
        "DELETE FROM billing_usagesegment": "ledger_is_append_only",
        "TRUNCATE billing_usagesegment CASCADE": "ledger_is_append_only",
        invented: "replaced_segment_was_one",
    }
    settle_pending_checks()
    assert {statement: refusal(statement) for statement in attacks} == attacks
    reported(run, 1.5)
    attacks = {
        "DELETE FROM billing_usagesegment": "ledger_is_append_only",
        "DELETE FROM billing_replacedsegment": "ledger_is_append_only",
        "UPDATE billing_replacedsegment SET cost = 0": "ledger_is_append_only",
        "UPDATE billing_meterrevision SET until = until": "ledger_is_append_only",
        "TRUNCATE billing_meterrevision CASCADE": "ledger_is_append_only",
    }
    assert {statement: refusal(statement) for statement in attacks} == attacks


def test_the_processes_may_revise(processes_role):
    north = priced_cluster()
    run = guessed(north)
    settle_pending_checks()
    with as_processes():
        assert reported(run, 2) == {run.run_id}
    assert discrepancies() == ()
