"""Raw SQL against every promise of the budgets' journal: each attack must be refused by the database itself."""

import pytest
from django.db import IntegrityError, connection, transaction

from billing.models import BudgetOverride, BudgetPeriod
from billing.operations import end_budget_holds
from billing.queries import discrepancies
from foundation.ids import new_id
from tests.builders import budget_request, make_budget, make_tenant, take_budgets
from tests.kept_rows import once_a_module
from tests.refusals import constraint_of

pytestmark = pytest.mark.django_db


@once_a_module
def books():
    """A stopping budget of 10 USD on acme with 4 held, another on its neighbour, and an override that is requested."""
    budget, neighbour = make_budget("acme", "10"), make_budget("other", "10")
    asked, ended = budget_request("acme/research", "4"), budget_request("acme", "1")
    make_tenant("acme/research")
    take_budgets(asked, ended)
    end_budget_holds({ended.holder_id: "voided"})
    period = BudgetPeriod.objects.get(budget=budget)
    user = new_id()
    override = BudgetOverride.objects.create(
        period=period, amount=5, reason="why", expires_at="2098-01-01T00:00Z", requested_by=user, requester_name="ada"
    )
    return {
        "budget": budget.id,
        "neighbour": BudgetPeriod.objects.get(budget=neighbour).id,
        "period": period.id,
        "hold": asked.holder_id,
        "ended": ended.holder_id,
        "tenant": asked.tenant_id,
        "override": override.id,
        "user": user,
        "fresh": new_id(),
    }


def attack(statements, values):
    with transaction.atomic(), connection.cursor() as cursor:
        for statement in statements.split(";"):
            cursor.execute(statement, values)
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
        cursor.execute("SET CONSTRAINTS ALL DEFERRED")


