"""One fleet with prices in several currencies side by side: each amount says its currency, and documents have one."""

import csv
import io
from collections import defaultdict
from datetime import date, timedelta
from decimal import Decimal
from fractions import Fraction

import pytest
from django.db import DatabaseError, connection, transaction

from billing.models import LedgerEntry, LedgerLine
from billing.operations import create_price, posting, record_runs
from billing.operations.budgets import WantedBudget, put_budget
from billing.operations.conversion import convert_days
from billing.operations.egress import NewEgressPrice, create_egress_price
from billing.operations.prices import NewPrice
from billing.queries import costs_of, discrepancies, usage_report
from billing.queries.comparable import comparable_rates, in_comparable_currencies
from billing.queries.egress import egress_rates
from billing.queries.prices import announced_prices, price_book
from foundation.ids import new_id
from foundation.problems import Invalid
from tenancy.queries import SYSTEM
from tests.builders import bearer, bind, make_budget, make_cluster, make_flavor, make_run, make_user
from tests.kept_rows import written_once
from tests.processes_role import as_processes
from tests.refusals import constraint_of

from .exchanging import OCTOBER, billed_in, imported
from .invoicing import closed, issued
from .ledgers import at, priced_cluster, settle_pending_checks
from .test_currencies import balances, exact
from .test_focus_datasets import agree, problems, take, total  # noqa: F401 - `take` is a fixture

pytestmark = pytest.mark.django_db
MONTH = (at(1), at(1, month=11))
DAYS = """Date,USD,CHF,
""" + "".join(f"2026-10-{day:02d},1.{day:02d}7,0.9{day:02d}1,\n" for day in range(1, 29))
RUNS = [
    ("north", "acme/one", 5, 37),
    ("south", "acme/one", 5, 91),
    ("north", "acme/two", 6, 13),
    ("south", "acme/two", 20, 7),
]
"""Cluster, tenant, day, and minutes."""
PRICES = {"north": ("USD", "2.333333"), "south": ("CHF", "1.717171")}


def priced(name="south", currency="CHF", amount="1.717171", **more):
    return create_price(SYSTEM, NewPrice(name, "h100", Decimal(amount), currency, effective_from=at(1), **more))


@pytest.fixture(scope="module")
def fleet(processes_role, django_db_setup, django_db_blocker):
    """Two clusters, each with its own currency, of an organisation that is billed in a third one. Two teams used both."""
    with written_once(django_db_blocker, _fleet) as found:
        yield found


def _fleet():
    clusters = {"north": priced_cluster(amount="2.333333"), "south": make_cluster(name="south")}
    make_flavor(clusters["south"], "h100")
    with pytest.raises(Invalid) as refused:
        priced()
    assert [(one.field, one.code) for one in refused.value.errors] == [("currency", "mixed_currencies")]
    billed_in("EUR")
    priced()
    imported(DAYS)
    record_runs([
        make_run(clusters[name], tenant, started_at=at(day, 10), until_at=at(day, 10) + timedelta(minutes=minutes))
        for name, tenant, day, minutes in RUNS
    ])  # fmt: skip
    posting.post_days()
    settle_pending_checks()
    return clusters


@pytest.fixture
def two(fleet, db):
    return fleet


