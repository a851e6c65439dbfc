"""Budgets count what was metered and what runs, once, in the right period; and a take never goes beyond the amount."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest

from billing.engine.budgets import Commitment
from billing.models import Budget, BudgetAlert, BudgetHold, BudgetMovement, BudgetPeriod
from billing.operations import adjust_budget_holds, create_price, end_budget_holds, record_runs
from billing.operations.budgets import delete_budget
from billing.operations.prices import NewPrice
from billing.queries import discrepancies
from foundation.clock import now
from foundation.ids import new_id
from tenancy.models import AuditEntry
from tenancy.queries import SYSTEM
from tests.builders import budget_request, make_budget, make_cluster, make_flavor, make_run, make_tenant, take_budgets

pytestmark = pytest.mark.django_db
NOON = datetime(2026, 11, 10, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


@pytest.fixture
def north():
    """A cluster on which an H100 costs 2.50 an hour."""
    cluster = make_cluster(name="north")
    make_flavor(cluster, "h100")
    create_price(SYSTEM, NewPrice("north", "h100", Decimal("2.5"), effective_from=datetime(2026, 11, 1, tzinfo=UTC)))
    return cluster


def figures(budget):
    """Spent and held, in the budget's only period."""
    period = BudgetPeriod.objects.get(budget=budget)
    return period.spent, period.held


def kinds():
    return list(BudgetMovement.objects.order_by("id").values_list("kind", flat=True))


def test_a_run_is_held_turned_into_spent_and_posted_at_every_budget_on_its_path(north):
    make_tenant("acme/research")
    money, hours = make_budget("acme", "100"), make_budget("acme/research", "50", measure="gpu_hours")
    asked = budget_request("acme/research", "2.5", gpus="1", seconds=7200)
    assert take_budgets(asked) == {}
    assert (figures(money), figures(hours)) == ((0, 5), (0, 2))
    run = make_run(north, "acme/research", run_id=asked.holder_id, is_final=False, until_at=NOON + HOUR / 2)
    record_runs([run])
    assert (figures(money), figures(hours)) == ((Decimal("1.25"), Decimal("3.75")), (Decimal("0.5"), Decimal("1.5")))
    record_runs([make_run(north, "acme/research", run_id=asked.holder_id, source_uid=run.source_uid)])
    end_budget_holds({asked.holder_id: "posted"})
    assert (figures(money), figures(hours)) == ((Decimal("2.5"), 0), (1, 0))
    assert kinds() == ["take"] * 2 + ["adjust"] * 4 + ["post"] * 2
    assert end_budget_holds({asked.holder_id: "voided"}) == 0
    assert discrepancies() == ()


def test_what_never_ran_is_voided():
    budget = make_budget("acme", "100")
    asked = budget_request("acme", "7")
    take_budgets(asked)
    end_budget_holds({asked.holder_id: "voided"})
    assert (figures(budget), kinds(), BudgetHold.objects.get().state) == ((0, 0), ["take", "void"], "voided")


def test_the_last_of_the_budget_goes_to_the_first_and_the_refusal_has_the_numbers():
    make_budget("acme", "10")
    first, second = budget_request("acme", "6"), budget_request("acme", "5")
    refusals = take_budgets(first, second)
    assert list(refusals) == [second.holder_id]
    assert refusals[second.holder_id].message == (
        "needs up to 5.00 USD; the budget of acme for 2026-11-01 to 2098-12-31 is 10.00 USD: 0.00 USD spent, 0.00 USD held"
    )
    assert take_budgets(budget_request("acme", "4")) == {}


def test_a_budget_that_does_not_stop_counts_without_limit():
    budget = make_budget("acme", "10", stops=False)
    assert take_budgets(budget_request("acme", "600")) == {}
    assert figures(budget) == (0, 600)


def test_a_new_budget_counts_what_its_period_used_and_what_runs(north):
    asked = budget_request("acme", "2.5", seconds=7200)
    take_budgets(asked)
    record_runs([make_run(north), make_run(north, run_id=asked.holder_id, source_uid="b", is_final=False)])
    budget = make_budget("acme", "1")
    assert figures(budget) == (5, Decimal("2.5"))
    assert set(kinds()) == {"open"}
    end_budget_holds({asked.holder_id: "posted"})
    assert figures(budget) == (5, 0)
    assert discrepancies() == ()


def test_running_work_lives_on_when_the_amount_is_cut_and_nothing_new_starts(north):
    asked = budget_request("acme", "2.5", seconds=7200)
    budget = make_budget("acme", "100")
    take_budgets(asked)
    make_budget("acme", "1")
    assert Budget.objects.count() == 1
    assert take_budgets(budget_request("acme", "0.01"))
    record_runs([make_run(north, run_id=asked.holder_id)])
    assert figures(budget) == (Decimal("2.5"), Decimal("2.5"))
    assert take_budgets(budget_request("acme", "0")) == {}


