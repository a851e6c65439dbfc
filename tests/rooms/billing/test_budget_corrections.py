"""The spent figure of a budget is what the ledger says of its tenant and period, whatever is corrected, late or closed."""

from contextlib import suppress
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.db import IntegrityError, connection, transaction
from django.db.models import Sum
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from billing.engine.ledger import Entry, Line
from billing.models import BudgetAlert, BudgetMovement, BudgetPeriod, LedgerEntry, LedgerLine, LedgerPeriod, Price
from billing.operations import periods, posting, record_runs
from billing.operations.corrections import NewCorrection, correct_price
from billing.queries import discrepancies
from foundation.problems import Conflict
from tenancy.models import Tenant
from tenancy.operations.tenants import change_tenant
from tenancy.queries import SYSTEM, actor_for
from tests.builders import bind, make_budget, make_run, make_tenant, make_user
from tests.laws import examples
from tests.refusals import constraint_of

from .ledgers import OCTOBER, SEPTEMBER, at, expense, priced_cluster, settle_pending_checks

pytestmark = pytest.mark.django_db
TEAMS = ("acme/one", "acme/two")
TWENTIETH = at(20)
IN_OCTOBER: dict[str, Any] = {"starts_at": OCTOBER, "ends_at": datetime(2099, 1, 1, tzinfo=UTC)}


def correct(amount, start=OCTOBER, until=TWENTIETH):
    price = Price.objects.earliest("created_at").id
    correct_price(SYSTEM, NewCorrection(price, Decimal(amount), "USD", start, until, "a typo"))


def post():
    posting.post_days()
    settle_pending_checks()
    assert discrepancies() == ()


def spent(budget):
    return BudgetPeriod.objects.filter(budget=budget).aggregate(sum=Sum("spent"))["sum"] or Decimal(0)


def charged(path, since=OCTOBER):
    """The ledger's sum for a tenant and all below it, by the day of use."""
    below = {"account__tenant__path__startswith": path, "entry__charge_day__gte": since.date()}
    return expense(**below) - expense(**below, entry__kind__in=["idle", "platform"])


def adjust(tenant, amount, day, key="adjustment/credit"):
    """A credit that an operator posts."""
    lines = (
        Line(f"tenant_expense:{tenant.id}", "USD", Decimal(amount)),
        Line("adjustments", "USD", -Decimal(amount)),
    )
    root = Tenant.objects.get(path="acme")
    posting.post(Entry(key, "adjustment", root.id, day.date(), lines, reason="goodwill"))


def test_a_corrected_price_changes_what_is_spent_in_the_period_of_the_day_of_use_and_alerts():
    north = priced_cluster()
    budget = make_budget("acme", "20", **IN_OCTOBER)
    record_runs([make_run(north, "acme/one", started_at=at(5, 10), until_at=at(5, 14))])
    post()
    assert spent(budget) == 10
    correct("5")
    post()
    assert spent(budget) == 20 == charged("acme")
    assert list(BudgetAlert.objects.order_by("percent").values_list("percent", flat=True)) == [50, 80, 100]
    correct("1")
    post()
    assert spent(budget) == 4 == charged("acme")
    assert BudgetAlert.objects.count() == 3


def test_a_new_budget_counts_what_was_corrected_before_it_and_not_what_is_of_earlier_days():
    north = priced_cluster()
    record_runs([
        make_run(north, "acme/one", started_at=at(29, 10, month=9), until_at=at(29, 14, month=9)),
        make_run(north, "acme/one", started_at=at(5, 10), until_at=at(5, 14)),
    ])  # fmt: skip
    correct("1", SEPTEMBER)
    post()
    above, beside = make_budget("acme", **IN_OCTOBER), make_budget("acme/two", **IN_OCTOBER)
    assert (spent(above), spent(beside)) == (4, 0)
    assert discrepancies() == ()


def test_credits_count_and_shares_of_idle_capacity_do_not():
    north = priced_cluster()
    team = make_tenant("acme/one")
    budget, hours = make_budget("acme/one", **IN_OCTOBER), make_budget("acme", measure="gpu_hours", **IN_OCTOBER)
    record_runs([make_run(north, "acme/one", started_at=at(5, 10), until_at=at(5, 14))])
    post()
    adjust(team, "-3", at(6))
    lines = (Line(f"tenant_expense:{team.id}", "USD", Decimal(7)), Line("platform", "USD", Decimal(-7)))
    root = Tenant.objects.get(path="acme")
    periods.begin_closing(SYSTEM, LedgerPeriod.objects.get(month=OCTOBER.date()).id)
    posting.post(Entry("platform/x", "platform", root.id, at(6).date(), lines, reason="policy"))
    assert spent(budget) == 7 == charged("acme/one")
    assert spent(hours) == 4


def test_a_credit_of_more_than_was_spent_leaves_less_than_nothing_spent():
    priced_cluster()
    budget = make_budget("acme/one", "10", **IN_OCTOBER)
    adjust(make_tenant("acme/one"), "-3", at(6))
    period = BudgetPeriod.objects.get(budget=budget)
    assert (period.spent, period.cap) == (-3, 10)
    assert discrepancies() == ()


steps = st.lists(
    st.tuples(
        st.sampled_from(["run", "run", "correct", "correct", "post", "credit", "close", "reopen", "budget", "move"]),
        st.integers(1, 60),
        st.integers(0, 1),
        st.integers(0, 9_999_999),
    ),
    min_size=3,
    max_size=10,
)


