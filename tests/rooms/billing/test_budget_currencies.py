"""Budgets of money count prices in other currencies at the rate of their day, which is kept: in holds, usage and corrections."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import ROUND_DOWN, Decimal

import pytest
from django.db import DatabaseError, connection, transaction

from billing.models import BudgetMovement, BudgetPeriod, BudgetRate, Price
from billing.operations import (
    TrueEnd,
    adjust_budget_holds,
    correct_ends,
    create_price,
    end_budget_holds,
    posting,
    record_runs,
)
from billing.operations.corrections import NewCorrection, correct_price
from billing.operations.exchange import NewRate, set_exchange_rate
from billing.operations.prices import NewPrice
from billing.queries import discrepancies
from foundation.clock import now
from foundation.ids import new_id
from foundation.problems import Invalid
from tenancy.queries import SYSTEM
from tests.builders import budget_request, make_budget, make_cluster, make_flavor, make_run, make_tenant, take_budgets
from tests.kept_rows import written_once
from tests.processes_role import as_processes
from tests.refusals import constraint_of

from .exchanging import billed_in

pytestmark = pytest.mark.django_db
BEGIN = datetime(2026, 11, 1, tzinfo=UTC)
NOON = datetime(2026, 11, 10, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


def agreed(rate, base, start, until, quote="EUR"):
    return set_exchange_rate(SYSTEM, NewRate("acme", base, quote, Decimal(rate), start, until, "agreed"))


@pytest.fixture(scope="module")
def fleet(processes_role, django_db_setup, django_db_blocker):
    """Capacity in dollars and in francs, of an organisation that is billed in euros. Rates of two days in November, and of today."""
    with written_once(django_db_blocker, _fleet) as found:
        yield found


def _fleet():
    clusters = {}
    for name, currency, amount in (("north", "USD", "2.333333"), ("south", "CHF", "3")):
        clusters[name] = make_cluster(name=name)
        make_flavor(clusters[name], "h100")
        if currency == "CHF":
            billed_in("EUR", BEGIN.date())
        create_price(SYSTEM, NewPrice(name, "h100", Decimal(amount), currency, effective_from=BEGIN))
    today = now().astimezone(UTC).date()
    for day, usd, chf in ((10, "0.9", "1.05"), (11, "0.8", "1.10")):
        date = NOON.date().replace(day=day)
        agreed(usd, "USD", date, date + timedelta(days=1))
        agreed(chf, "CHF", date, date + timedelta(days=1))
    agreed("0.5", "USD", today, today + timedelta(days=2))
    agreed("1.2", "CHF", today, today + timedelta(days=2))
    make_tenant("acme/research")
    return clusters


@pytest.fixture
def two(fleet, db):
    return fleet


def euros(path="acme", amount="100", **more):
    return make_budget(path, amount, currency="EUR", **more)


def figures(budget):
    period = BudgetPeriod.objects.get(budget=budget)
    return period.spent, period.held


def asked(an_hour="2", currency="USD", path="acme/research", seconds=3600, later=None):
    one = budget_request(path, an_hour, seconds=seconds)
    whole = one.commitment
    return replace(one, commitment=whole._replace(currency=currency, starts_at=later or whole.starts_at))


USD, CHF = Decimal("2.333333"), Decimal(3)


def ran(cluster, uid, start=NOON, hours=1, tenant="acme/research", **more):
    more.setdefault("run_id", new_id())
    record_runs([make_run(cluster, tenant, source_uid=uid, started_at=start, until_at=start + hours * HOUR, **more)])


def in_euros(cost, rate):
    """Rounded towards zero, as a budget counts a segment."""
    return (cost * Decimal(rate)).quantize(Decimal("1e-12"), ROUND_DOWN)


def test_usage_counts_at_the_rate_of_its_day_and_a_later_rate_moves_nothing(two):
    budget, above = euros("acme/research"), euros()
    for name in two:
        ran(two[name], name)
        ran(two[name], f"{name}2", NOON + timedelta(days=1))
    spent = in_euros(USD, "0.9") + in_euros(USD, "0.8") + CHF * (Decimal("1.05") + Decimal("1.10"))
    assert figures(budget) == figures(above) == (spent, 0)
    agreed("0.1", "USD", NOON.date(), NOON.date() + timedelta(days=5))
    assert figures(budget) == (spent, 0)
    ran(two["north"], "late")
    assert figures(budget) == (spent + in_euros(USD, "0.9"), 0)
    posting.post_days()
    assert discrepancies() == ()


def test_a_new_budget_counts_what_was_used_at_the_same_rates_as_the_one_above(two):
    above = euros()
    ran(two["north"], "a")
    agreed("0.1", "USD", NOON.date(), NOON.date() + timedelta(days=5))
    ran(two["north"], "b", NOON + timedelta(days=1))
    below = euros("acme/research")
    assert figures(below) == figures(above) == (in_euros(USD, "0.9") + in_euros(USD, "0.1"), 0)
    assert discrepancies() == ()


def test_a_hold_keeps_the_rate_of_its_take(two):
    budget = euros(amount="10")
    one = asked("2", seconds=7200)
    assert take_budgets(one) == {}
    assert figures(budget) == (0, 2)
    day = one.commitment.starts_at.date()
    agreed("4", "USD", day, day + timedelta(days=2))
    assert adjust_budget_holds() == 0
    assert figures(budget) == (0, 2)
    # The rate of the day is kept, so it counts for all takes of the day.
    assert list(take_budgets(asked("17"))) != []
    assert take_budgets(asked("16")) == {}
    assert figures(budget) == (0, 10)
    end_budget_holds({one.holder_id: "voided"})
    assert figures(budget) == (0, 8)
    assert discrepancies() == ()


def test_a_budget_that_is_set_while_work_runs_counts_its_hold_at_the_rate_of_the_day_it_began(two):
    one = asked("2", seconds=7200)
    take_budgets(one)
    budget = euros()
    spent, held = figures(budget)
    assert (spent, held) == (0, 2)
    end_budget_holds({one.holder_id: "voided"})
    assert discrepancies() == ()


def test_metered_time_turns_from_held_into_spent_at_the_rate_of_its_day(two):
    budget = euros()
    one = asked("2.333333", seconds=7200)
    take_budgets(one)
    _, held = figures(budget)
    ran(two["north"], "a", run_id=one.holder_id, is_final=False)
    counted = in_euros(USD, "0.9")
    assert figures(budget) == (counted, held - counted)
    end_budget_holds({one.holder_id: "posted"})
    assert figures(budget) == (counted, 0)
    assert discrepancies() == ()


def test_a_correction_counts_the_difference_at_the_kept_rate_and_a_shorter_run_returns_its_part(two):
    budget = euros()
    ran(two["north"], "a")
    run = make_run(
        two["south"], "acme/research", run_id=new_id(), source_uid="guessed", started_at=NOON, until_at=NOON + 4 * HOUR,
        certain_until=NOON + HOUR, is_estimated=True,
    )  # fmt: skip
    record_runs([run])
    assert figures(budget)[0] == in_euros(USD, "0.9") + 4 * CHF * Decimal("1.05")
    agreed("7", "CHF", NOON.date(), NOON.date() + timedelta(days=1))
    correct_ends([TrueEnd(run.key, NOON + 2 * HOUR)])
    assert figures(budget)[0] == in_euros(USD, "0.9") + 2 * CHF * Decimal("1.05")
    posting.post_days()
    price = Price.objects.get(rate__cluster__name="north").id
    correct_price(SYSTEM, NewCorrection(price, Decimal(5), "USD", BEGIN, NOON + timedelta(days=5), "a typo"))
    posting.post_days()
    assert figures(budget)[0] - 2 * CHF * Decimal("1.05") - 5 * Decimal("0.9") <= Decimal("1e-12")
    assert BudgetMovement.objects.filter(kind="correct").count() == 2
    assert discrepancies() == ()


def test_without_a_rate_of_the_day_a_stopping_budget_admits_nothing_and_says_what_is_missing(two):
    budget, lenient = euros(), euros("acme/research", stops=False)
    later = now() + timedelta(days=4)
    one = asked("2", later=later)
    refused = take_budgets(one)
    message = refused[one.holder_id].message
    assert message.startswith(
        "no exchange rate from USD to EUR counts today, so the budget of acme cannot count the price"
    )
    assert "page Currencies" in message
    assert not BudgetRate.objects.exists(), "a refusal keeps no old rate for the day"
    assert take_budgets(asked("2", "EUR", later=later)) == {}
    assert take_budgets(asked("0", later=later)) == {}
    # Used time always counts: at the last known rate.
    day = later.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    ran(two["north"], "a", day)
    assert figures(budget)[0] == figures(lenient)[0] == in_euros(USD, "0.5")
    agreed("0.25", "USD", day.date(), day.date() + timedelta(days=1))
    assert take_budgets(asked("2", later=later)) == {}
    # The day's rate was kept when the time was metered.
    assert BudgetPeriod.objects.get(budget=budget).held == 2 + 1
    assert not [sentence for sentence in discrepancies() if "budget" in sentence]


def test_a_missing_rate_refuses_below_a_budget_that_stops_nothing(two):
    euros(stops=False)
    euros("acme/research")
    one = asked("2", later=now() + timedelta(days=4))
    above = asked("2", path="acme", later=now() + timedelta(days=4))
    assert list(take_budgets(one, above)) == [one.holder_id]


def test_a_budget_whose_dates_have_passed_asks_for_no_rate(two):
    """It stops nothing any more; another one counts at the last known rate."""
    begins = now().replace(hour=0, minute=0, second=0, microsecond=0)
    euros(starts_at=begins, ends_at=begins + timedelta(days=1))
    lenient = euros("acme/research", stops=False)
    assert take_budgets(asked("2", later=begins + timedelta(days=4))) == {}
    assert figures(lenient) == (0, 1)


def test_budgets_and_prices_that_could_not_be_counted_are_refused(two):
    with pytest.raises(Invalid, match="no exchange rate from CHF or USD to JPY counts on") as refused:
        make_budget("acme", "100", currency="JPY")
    assert [(one.field, one.code) for one in refused.value.errors] == [("amount", "no_exchange_rate")]
    with pytest.raises(Invalid) as refused:
        make_budget("acme", "100", currency="XAU")
    assert [(one.field, one.code) for one in refused.value.errors] == [("amount", "unknown_currency")]
    euros()
    with pytest.raises(Invalid, match="budgets of acme are in EUR") as refused:
        create_price(SYSTEM, NewPrice("south", "h100", Decimal(1), "GBP", effective_from=now() + HOUR))
    assert [(one.field, one.code) for one in refused.value.errors] == [("currency", "no_exchange_rate")]


HOLD = (
    "WITH held AS (INSERT INTO billing_budgethold (holder_id, tenant_id, money_an_hour, currency, gpus, starts_at, seconds, state)"
    " SELECT '{run}', id, 2, 'USD', 1, now(), 3600, 'pending' FROM tenancy_tenant WHERE path = 'acme')"
    " INSERT INTO billing_budgetmovement (run_id, period_id, kind, held, spent) SELECT '{run}', id, 'take', {held}, 0"
    " FROM billing_budgetperiod"
)
RATE = (
    "INSERT INTO billing_budgetrate (organisation_id, base, quote, day, rate, source)"
    " SELECT id, 'USD', 'EUR', '{day}', 0.000001, 'mine' FROM tenancy_tenant WHERE path = 'acme'"
)


@pytest.mark.parametrize(
    ("attack", "constraint"),
    [
        (HOLD.format(run="00000000-0000-0000-0000-000000000001", held="0"), "budget_take_is_at_the_rate_of_its_day"),
        (HOLD.format(run="00000000-0000-0000-0000-000000000001", held="0.999999999999"), "budget_take_is_at_the_rate_of_its_day"),
        (HOLD.format(run="00000000-0000-0000-0000-000000000001", held="2"), "budget_take_is_at_the_rate_of_its_day"),
        ("UPDATE billing_budgetrate SET rate = 0.1", None),
        ("DELETE FROM billing_budgetrate", None),
        ("INSERT INTO billing_budgetrate (organisation_id, base, quote, day, rate, source) SELECT organisation_id, base, quote, day, 9, 'x' FROM billing_budgetrate", "one_budget_rate_per_currencies_and_day"),
        ("INSERT INTO billing_budgetrate (organisation_id, base, quote, day, rate, source) SELECT organisation_id, 'EUR', 'EUR', day, 9, 'x' FROM billing_budgetrate", "budget_rate_is_of_two_currencies"),
    ],
)  # fmt: skip
def test_the_database_refuses_the_processes_role(two, attack, constraint):
    euros()
    take_budgets(asked())
    with as_processes(), pytest.raises(DatabaseError) as refused, transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(attack)
    assert constraint_of(refused.value) == constraint or constraint is None


def test_the_owner_of_the_tables_changes_no_kept_rate_either(two):
    euros()
    take_budgets(asked())
    for attack in ("UPDATE billing_budgetrate SET rate = 0.1", "DELETE FROM billing_budgetrate"):
        with pytest.raises(DatabaseError) as refused, transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(attack)
        assert constraint_of(refused.value) == "ledger_is_append_only"


def test_a_rate_that_a_process_makes_up_is_the_known_one(two):
    with as_processes(), connection.cursor() as cursor:
        cursor.execute(RATE.format(day="2026-11-11"))
        cursor.execute(RATE.format(day="2026-11-14"))
    kept = BudgetRate.objects.order_by("day").values_list("rate", "rate_day__day", "source")
    assert list(kept) == [(Decimal("0.8"), 11, "set by hand")] * 2


def test_a_lawful_take_in_another_currency_is_accepted_from_anyone(two):
    budget = euros()
    take_budgets(asked())
    with as_processes(), connection.cursor() as cursor:
        cursor.execute(HOLD.format(run="00000000-0000-0000-0000-000000000001", held="1"))
    assert figures(budget) == (0, 2)