BARE_HOLD = (
    "INSERT INTO billing_budgethold (holder_id, tenant_id, money_an_hour, currency, gpus, starts_at, seconds, state)"
    " VALUES (%(fresh)s, %(tenant)s, {0}, 'USD', 1, now(), 3600, '{1}')"
)
LINE = (
    "INSERT INTO billing_budgetmovement (run_id, period_id, kind, held, spent)"
    " VALUES (%({0})s, %({1})s, '{2}', {3}, {4})"
)
NEW_HOLD = "WITH held AS (" + BARE_HOLD.format(1, "pending") + ") "
APPROVE = "UPDATE billing_budgetoverride SET approved_by = {0}, approved_at = {1} WHERE id = %(override)s"
ATTACKS = {
    "spent written by hand": ("UPDATE billing_budgetperiod SET spent = 1", "budget_moves_by_journal"),
    "held written by hand": ("UPDATE billing_budgetperiod SET held = 0", "budget_moves_by_journal"),
    "cap raised by hand": ("UPDATE billing_budgetperiod SET cap = 900", "budget_moves_by_journal"),
    "granted by hand": ("UPDATE billing_budgetperiod SET granted = 900", "budget_moves_by_journal"),
    "period moved": ("UPDATE billing_budgetperiod SET starts_at = now()", "budget_period_is_fixed"),
    "period begun with something spent": (
        (
            "INSERT INTO billing_budgetperiod (budget_id, starts_at, ends_at, amount, granted, cap, held, spent)"
            " VALUES (%(budget)s, '2027-01-01Z', '2027-02-01Z', 10, 0, 10, 0, 3)"
        ),
        "budget_period_begins_empty",
    ),
    "period of other dates than its budget's": (
        (
            "INSERT INTO billing_budgetperiod (budget_id, starts_at, ends_at, amount, granted, cap, held, spent)"
            " VALUES (%(budget)s, '2027-01-01Z', '2027-02-01Z', 10, 0, 10, 0, 0)"
        ),
        "budget_period_begins_empty",
    ),
    "budget for another tenant": (
        "UPDATE billing_budget SET tenant_id = %(tenant)s WHERE id = %(budget)s",
        "budget_identity_is_fixed",
    ),
    "budget counted from later": ("UPDATE billing_budget SET counts_from = now()", "budget_identity_is_fixed"),
    "negative amount": ("UPDATE billing_budget SET amount = -1", "budget_is_in_range"),
    "thresholds out of order": ("UPDATE billing_budget SET notify_at = '{80,50}'", "budget_thresholds_are_in_order"),
    "threshold of nothing": ("UPDATE billing_budget SET notify_at = '{0}'", "budget_thresholds_are_in_order"),
    "budget of two kinds of period": ("UPDATE billing_budget SET period = 'month'", "budget_identity_is_fixed"),
    "budget of a month with dates": (
        (
            "INSERT INTO billing_budget (id, tenant_id, measure, currency, period, starts_at, ends_at, amount, notify_at,"
            " stops_admission, counts_from) VALUES (%(fresh)s, %(tenant)s, 'money', 'USD', 'month', '2027-01-01Z',"
            " '2027-02-01Z', 1, '{}', true, now())"
        ),
        "budget_has_dates_or_a_period",
    ),
    "budget of hours of a day": (
        (
            "INSERT INTO billing_budget (id, tenant_id, measure, currency, period, starts_at, ends_at, amount, notify_at,"
            " stops_admission, counts_from) VALUES (%(fresh)s, %(tenant)s, 'money', 'USD', 'dates', '2027-01-01T05:00Z',"
            " '2027-02-01Z', 1, '{}', true, now())"
        ),
        "budget_dates_are_days",
    ),
    "take beyond the amount": (
        NEW_HOLD + LINE.format("fresh", "period", "take", "6.000000000001", 0),
        "budget_is_never_exceeded",
    ),
    "take at a neighbour": (NEW_HOLD + LINE.format("fresh", "neighbour", "take", 1, 0), "budget_take_is_on_its_path"),
    "negative take": (NEW_HOLD + LINE.format("fresh", "period", "take", -1, 0), "takes_add_and_ends_return"),
    "take that spends": (NEW_HOLD + LINE.format("fresh", "period", "take", 1, 1), "only_metered_time_is_spent"),
    "second take": (LINE.format("hold", "period", "take", 1, 0), "a_run_is_taken_once_per_budget_period"),
    "take without a hold": (LINE.format("fresh", "period", "take", 1, 0), "ended_budget_hold_moves_nothing"),
    "take of nothing without a hold": (LINE.format("fresh", "period", "take", 0, 0), "budget_take_is_on_its_path"),
    "hold that takes nowhere": (BARE_HOLD.format(1, "pending"), "pending_budget_hold_is_counted"),
    "hold begun as posted": (BARE_HOLD.format(1, "posted"), "budget_hold_begins_pending"),
    "hold of less than nothing": (
        "WITH held AS (" + BARE_HOLD.format(-1, "pending") + ") " + LINE.format("fresh", "period", "take", 0, 0),
        "budget_hold_is_not_negative",
    ),
    "return of more than was taken": (
        LINE.format("hold", "period", "adjust", -5, 0),
        "budget_hold_returns_what_it_has",
    ),
    "post that holds": (LINE.format("hold", "period", "post", 1, 0), "takes_add_and_ends_return"),
    "void that spends": (LINE.format("hold", "period", "void", 0, 1), "only_metered_time_is_spent"),
    "negative spending": (LINE.format("hold", "period", "adjust", 0, -1), "only_metered_time_is_spent"),
    "ended hold that holds again": (LINE.format("ended", "period", "adjust", 1, 0), "ended_budget_hold_moves_nothing"),
    "hold ended with its hold kept": (
        "UPDATE billing_budgethold SET state = 'posted', ended_at = clock_timestamp() WHERE holder_id = %(hold)s",
        "ended_budget_hold_gave_back_all",
    ),
    "void of what has spent": (
        LINE.format("hold", "period", "adjust", -4, 4)
        + ";UPDATE billing_budgethold SET state = 'voided', ended_at = clock_timestamp() WHERE holder_id = %(hold)s",
        "ended_budget_hold_gave_back_all",
    ),
    "hold that pends again": (
        "UPDATE billing_budgethold SET state = 'pending', ended_at = NULL WHERE holder_id = %(ended)s",
        "budget_hold_ends_once",
    ),
    "hold made cheaper": (
        "UPDATE billing_budgethold SET money_an_hour = 0 WHERE holder_id = %(hold)s",
        "budget_hold_ends_once",
    ),
    "line dated back": (
        (
            "INSERT INTO billing_budgetmovement (run_id, period_id, kind, held, spent, at)"
            " VALUES (%(hold)s, %(period)s, 'adjust', -1, 0, '2026-01-01Z')"
        ),
        "budget_line_is_dated_now",
    ),
    "line rewritten": ("UPDATE billing_budgetmovement SET held = 0", "ledger_is_append_only"),
    "line deleted": ("DELETE FROM billing_budgetmovement", "ledger_is_append_only"),
    "hold deleted": ("DELETE FROM billing_budgethold", "ledger_is_append_only"),
    "alert deleted": ("DELETE FROM billing_budgetalert", "ledger_is_append_only"),
    "second alert of one threshold": (
        (
            "INSERT INTO billing_budgetalert (period_id, percent, spent, amount)"
            " VALUES (%(period)s, 50, 5, 10), (%(period)s, 50, 6, 10)"
        ),
        "each_threshold_alerts_once_per_period",
    ),
    "override approved by its requester": (APPROVE.format("%(user)s", "now()"), "override_needs_a_second_person"),
    "override approved by nobody": (APPROVE.format("NULL", "now()"), "override_needs_a_second_person"),
    "override approved long ago": (APPROVE.format("%(fresh)s", "'2026-01-01Z'"), "override_is_approved_once"),
    "override made larger": ("UPDATE billing_budgetoverride SET amount = 900", "override_is_approved_once"),
    "override begun as approved": (
        (
            "INSERT INTO billing_budgetoverride (id, period_id, amount, reason, expires_at, requested_by, requester_name,"
            " approved_by, approver_name, approved_at)"
            " VALUES (%(fresh)s, %(period)s, 1, 'x', '2098-01-01Z', %(fresh)s, 'a', %(user)s, 'b', now())"
        ),
        "override_begins_as_a_request",
    ),
    "override deleted": ("DELETE FROM billing_budgetoverride", "ledger_is_append_only"),
}