class World:
    """Independent sums beside the gateway: what each budget must count after each move."""

    def __init__(self):
        self.north = priced_cluster(amount="2.333333")
        self.teams = [make_tenant(path) for path in TEAMS]
        make_tenant("acme/dept")
        self.people = [make_user() for _ in range(2)]
        for person in self.people:
            bind(person, "acme", "finance")
        self.budgets = {"acme": make_budget("acme", **IN_OCTOBER)}

    def play(self, kind, number, team, amount):
        start = OCTOBER + timedelta(hours=12 * number)
        if kind == "run":
            path = Tenant.objects.get(id=self.teams[team].id).path
            record_runs([make_run(self.north, path, started_at=start, until_at=start + timedelta(hours=5))])
        elif kind == "correct":
            correct(Decimal(amount).scaleb(-6), start, start + timedelta(hours=number))
        elif kind == "credit":
            adjust(self.teams[team], Decimal(amount + 1).scaleb(-6) - 5, start, f"adjustment/{number}/{amount}")
        elif kind == "budget" and not LedgerEntry.objects.filter(kind="adjustment").exists():
            self.budgets.setdefault("acme/dept", make_budget("acme/dept", **IN_OCTOBER))
        elif kind == "move":
            change_tenant(SYSTEM, self.teams[0].id, parent_id=Tenant.objects.get(path="acme/dept").id)
        elif kind in {"close", "reopen"}:
            self.turn(kind)
        elif kind == "post":
            posting.post_days()

    def turn(self, kind):
        october = LedgerPeriod.objects.filter(month=OCTOBER.date()).first()
        if october and kind == "close" and october.state == "open":
            with suppress(Conflict):  # days are not posted yet
                periods.begin_closing(SYSTEM, october.id)
            periods.keep_ledger()
        elif october and kind == "reopen" and october.state == "closed":
            periods.request_reopening(actor_for(self.people[0]), october.id, "late")
            periods.approve_reopening(actor_for(self.people[1]), october.id)


@pytest.mark.law
@examples(12, suppressed=list(HealthCheck))
@given(moves=steps)
def test_a_budget_is_the_ledgers_sum_after_any_sequence(moves):
    with transaction.atomic():
        world = World()
        for move in moves:
            world.play(*move)
            corrections = LedgerLine.objects.filter(account__kind="tenant_expense")
            corrections = corrections.exclude(entry__kind__in=["usage", "idle", "platform"])
            counted = BudgetMovement.objects.filter(period__budget=world.budgets["acme"], kind="correct")
            assert counted.aggregate(s=Sum("spent"))["s"] == corrections.aggregate(s=Sum("amount"))["s"]
        posting.post_days()
        settle_pending_checks()
        assert spent(world.budgets["acme"]) == charged("acme")
        assert discrepancies() == ()
        transaction.set_rollback(True)


LINE = (
    "INSERT INTO billing_budgetmovement (line_id, run_id, period_id, kind, held, spent)"
    " SELECT {line}, {run}, %(period)s, '{kind}', {held}, {spent}"
)
COUNTED, UNCOUNTED = "%(counted)s", "%(uncounted)s"
ATTACKS = {
    "at a neighbour": (LINE.replace("%(period)s", "%(neighbour)s").format(line=COUNTED, run="NULL", kind="correct", held=0, spent=-10), "budget_correction_is_what_the_ledger_says"),
    "counted twice": (LINE.format(line=COUNTED, run="NULL", kind="correct", held=0, spent=-10), "a_ledger_line_corrects_once_per_budget_period"),
    "of metered usage": (LINE.format(line=UNCOUNTED, run="NULL", kind="correct", held=0, spent=10), "budget_correction_is_what_the_ledger_says"),
    "of nothing": (LINE.format(line="NULL", run="NULL", kind="correct", held=0, spent=-1), "a_correction_is_of_a_ledger_line"),
    "of a run too": (LINE.format(line=COUNTED, run="gen_random_uuid()", kind="correct", held=0, spent=-6), "a_correction_is_of_a_ledger_line"),
    "that is a post": (LINE.format(line=COUNTED, run="NULL", kind="post", held=0, spent=1), "a_correction_is_of_a_ledger_line"),
    "that holds": (LINE.format(line=COUNTED, run="NULL", kind="correct", held=-1, spent=0), "takes_add_and_ends_return"),
    "a post that returns": (LINE.format(line="NULL", run="gen_random_uuid()", kind="post", held=0, spent=-1), "only_metered_time_is_spent"),
}  # fmt: skip


@pytest.mark.parametrize("name", ATTACKS)
def test_the_database_refuses_a_correction(name):
    north = priced_cluster()
    budget, neighbour = make_budget("acme/one", "20", **IN_OCTOBER), make_budget("acme/two", **IN_OCTOBER)
    record_runs([make_run(north, "acme/one", started_at=at(5, 10), until_at=at(5, 14))])
    correct("1")
    post()
    expenses = LedgerLine.objects.filter(account__kind="tenant_expense")
    values = {
        "period": BudgetPeriod.objects.get(budget=budget).id,
        "neighbour": BudgetPeriod.objects.get(budget=neighbour).id,
        "counted": expenses.get(entry__kind="reversal").id,
        "uncounted": expenses.get(entry__kind="usage").id,
    }
    statement, constraint = ATTACKS[name]
    with pytest.raises(IntegrityError) as refused, transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(statement, values)
    assert constraint_of(refused.value) == constraint
