"""Many takers of one budget at once, with real commits: what is spent and held never exceeds what it allows."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.db.models import Sum

from billing.models import (
    BudgetForecastAlert,
    BudgetHold,
    BudgetPeriod,
    BudgetRate,
    LedgerLine,
    Price,
    SpendAnomaly,
)
from billing.operations import adjust_budget_holds, create_price, end_budget_holds, posting, record_runs
from billing.operations.anomalies import inspect_spending
from billing.operations.corrections import NewCorrection, correct_price
from billing.operations.exchange import NewRate, set_exchange_rate
from billing.operations.forecasts import foresee_budgets
from billing.operations.prices import NewPrice
from billing.queries import discrepancies
from foundation.clock import now
from foundation.ids import new_id
from foundation.transactions import retried
from tenancy.queries import SYSTEM
from tests.builders import budget_request, make_budget, make_cluster, make_flavor, make_run, make_tenant, take_budgets

from .test_quota_races import at_once

pytestmark = pytest.mark.django_db(transaction=True)


def test_of_200_takers_of_the_last_euro_one_gets_it_and_none_after_a_cut():
    """The amount is cut below what is held while they come: never more than the amount that was in force."""
    budget = make_budget("acme", "10", currency="EUR")
    make_tenant("acme/research")
    ask = budget_request("acme/research", "9")
    euro = ask.commitment._replace(currency="EUR")
    asked = [budget_request("acme/research") for _ in range(200)]
    euros = [
        type(ask)(one.holder_id, one.tenant_id, one.tenant_path, euro._replace(money_an_hour=Decimal(1)))
        for one in asked
    ]
    take_budgets(type(ask)(ask.holder_id, ask.tenant_id, ask.tenant_path, euro))

    def cut():
        make_budget("acme", "5", currency="EUR")

    outcomes = at_once([*(lambda one=one: take_budgets(one) for one in euros), cut])[:-1]

    started = sum(not refusals for refusals in outcomes)
    assert started <= 1
    period = BudgetPeriod.objects.get(budget=budget)
    assert (period.held, period.cap, period.amount) == (9 + started, 9 + started, 5)
    assert BudgetHold.objects.count() == 1 + started
    assert discrepancies() == ()


def test_200_takers_without_a_cut_take_exactly_what_there_is():
    budget = make_budget("acme", "20")
    make_budget("acme/research", "7", measure="gpu_hours")
    asked = [budget_request("acme/research" if number % 2 else "acme") for number in range(200)]
    outcomes = at_once([lambda one=one: take_budgets(one) for one in asked])
    assert sum(not refusals for refusals in outcomes) == 20
    assert BudgetPeriod.objects.get(budget=budget).held == 20
    assert BudgetPeriod.objects.exclude(budget=budget).get().held <= 7
    assert discrepancies() == ()


def test_takers_in_another_currency_take_what_there_is_at_one_rate_although_others_are_set_meanwhile():
    """None was kept when they came: the first of them keeps it for all."""
    today = now().astimezone(UTC).date()

    def agree(rate):
        set_exchange_rate(
            SYSTEM, NewRate("acme", "USD", "EUR", Decimal(rate), today, today + timedelta(days=2), "agreed")
        )

    make_tenant("acme/research")
    agree("0.5")
    make_budget("acme", "10", currency="EUR")
    make_budget("acme/research", "10", currency="EUR")
    asked = [budget_request("acme/research" if number % 2 else "acme") for number in range(60)]
    outcomes = at_once(
        [
            *(lambda one=one: take_budgets(one) for one in asked),
            *(lambda rate=rate: agree(rate) for rate in ("0.4", "0.8")),
        ]
    )
    kept = BudgetRate.objects.get()
    assert kept.rate in {Decimal("0.5"), Decimal("0.4"), Decimal("0.8")}
    started = sum(refusals == {} for refusals in outcomes[:60])
    period = BudgetPeriod.objects.get(budget__tenant__path="acme")
    assert (started, period.held, period.cap) == (int(10 / kept.rate), started * kept.rate, 10)
    assert discrepancies() == ()


def test_the_first_use_of_a_currency_on_a_day_is_counted_by_all_at_one_rate():
    """Meters, takers and budgets that are set, in transactions that all find no kept rate."""
    north = make_cluster(name="north")
    make_flavor(north)
    begin = datetime(2026, 11, 10, tzinfo=UTC)
    create_price(SYSTEM, NewPrice("north", "h100", Decimal(1), effective_from=begin))
    set_exchange_rate(
        SYSTEM, NewRate("acme", "USD", "EUR", Decimal("0.5"), begin.date(), begin.date() + timedelta(days=30), "agreed")
    )
    for path in ("acme", "acme/one", "acme/two"):
        make_budget(path, "1000", currency="EUR")

    def meter(number):
        starts = [begin + timedelta(days=(number + turn) % 5) for turn in range(5)]
        record_runs([
            make_run(north, "acme/one" if number % 2 else "acme/two", run_id=new_id(), source_uid=f"{number}/{turn}", started_at=at, until_at=at + timedelta(hours=1))
            for turn, at in enumerate(starts)
        ])  # fmt: skip

    def agree(rate):
        set_exchange_rate(
            SYSTEM,
            NewRate("acme", "USD", "EUR", Decimal(rate), begin.date(), begin.date() + timedelta(days=5), "agreed"),
        )

    at_once([
        *(lambda number=number: meter(number) for number in range(12)), *(lambda rate=rate: agree(rate) for rate in ("0.4", "0.8")),
        lambda: make_budget("acme", "5", period="month", starts_at=None, ends_at=None, currency="EUR"),
    ])  # fmt: skip

    spent = sum(12 * rate for rate in BudgetRate.objects.values_list("rate", flat=True))
    assert BudgetRate.objects.count() == 5
    assert set(BudgetPeriod.objects.filter(budget__tenant__path="acme").values_list("spent", flat=True)) == {spent}
    assert discrepancies() == ()


def test_work_comes_runs_and_goes_while_budgets_are_set_and_holds_adjusted():
    north = make_cluster(name="north")
    make_flavor(north)
    create_price(SYSTEM, NewPrice("north", "h100", Decimal(1), effective_from=make_run(north).started_at))
    make_budget("acme", "50")
    make_tenant("acme/research")

    @retried
    def settle(one):
        record_runs([make_run(north, "acme/research", run_id=one.holder_id)])
        end_budget_holds({one.holder_id: "posted"})

    def work():
        for _ in range(4):
            asked = [budget_request("acme/research", seconds=7200) for _ in range(3)]
            refusals = take_budgets(*asked)
            for one in asked:
                if one.holder_id not in refusals:
                    record_runs([make_run(north, "acme/research", run_id=one.holder_id, is_final=False)])
                    settle(one)

    def change():
        for amount in ("40", "2", "60"):
            make_budget("acme", amount)
            make_budget("acme/research", amount, measure="gpu_hours")

    at_once([*[work] * 6, change, change, adjust_budget_holds, adjust_budget_holds])

    assert set(BudgetPeriod.objects.values_list("held", flat=True)) == {0}
    assert not BudgetHold.objects.filter(state="pending").exists()
    assert discrepancies() == ()


def test_budgets_set_while_corrections_are_made_and_posted_count_each_once():
    north = make_cluster(name="north")
    make_flavor(north)
    start = datetime(2026, 11, 2, tzinfo=UTC)
    create_price(SYSTEM, NewPrice("north", "h100", Decimal(1), effective_from=start))
    days = [start + timedelta(days=number) for number in range(6)]
    record_runs([make_run(north, "acme/research", started_at=day, until_at=day + timedelta(hours=3)) for day in days])
    price = Price.objects.get().id

    def correct(amount):
        correct_price(SYSTEM, NewCorrection(price, Decimal(amount), "USD", days[0], days[-1], "a typo"))
        posting.post_days()

    def change():
        for amount in ("40", "2"):
            make_budget("acme", amount)
            make_budget("acme/research", amount)

    at_once([lambda: correct("2"), lambda: correct("3"), change, posting.post_days, posting.post_days])

    posting.post_days()
    charged = LedgerLine.objects.filter(account__kind="tenant_expense").aggregate(sum=Sum("amount"))["sum"]
    assert set(BudgetPeriod.objects.values_list("spent", flat=True)) == {charged}
    assert discrepancies() == ()


def test_two_routines_that_expect_the_same_threshold_record_it_once():
    today = datetime.combine(now().astimezone(UTC).date(), datetime.min.time(), UTC)
    north = make_cluster(name="north")
    make_flavor(north)
    create_price(SYSTEM, NewPrice("north", "h100", Decimal(1), effective_from=today - timedelta(days=50)))
    starts = [today - timedelta(days=number) for number in range(1, 36)]
    record_runs([make_run(north, "acme", started_at=start, until_at=start + timedelta(hours=5)) for start in starts])
    dates: dict[str, Any] = {"starts_at": today - timedelta(days=1), "ends_at": today + timedelta(days=9)}
    budget = make_budget("acme", "20", **dates, notify_at=(), notify_forecast_at=(50, 100, 200))

    def change():
        make_budget("acme", "19", **dates, notify_at=())

    at_once([*[foresee_budgets] * 5, change])
    foresee_budgets()

    assert list(BudgetForecastAlert.objects.order_by("percent").values_list("percent", flat=True)) == [50, 100, 200]
    assert set(BudgetForecastAlert.objects.values_list("amount", flat=True)) <= {19, 20}
    assert BudgetForecastAlert.objects.filter(period__budget=budget).count() == 3


def test_routines_that_find_the_same_day_record_it_once():
    today = datetime.combine(now().astimezone(UTC).date(), datetime.min.time(), UTC)
    north = make_cluster(name="north")
    make_flavor(north)
    create_price(SYSTEM, NewPrice("north", "h100", Decimal(1), effective_from=today - timedelta(days=50)))
    spans = [(today - timedelta(days=40), 1), *[(today - timedelta(days=1), 24)] * 10]
    record_runs([make_run(north, "acme", started_at=at, until_at=at + timedelta(hours=hours)) for at, hours in spans])

    at_once([inspect_spending] * 5)

    assert SpendAnomaly.objects.get().cost == 240