def charged():
    """What was used by tenant and currency, and in euros, by an independent computation in fractions."""
    found = defaultdict(Decimal)
    billed = Decimal(0)
    for name, tenant, day, minutes in RUNS:
        currency, price = PRICES[name]
        cost = Fraction(price) * minutes / 60 * 10**12
        amount = Decimal(cost.numerator // cost.denominator).scaleb(-12)
        found[tenant, currency] += amount
        rate = Fraction(1) / Fraction({"USD": f"1.{day:02d}7", "CHF": f"0.9{day:02d}1"}[currency])
        shown = (rate * 10**18 * 2 + 1) / 2
        billed += exact(amount, Fraction(shown.numerator // shown.denominator, 10**18))
    return found, billed


def test_the_ledger_and_the_document_have_both_currencies_and_one(two):
    found, billed = charged()
    used = defaultdict(Decimal)
    for line in LedgerLine.objects.filter(account__kind="tenant_expense", entry__kind="usage"):
        used[line.entry.tenant_path, line.currency] += line.amount
    assert used == found
    assert balances() == {"EUR": billed}
    for line in LedgerLine.objects.exclude(priced_currency=""):
        assert line.amount == exact(line.priced_amount, line.rate)
        assert (line.rate_day, line.rate_source) == (line.entry.charge_day, "ECB")
    closed()
    invoice = issued()
    assert (invoice.currency, invoice.exact, invoice.total) == ("EUR", billed, round(billed, 2))
    assert not discrepancies()


def test_reports_have_a_line_for_each_currency_and_add_up_in_each(two, client):
    found, _ = charged()
    report = usage_report(SYSTEM, "acme", *MONTH, ["tenant"])
    lines = [(row.keys["tenant"], row.currency) for row in report.rows]
    assert lines == [("acme/one", "CHF"), ("acme/one", "USD"), ("acme/two", "CHF"), ("acme/two", "USD")]
    for total_ in report.totals:
        own = [row for row in report.rows if row.currency == total_.currency]
        whole = sum((found[key] for key in found if key[1] == total_.currency), Decimal(0))
        assert sum(row.cost for row in own) == total_.cost == round(whole, 6)
        assert sum(row.gpu_hours for row in own) == total_.gpu_hours
    assert sum(one.gpu_milliseconds for one in report.totals) == sum(minutes * 60_000 for *_, minutes in RUNS)

    user = make_user()
    bind(user, "acme", "finance")
    query = {"tenant": "acme", "month": "2026-10", "group_by": "tenant"}
    shown = client.get("/api/v1/usage", query, headers=bearer(user)).json()
    assert shown["totals"] is None
    assert [one["cost"]["currency"] for one in shown["totals_by_currency"]] == ["CHF", "USD"]
    text = client.get("/api/v1/usage", {**query, "format": "csv"}, headers=bearer(user)).content.decode()
    assert [(row["tenant"], row["currency"], row["cost"]) for row in csv.DictReader(io.StringIO(text))] == [
        (item["tenant"], item["cost"]["currency"], item["cost"]["amount"]) for item in shown["items"]
    ]
    client.force_login(user)
    page = client.get("/usage/", {"tenant": "acme", "month": "2026-10"}).content.decode()
    assert "Total in CHF" in page
    assert "Total in USD" in page


def test_focus_has_both_currencies_of_each_price_and_agrees_with_the_ledger(two, take):  # noqa: F811
    found, billed = charged()
    closed()
    invoice = issued()
    bundle = take("2026-10")
    assert problems(bundle) == []
    agree(bundle)
    rows = bundle["Cost and Usage"]
    assert {row["BillingCurrency"] for row in rows} == {"EUR"}
    assert total(rows) == invoice.total
    jobs = [row for row in rows if row["ResourceType"] == "Job"]
    assert sum(Decimal(row["BilledCost"]) for row in jobs) == billed
    before = defaultdict(Decimal)
    for row in jobs:
        before[row["SubAccountName"], row["PricingCurrency"]] += Decimal(row["PricingCurrencyEffectiveCost"])
        assert row["PricingCurrencyListUnitPrice"] in {"2.333333000000", "1.717171000000"}
    assert before == found


def test_a_price_may_change_its_currency_while_a_job_runs(two):
    job = new_id()
    create_price(SYSTEM, NewPrice("north", "h100", Decimal(3), "EUR", effective_from=at(25, 12)))
    record_runs([make_run(two["north"], "acme/one", started_at=at(25, 11), until_at=at(25, 14), workload_id=job)])
    cost = costs_of([job])[job]
    assert (cost.amount, cost.currency) == (Decimal(6), "EUR")
    assert [(one.amount, one.currency) for one in cost.beside] == [(Decimal("2.333333"), "USD")]
    posting.post_days()
    convert_days()
    settle_pending_checks()
    entries = LedgerEntry.objects.filter(charge_day=at(25).date())
    [converted] = LedgerLine.objects.filter(entry__in=entries, priced_currency="USD")
    owed = balances(entry__in=entries)
    assert owed == {"EUR": 6 + converted.amount}
    assert not discrepancies()


def test_what_has_no_price_is_on_a_line_with_what_has(two):
    make_flavor(two["north"], "new")
    record_runs([make_run(two["north"], "acme/one", flavor="new", started_at=at(7), until_at=at(7, 1))])
    report = usage_report(SYSTEM, "acme", *MONTH, ["tenant"])
    assert len(report.rows) == 4
    assert [row.unpriced_gpu_milliseconds for row in report.rows] == [3_600_000, 0, 0, 0]
    [first, *_] = usage_report(SYSTEM, "acme", *MONTH, ["flavor"]).rows
    assert (first.keys["flavor"], first.currency) == ("h100", "CHF")


def test_placement_compares_prices_in_the_billing_currency(two, monkeypatch):
    announced = {(two["south"].id, "h100"): ((at(8), price_book(at(7))[two["north"].id, "h100"]),)}
    book, later = in_comparable_currencies(price_book(at(6)), announced, at(6, 15))
    assert {view.currency for view in book.values()} == {"EUR"}
    # Rounded up to six decimals: 2.333333 / 1.067 and 1.717171 / 0.9061.
    assert book[two["north"].id, "h100"].unit_price == Decimal("2.186817")
    assert book[two["south"].id, "h100"].unit_price == Decimal("1.895124")
    assert later[two["south"].id, "h100"][0][1].unit_price == Decimal("2.186817")
    # Without a rate of that week, no such price is known; a price in the billing currency is.
    create_price(SYSTEM, NewPrice("south", "h100", Decimal(3), "EUR", effective_from=at(1, month=12)))
    book, later = in_comparable_currencies(
        price_book(at(2, month=12)), {(two["south"].id, "h100"): ((at(3, month=12), price_book(at(7))[two["north"].id, "h100"]),)},
        at(2, month=12),
    )  # fmt: skip
    assert list(book) == [(two["south"].id, "h100")]
    assert later[two["south"].id, "h100"] == ((at(3, month=12), None),)


def test_prices_in_one_currency_are_compared_as_they_are(two, django_assert_num_queries):
    prices = {key: view for key, view in price_book(at(6)).items() if key[0] == two["north"].id}
    with django_assert_num_queries(0):
        assert in_comparable_currencies(prices, {}, at(6)) == (prices, {})


def test_another_organisation_keeps_its_own_currency(two):
    lab = make_cluster("lab", name="lab")
    make_flavor(lab, "h100")
    create_price(SYSTEM, NewPrice("lab", "h100", Decimal(1), "USD", effective_from=at(1)))
    book, _ = in_comparable_currencies(price_book(at(6)), announced_prices(at(6)), at(6))
    assert (book[lab.id, "h100"].unit_price, book[lab.id, "h100"].currency) == (1, "USD")


def test_prices_of_moving_data_are_compared_likewise(two, time_machine):
    time_machine.move_to(at(6), tick=False)
    create_egress_price(SYSTEM, NewEgressPrice("a", "b", Decimal("0.5"), "USD", "acme"))
    create_egress_price(SYSTEM, NewEgressPrice("b", "a", Decimal(2), "JPY", "acme"))
    [rate] = comparable_rates(egress_rates(at(6)), at(6))
    assert (rate.price_per_gib, rate.currency) == (Decimal("0.468604"), "EUR")


def test_a_price_that_budgets_of_money_cannot_count_is_refused(two):
    put_budget(SYSTEM, WantedBudget("acme/one", "gpu_hours", Decimal(10), "", "month"))
    cluster = make_cluster("solo", name="alone")
    make_flavor(cluster, "h100")
    create_price(SYSTEM, NewPrice("alone", "h100", Decimal(1), "USD", effective_from=at(1)))
    make_budget("solo/team", "10")
    billed_in("EUR", path="solo")
    with pytest.raises(Invalid, match="budgets of solo are in USD"):
        create_price(SYSTEM, NewPrice("alone", "h100", Decimal(1), "EUR", effective_from=at(1, month=12)))
    imported("Date,USD,\n2026-10-02,1.12,\n", path="solo")
    create_price(SYSTEM, NewPrice("alone", "h100", Decimal(1), "EUR", effective_from=at(1, month=12)))


def test_only_currencies_of_iso_4217_have_prices(two):
    with pytest.raises(Invalid) as refused:
        priced("north", "XAU")
    assert [(one.field, one.code) for one in refused.value.errors] == [("currency", "unknown_currency")]


def test_a_billing_currency_that_begins_later_is_none_yet(two):
    cluster = make_cluster("solo", name="alone")
    make_flavor(cluster, "h100")
    create_price(SYSTEM, NewPrice("alone", "h100", Decimal(1), "USD", effective_from=at(1)))
    billed_in("EUR", date(2026, 12, 1), path="solo")
    with pytest.raises(Invalid) as refused:
        create_price(SYSTEM, NewPrice("alone", "h100", Decimal(1), "CHF", effective_from=at(30, 23, month=11)))
    assert refused.value.errors[0].code == "mixed_currencies"
    create_price(SYSTEM, NewPrice("alone", "h100", Decimal(1), "CHF", effective_from=at(1, month=12)))


PRICE = (
    "INSERT INTO billing_price (id, rate_id, unit_price, currency, valid)"
    " SELECT gen_random_uuid(), r.id, 1, '{}', tstzrange('2030-01-01', NULL) FROM billing_rate AS r"
    " JOIN clusters_cluster AS c ON c.id = r.cluster_id WHERE c.name = 'alone'"
)
EGRESS = (
    "WITH route AS (INSERT INTO billing_egressroute (owner_id, from_region, to_region)"
    " SELECT id, 'x', 'y' FROM tenancy_tenant WHERE path = 'solo' RETURNING id)"
    " INSERT INTO billing_egressprice (id, route_id, price_per_gib, currency, valid)"
    " SELECT gen_random_uuid(), id, 1, 'EUR', tstzrange('2030-01-01', NULL) FROM route"
)
BUDGET = (
    "INSERT INTO billing_budget (id, tenant_id, measure, currency, period, amount, notify_at, notify_forecast_at, stops_admission,"
    " counts_from, updated_at) SELECT gen_random_uuid(), id, 'money', 'JPY', 'month', 1, '{{}}', '{{}}', true, '2026-10-01',"
    " now() FROM tenancy_tenant WHERE path = '{}'"
)


@pytest.mark.parametrize(
    ("attack", "constraint"),
    [
        (PRICE.format("EUR"), "several_currencies_are_billed_in_one"),
        (EGRESS, "several_currencies_are_billed_in_one"),
        (BUDGET.format("solo"), "budgets_count_every_price"),
        (BUDGET.format("acme"), "budgets_count_every_price"),
    ],
)
def test_the_database_refuses_the_processes_role(two, attack, constraint):
    cluster = make_cluster("solo", name="alone")
    make_flavor(cluster, "h100")
    price = create_price(SYSTEM, NewPrice("alone", "h100", Decimal(1), "USD", effective_from=at(1)))
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE billing_price SET valid = tstzrange('2026-10-01', '2029-01-01') WHERE id = %s", [price.id]
        )
    with as_processes(), pytest.raises(DatabaseError) as refused, transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(attack)
    assert constraint_of(refused.value) == constraint


def test_the_database_refuses_a_price_that_a_budget_would_not_count(two):
    cluster = make_cluster("solo", name="alone")
    make_flavor(cluster, "h100")
    price = create_price(SYSTEM, NewPrice("alone", "h100", Decimal(1), "USD", effective_from=at(1)))
    make_budget("solo", "10")
    billed_in("EUR", OCTOBER, path="solo")
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE billing_price SET valid = tstzrange('2026-10-01', '2029-01-01') WHERE id = %s", [price.id]
        )
    with as_processes(), pytest.raises(DatabaseError) as refused, transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(PRICE.format("EUR"))
    assert constraint_of(refused.value) == "budgets_count_every_price"
