"""A month beside invoices of providers, against sums in fractions."""

from datetime import date
from decimal import Decimal
from fractions import Fraction
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from billing.engine.reconciliation import (
    BilledPart,
    ClusterMonth,
    Compared,
    CostPart,
    RateOf,
    compare,
    compared_in,
    rates_needed,
    totals_of,
)

UNIT = 10**12
NORTH, SOUTH = UUID(int=1), UUID(int=2)
DAY, LAST = date(2026, 10, 5), date(2026, 10, 31)
RATE = RateOf("USD", "EUR", DAY)


def cost(amount, currency="USD", day=DAY):
    return CostPart(currency, day, amount * UNIT, 0, 0)


def billed(amount, currency="USD"):
    return BilledPart(currency, LAST, amount * UNIT)


def test_cost_and_variance_are_what_is_billed():
    parts = [CostPart("USD", DAY, 5 * UNIT, 7 * UNIT, 88 * UNIT)]
    found = compare(ClusterMonth(NORTH, parts, [billed(60), billed(45), billed(-2)]), "", {})
    assert (found.charged, found.overhead, found.idle) == (5 * UNIT, 7 * UNIT, 88 * UNIT)
    assert (found.cost, found.invoiced, found.variance) == (100 * UNIT, 103 * UNIT, 3 * UNIT)
    assert (found.percent, found.currency) == (3, "USD")


@pytest.mark.parametrize(
    ("invoiced", "tolerance", "is_within"),
    [
        (102, "2", True), (98, "2", True), (103, "2", False), (97, "2", False), (100, "0", True), (101, "1", True),
        (101, "0.999", False),
    ],
)  # fmt: skip
def test_the_tolerance_is_a_part_of_the_cost_in_both_directions(invoiced, tolerance, is_within):
    found = compare(ClusterMonth(NORTH, [cost(100)], [billed(invoiced)]), "", {})
    assert found.is_within(Decimal(tolerance)) is is_within


def test_an_invoice_without_a_cost_is_within_no_tolerance():
    found = compare(ClusterMonth(NORTH, (), [billed(1)]), "", {})
    assert (found.cost, found.variance, found.percent) == (0, UNIT, None)
    assert not found.is_within(Decimal(100))


def test_a_cluster_without_an_invoice_has_no_variance():
    found = compare(ClusterMonth(NORTH, [cost(5)]), "", {})
    assert (found.invoiced, found.variance, found.percent, found.is_invoiced) == (None, None, None, False)
    assert found.is_within(Decimal(0))


def test_each_day_is_converted_at_its_own_rate_and_the_invoice_at_its_own():
    later = date(2026, 10, 6)
    rates = {
        RATE: Decimal("0.5"),
        RateOf("USD", "EUR", later): Decimal("0.25"),
        RateOf("CHF", "EUR", LAST): Decimal("1.1"),
    }
    month = ClusterMonth(NORTH, [cost(10), cost(10, day=later), cost(1, "EUR")], [billed(8, "CHF")])
    found = compare(month, "EUR", rates)
    assert (found.currency, found.cost, found.invoiced) == ("EUR", 8.5 * UNIT, 8.8 * UNIT)
    assert rates_needed([month], "EUR") == set(rates)


def test_a_missing_rate_is_said_and_nothing_is_guessed():
    found = compare(ClusterMonth(NORTH, [cost(10), cost(1, "JPY")], [billed(8, "EUR")]), "EUR", {RATE: Decimal(1)})
    assert found == Compared(NORTH, "EUR", fault="No exchange rate for JPY to EUR on 2026-10-05.", is_invoiced=True)
    assert not found.is_within(Decimal(100))
    assert totals_of([found]) == ()
    without = compare(ClusterMonth(NORTH, [cost(10)]), "EUR", {})
    assert without.fault.startswith("No exchange rate")
    assert without.is_within(Decimal(0))
    both = compare(ClusterMonth(NORTH, [cost(10)], [billed(1, "CHF")]), "EUR", {})
    assert both.fault == "No exchange rate for CHF to EUR on 2026-10-31 and 1 more."


def test_without_a_billing_currency_the_cost_says_in_which_one_is_compared():
    one = ClusterMonth(NORTH, [cost(10)], [billed(8, "EUR")])
    assert compared_in(one, "") == "USD"
    assert rates_needed([one], "") == {RateOf("EUR", "USD", LAST)}
    assert compared_in(ClusterMonth(NORTH, (), [billed(8, "EUR")]), "") == "EUR"
    several = ClusterMonth(NORTH, [cost(10), cost(1, "JPY")])
    assert (compared_in(several, ""), compared_in(several, "CHF")) == ("", "CHF")
    assert rates_needed([several], "") == set()
    assert compare(several, "", {}).fault.startswith("It has amounts in several currencies")


amounts = st.integers(-(10**20), 10**20)
costs = st.lists(st.tuples(st.sampled_from(["USD", "EUR"]), amounts, amounts, amounts), max_size=4)
bills = st.lists(st.tuples(st.sampled_from(["USD", "EUR"]), amounts), max_size=4)


clusters_of_a_month = st.lists(st.tuples(costs, bills), max_size=4)
rates_of_a_day = st.decimals("0.000001", "1000", places=6)


@pytest.mark.law
@given(clusters_of_a_month, rates_of_a_day)
def test_the_totals_are_an_independent_sum_of_fractions(clusters, rate):
    rates = {RATE: rate, RateOf("USD", "EUR", LAST): rate}
    months = [
        ClusterMonth(
            UUID(int=number), [CostPart(code, DAY, *parts) for code, *parts in own], [BilledPart(code, LAST, one) for code, one in its]
        )
        for number, (own, its) in enumerate(clusters)
    ]  # fmt: skip
    rows = [compare(one, "EUR", rates) for one in months]
    for row, (own, its) in zip(rows, clusters, strict=True):
        worth = {"EUR": Fraction(1), "USD": Fraction(rate)}
        exact_cost = sum((sum(parts) * worth[code] for code, *parts in own), Fraction(0))
        exact_bill = sum((one * worth[code] for code, one in its), Fraction(0))
        assert abs(row.cost - exact_cost) <= Fraction(3 * len(own), 2)
        assert abs((row.invoiced or 0) - exact_bill) <= Fraction(len(its), 2)
        assert row.charged + row.overhead + row.idle == row.cost
        if its:
            assert row.cost + row.variance == row.invoiced
    for total in totals_of(rows):
        assert total.cost == sum(row.cost for row in rows)
        assert total.cost - total.not_invoiced + total.variance == total.invoiced
        assert total.variance == sum(row.variance or 0 for row in rows)
        assert total.not_invoiced == sum(row.cost for row in rows if row.invoiced is None)


def test_totals_are_by_currency():
    rows = [
        compare(ClusterMonth(NORTH, [cost(10)], [billed(11)]), "", {}),
        compare(ClusterMonth(SOUTH, [cost(4, "EUR")]), "", {}),
    ]
    eur, usd = totals_of(rows)
    assert (eur.currency, eur.cost, eur.not_invoiced, eur.variance, eur.invoiced) == ("EUR", 4 * UNIT, 4 * UNIT, 0, 0)
    assert (usd.currency, usd.cost, usd.not_invoiced, usd.variance, usd.invoiced) == (
        "USD",
        10 * UNIT,
        0,
        UNIT,
        11 * UNIT,
    )
