"""A report of an earlier end than was assumed: the tail of the meter is replaced, and all sums and the ledger follow."""

from dataclasses import replace
from datetime import timedelta
from decimal import Decimal

import pytest
from django.db import connection
from django.db.models import Sum
from django.db.models.functions import Now

from billing.models import (
    Budget,
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


def test_a_budget_that_was_removed_counts_nothing_more_and_the_proof_does_not_ask_for_it():
    north = priced_cluster(since=at(1))
    budget = make_budget("acme", period="month", starts_at=None, ends_at=None)
    begun = budget.counts_from + HOUR
    run = make_run(north, started_at=begun, until_at=begun + 4 * HOUR, certain_until=begun, is_estimated=True)
    record_runs([run])
    Budget.objects.filter(id=budget.id).update(removed_at=Now())
    reported(run, 1)
    assert BudgetPeriod.objects.get(budget=budget, spent__gt=0).spent == 10
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