@pytest.mark.parametrize("name", ATTACKS)
def test_the_database_refuses(books, name):
    statements, constraint = ATTACKS[name]
    with pytest.raises(IntegrityError) as refused:
        attack(statements, books)
    assert constraint_of(refused.value) == constraint


def test_what_is_lawful_is_accepted(books):
    attack(NEW_HOLD + LINE.format("fresh", "period", "take", 6, 0), books)
    attack(APPROVE.format("%(fresh)s", "clock_timestamp()"), books)
    assert discrepancies() == ()


SPOILED = {
    "counts 0": "UPDATE billing_budgetperiod SET held = 0, cap = 10 WHERE id = %(period)s",
    "still holds 4": "UPDATE billing_budgethold SET state = 'posted', ended_at = now() WHERE holder_id = %(hold)s",
    "is not counted at budget": (
        "UPDATE billing_budgetmovement SET kind = 'adjust' WHERE run_id = %(hold)s AND period_id = %(period)s"
    ),
    "of all its segments": "UPDATE billing_budgetmovement SET kind = 'adjust', held = 3, spent = 1 WHERE run_id = %(hold)s",
}


@pytest.mark.parametrize("told", SPOILED)
def test_the_proof_finds_what_a_database_without_its_rules_would_let_pass(books, told):
    with connection.cursor() as cursor:
        cursor.execute("SET session_replication_role = replica")
        cursor.execute(SPOILED[told], books)
        cursor.execute("SET session_replication_role = DEFAULT")
    assert any(told in sentence for sentence in discrepancies()), discrepancies()
