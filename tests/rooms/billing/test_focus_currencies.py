"""FOCUS of months that are billed in another currency than their prices have: both amounts, and every sum to the last digit."""

from decimal import Decimal

import pytest

from billing.engine.invoices import Terms
from billing.operations import posting, record_runs
from billing.operations.invoices import put_terms
from tenancy.queries import SYSTEM
from tests.builders import make_run

from .exchanging import billed_in, imported, override
from .invoicing import closed, issued
from .ledgers import at, priced_cluster, settle_pending_checks
from .test_credits import lose, ran, waive
from .test_currencies import balances, exact
from .test_focus_datasets import agree, problems, rich_month, take, total  # noqa: F401 - `take` is a fixture

pytestmark = pytest.mark.django_db
IN_TWO = "Supports pricing and billing in different currencies"


@pytest.fixture
def north():
    return priced_cluster(amount="2.333333", cpu_price=Decimal("0.017"))


def test_a_closed_month_agrees_to_the_last_digit_in_the_billing_currency(north, take):  # noqa: F811
    billed_in("EUR")
    override("0.917")
    rich_month(north)
    put_terms(SYSTEM, "acme", Terms(issuer="Platform Ltd", tax_rate=Decimal(19), tax_name="VAT", payment_days=14))
    closed()
    invoice = issued()
    bundle = take("2026-10")
    assert problems(bundle) == []
    agree(bundle)
    costs = bundle["Cost and Usage"]
    assert {row["BillingCurrency"] for row in costs} == {"EUR"}
    assert all(row["PricingCurrency"] for row in costs)
    assert total(costs) == invoice.total
    jobs = [row for row in costs if row["ResourceType"] == "Job"]
    assert {row["PricingCurrency"] for row in jobs} == {"USD"}
    assert {row["x_ExchangeRate"] for row in jobs} == {"0.917000000000000000"}
    for row in jobs:
        assert abs(Decimal(row["BilledCost"]) - exact(row["PricingCurrencyEffectiveCost"], "0.917")) < Decimal("1e-11")
    assert any(row["PricingCurrencyListUnitPrice"] == "2.333333000000" for row in jobs)
    in_usd = sum(Decimal(row["PricingCurrencyEffectiveCost"]) for row in costs if row["PricingCurrency"] == "USD")
    ledger = balances(account__kind="tenant_expense", entry__period__month="2026-10-01")
    assert in_usd == ledger["USD"]


def test_credits_late_use_and_corrected_rates_are_rows_of_their_lines(north, take):  # noqa: F811
    waive("node_lost")
    billed_in("EUR")
    imported()
    override("0.9", start=at(6).date())
    lose(ran(north, start=at(6, 10)), "node_lost", 2)
    closed()
    first = issued()
    record_runs([make_run(north, "acme/one", started_at=at(7, 1), until_at=at(7, 2))])
    posting.post_days()
    settle_pending_checks()
    override("0.8")
    bundle = take("2026-10")
    assert problems(bundle) == []
    agree(bundle)
    assert total(bundle["Cost and Usage"]) == first.total
    november = take("2026-11")["Cost and Usage"]
    corrected = [row for row in november if row["ChargeDescription"].startswith("Corrected exchange rate")]
    assert corrected
    assert total(november) == balances(entry__period__month="2026-11-01")["EUR"]


def test_an_open_month_shows_what_it_would_be_billed(north, take):  # noqa: F811
    billed_in("EUR")
    override("0.5")
    record_runs([make_run(north, "acme/one", started_at=at(5, 10), until_at=at(5, 12))])
    rows = take("2026-10")["Cost and Usage"]
    assert {row["BillingCurrency"] for row in rows} == {"EUR"}
    assert total(rows) * 2 == sum(Decimal(row["PricingCurrencyEffectiveCost"]) for row in rows)


def test_with_one_currency_the_file_is_the_same(north, take):  # noqa: F811
    rich_month(north)
    posting.post_days()
    before = take("2026-10")
    billed_in("USD")
    assert take("2026-10") == before
    assert "PricingCurrency" not in before["Cost and Usage"][0]