def test_time_beyond_what_was_held_is_spent_all_the_same(north):
    asked = budget_request("acme", "1", seconds=3600)
    budget = make_budget("acme", "1")
    take_budgets(asked)
    record_runs([make_run(north, run_id=asked.holder_id)])
    assert figures(budget) == (Decimal("2.5"), 0)
    assert BudgetPeriod.objects.get().cap == Decimal("2.5")


def test_each_threshold_alerts_once(north):
    make_budget("acme", "5", notify_at=(50, 100, 200))
    for uid in "abcd":
        record_runs([make_run(north, source_uid=uid, run_id=new_id(), until_at=NOON + HOUR)])
    alerts = BudgetAlert.objects.order_by("id").values_list("percent", "spent", "amount")
    assert list(alerts) == [(50, Decimal("2.5"), 5), (100, 5, 5), (200, 10, 5)]


def test_a_lower_amount_can_reach_a_threshold(north):
    make_budget("acme", "100", notify_at=(50,))
    record_runs([make_run(north)])
    assert not BudgetAlert.objects.exists()
    make_budget("acme", "5", notify_at=(50,))
    assert BudgetAlert.objects.get().percent == 50


def test_a_hold_divides_among_the_months_that_it_may_run_in():
    budget = make_budget("acme", "100000", period="month", starts_at=None, ends_at=None)
    asked = budget_request("acme", "1", seconds=30 * 24 * 3600)
    take_budgets(asked)
    held = list(BudgetPeriod.objects.filter(budget=budget).order_by("starts_at").values_list("held", flat=True))
    assert 0 <= sum(held) - 720 <= Decimal("2e-12")
    assert len(held) in {2, 3}
    assert all(held)


def test_a_run_that_begins_late_moves_to_the_later_period(north):
    """As if it was placed an hour before the end of the last month, and started an hour later than that."""
    budget = make_budget("acme", "100", period="month", starts_at=None, ends_at=None)
    span = BudgetPeriod.objects.get().starts_at
    asked = budget_request("acme", "1")
    early = Commitment(Decimal(1), "USD", Decimal(1), span - HOUR, 3600)
    take_budgets(replace(asked, commitment=early))
    assert BudgetPeriod.objects.get(budget=budget, starts_at=span).held == 0
    assert adjust_budget_holds() in {1, 2}
    rows = BudgetPeriod.objects.filter(budget=budget, starts_at__gte=span)
    assert sum(row.held for row in rows) == 1


def test_what_is_cheaper_than_its_worst_case_returns_the_difference(north):
    budget = make_budget("acme", "100")
    asked = budget_request("acme", "10", seconds=7200)
    take_budgets(asked)
    record_runs([make_run(north, run_id=asked.holder_id, is_final=False)])
    assert figures(budget) == (Decimal("2.5"), Decimal("17.5"))
    assert adjust_budget_holds() == 1
    assert figures(budget) == (Decimal("2.5"), 10)
    assert adjust_budget_holds() == 0
    assert discrepancies() == ()


def test_a_removed_budget_binds_nobody_and_its_holds_still_end(north):
    budget = make_budget("acme", "1")
    asked = budget_request("acme", "1")
    take_budgets(asked)
    delete_budget(SYSTEM, budget.id)
    assert take_budgets(budget_request("acme", "600")) == {}
    record_runs([make_run(north, run_id=asked.holder_id)])
    end_budget_holds({asked.holder_id: "posted"})
    assert figures(budget) == (0, 0)
    assert discrepancies() == ()
    assert set(AuditEntry.objects.filter(action__startswith="budget.").values_list("action", flat=True)) == {
        "budget.put",
        "budget.delete",
    }


def test_usage_without_a_hold_or_after_its_end_is_counted_too(north):
    budget = make_budget("acme", "100")
    asked = budget_request("acme", "1")
    take_budgets(asked)
    end_budget_holds({asked.holder_id: "voided"})
    record_runs([make_run(north, run_id=asked.holder_id), make_run(north, source_uid="b", run_id=new_id())])
    assert figures(budget) == (5, 0)
    assert now() > NOON
    assert discrepancies() == ()


def test_a_hold_that_spent_is_posted_whatever_its_end_is_called(north):
    budget = make_budget("acme", "100")
    asked = budget_request("acme", "10")
    take_budgets(asked)
    record_runs([make_run(north, run_id=asked.holder_id)])
    end_budget_holds({asked.holder_id: "voided"})
    assert (figures(budget), BudgetHold.objects.get().state) == ((Decimal("2.5"), 0), "posted")
