"""Savings plans: each hour's spend pays for the largest discounts first, and is used or unused to the last digit."""

from collections import defaultdict
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from billing.engine.commitment_entries import entries_of
from billing.engine.commitment_file import NotCommitments, read_commitments
from billing.engine.commitments import HOUR, QUANTITY_AN_HOUR, Commitment, Run, Worth, split_day
from billing.engine.focus_commitments import Applied, Contract, columns_of, contract_row
from billing.engine.idle import IdleSplit
from billing.engine.savings_plans import PlanRate, rounded
from tests.laws import examples

DAY = datetime(2026, 10, 5, tzinfo=UTC)
NORTH, SOUTH = UUID(int=1), UUID(int=2)
E12 = 10**12
AWS = {"c5.9xlarge": (1, 4, 2), "c5.24xlarge": (1, 10, 8), "vcpu": (10, "1.5", 1), "gb": (5, 2, 1)}
"""Units, price and rate of the example of an earlier edition of AWS's guide, with its Compute Savings Plan."""


def user(name="acme/a", cluster=NORTH):
    return str(cluster), name, name.rpartition("/")[2]


def run(flavor="h100", units=1, price: Any = 1, of=None, *, start=DAY, length=HOUR, currency="USD"):
    cost = Fraction(price) * units * E12 * (length / HOUR).__trunc__() if length % HOUR == timedelta() else 0
    cost = cost or Fraction(price) * units * E12 * (length // timedelta(milliseconds=1)) / 3_600_000
    worth = [Worth(start, start + length, currency, int(cost))] if price else []
    return Run(of or user(), flavor, "on_demand", start, start + length, units * 1000, worth)


def plan(hourly: Any, rates, *, hours=1, upfront=0, name="plan", start=DAY, **more):
    found = tuple(PlanRate(flavor, "on_demand", int(Fraction(rate) * E12)) for flavor, rate in sorted(rates.items()))
    return Commitment(
        UUID(int=7), 1, name, frozenset([NORTH, SOUTH]), "", "", 0, start, start + hours * HOUR, upfront, 0, "USD",
        int(Fraction(hourly) * E12), found, **more,
    )  # fmt: skip


def only(*commitments, runs):
    *_, found = split_day(DAY.date(), commitments, runs)
    return found


@pytest.mark.parametrize(
    ("hourly", "used", "covered"),
    [
        (25, 25, 4 + 10 + 15 + 10),  # all of it, as in the guide
        (17, 17, 4 + 15 + 10),  # without the least discount
        (7, 7, 4 + 10),  # the two of the largest discount
        (5, 5, 10),  # of equal discounts, the lower rate
        (21, 21, 4 + 15 + 10 + 5),  # half of the last one
        (30, 25, 4 + 10 + 15 + 10),
    ],
)
def test_the_largest_discount_comes_first_then_the_lower_rate(hourly, used, covered):
    runs = [run(flavor, units, price) for flavor, (units, price, _) in AWS.items()]
    found = only(plan(hourly, {flavor: rate for flavor, (_, _, rate) in AWS.items()}), runs=runs)
    assert found.used == {user(): used * E12}
    assert found.unused == (hourly - used) * E12
    assert found.covered == {user(): {"USD": covered * E12}}


def test_users_of_one_discount_have_the_same_part():
    runs = [run(units=1, price=4, of=user("acme/a")), run(units=3, price=4, of=user("acme/b", SOUTH))]
    found = only(plan(2, {"h100": 2}), runs=runs)
    assert found.used == {user("acme/a"): E12 // 2, user("acme/b", SOUTH): 3 * E12 // 2}
    assert found.covered == {user("acme/a"): {"USD": E12}, user("acme/b", SOUTH): {"USD": 3 * E12}}


def test_of_equal_discounts_the_lower_rate_comes_first():
    runs = [run("a100", price=2, of=user("acme/a")), run("h100", price=4, of=user("acme/h"))]
    assert only(plan(1, {"a100": 1, "h100": 2}), runs=runs).used == {user("acme/a"): E12}


def test_what_is_rounded_never_exceeds_the_spend():
    runs = [run(price=4, of=user(f"acme/{name}")) for name in "abc"]
    found = only(plan(1, {"h100": 2}), runs=runs)
    assert sorted(found.used.values()) == [333_333_333_333, 333_333_333_333, 333_333_333_334]
    assert found.unused == 0


@pytest.mark.parametrize(
    "other",
    [
        {"flavor": "a100"}, {"price": 2}, {"price": 1}, {"price": 0}, {"currency": "EUR"}, {"of": user(cluster=UUID(int=3))},
        {"start": DAY + HOUR},
    ],
    ids=str,
)  # fmt: skip
def test_nothing_is_paid_for_without_a_discount(other):
    found = only(plan(5, {"h100": 2}), runs=[run(**{"price": 4} | other)])
    assert (found.used, found.covered, found.unused) == ({}, {}, 5 * E12)


def test_capacity_takes_first_and_plans_have_the_rest_in_their_order():
    capacity = Commitment(
        UUID(int=6), 1, "z", frozenset([NORTH]), "h100", "on_demand", 1, DAY, DAY + HOUR, 24 * E12, 0, "USD"
    )
    first, second = plan(1, {"h100": 2}, name="a"), replace(plan(1, {"h100": 3}, name="b"), id=UUID(int=8))
    splits = split_day(DAY.date(), [second, first, capacity], [run(units=2, price=4)])
    assert [one.commitment.name for one in splits] == ["z", "a", "b"]
    assert [one.used for one in splits] == [{user(): 24 * E12}, {user(): E12}, {user(): E12}]
    # One of two units is left, half of it after the first plan; the second one pays for a third.
    assert [one.covered[user()]["USD"] for one in splits] == [4 * E12, 2 * E12, 4 * E12 // 3]


def test_part_of_an_hour_is_paid_for_in_proportion():
    found = only(plan(5, {"h100": 2}), runs=[run(price=4, length=timedelta(minutes=15))])
    assert found.used == {user(): E12 // 2}
    assert found.covered == {user(): {"USD": E12}}


@pytest.mark.parametrize(("upfront", "hours"), [(0, 24 * 31 + 5), (333, 24 * 59), (24 * 40, 24 * 40), (1, 1)])
def test_payments_add_up_to_the_spend_of_all_hours(upfront, hours):
    one = plan("1.000001", {"h100": 2}, hours=hours, upfront=upfront * E12)
    assert sum(amount for _, amount in one.payments) == one.total == hours * 1_000_001_000_000
    assert one.payments[0][1] >= upfront * E12
    if upfront == 24 * 40:
        assert len(one.payments) == 2  # what the upfront does not pay is paid each month
    assert sum(one.amortised(DAY + n * HOUR, DAY + (n + 1) * HOUR) for n in range(hours)) == one.total


def test_lines_of_a_plan_have_no_quantity():
    found = only(plan(5, {"h100": 2}), runs=[run(price=4)])
    entries = entries_of(UUID(int=9), [found], IdleSplit.CENTRAL)
    assert {line.quantity for entry in entries for line in entry.lines} == {None}
    by_flavor = {entry.day.flavor: entry.lines[0].amount for entry in entries if entry.day}
    assert by_flavor == {
        "purchased commitment": 5, "used commitment": 2, "covered by commitment": 4, "unused commitment": 3,
    }  # fmt: skip


usages = st.lists(
    st.tuples(
        st.sampled_from(["a", "b", "c"]), st.sampled_from(["x/1", "x/2", "x/3"]), st.integers(1, 5),
        st.integers(0, 4_000_000), st.sampled_from([15, 60, 90]), st.integers(0, 1),
    ), max_size=8,
)  # fmt: skip


class Model:
    """An hour of usage in fractions, without rounding: by flavor and user, unit-hours and what they were charged."""

    def __init__(self, runs, number):
        self.left: dict[tuple[str, str], list[Fraction]] = defaultdict(lambda: [Fraction(0), Fraction(0)])
        start, until = number * 60, number * 60 + 60
        for flavor, name, units, price, minutes, begins in runs:
            there = max(0, min(begins * 60 + minutes, until) - max(begins * 60, start))
            if there:
                hours = Fraction(units * there, 60)
                whole = int(Fraction(price, 10**6) * units * minutes * E12 / 60)
                self.left[flavor, name][0] += hours
                self.left[flavor, name][1] += Fraction(whole * there, minutes)

    def spend(self, amount, rates):
        """What each user bears, and what the same usage was charged: unit by unit of the best usage that is left."""
        spent, covered, amount = defaultdict(Fraction), defaultdict(Fraction), Fraction(amount)
        while amount:
            best = [
                (1 - hours * rates[flavor] / charged, -rates[flavor], flavor)
                for (flavor, _), (hours, charged) in self.left.items()
                if flavor in rates and hours and charged > hours * rates[flavor]
            ]
            if not best:
                break
            discount, rate, _ = max(best, key=lambda one: (one[0], one[1], [-ord(letter) for letter in one[2]]))
            flavor = min(one[2] for one in best if one[:2] == (discount, rate))
            alike = [
                key for key, (hours, charged) in self.left.items()
                if key[0] == flavor and hours and charged and 1 - hours * rates[flavor] / charged == discount
            ]  # fmt: skip
            cost = sum(self.left[key][0] for key in alike) * rates[flavor]
            part = min(Fraction(1), amount / cost)
            for key in alike:
                hours, charged = self.left[key]
                spent[key[1]] += part * hours * rates[flavor]
                covered[key[1]] += part * charged
                self.left[key] = [hours * (1 - part), charged * (1 - part)]
            amount -= part * cost
        return spent, covered


@pytest.mark.law
@examples(200)
@given(
    runs=usages,
    hourly=st.integers(1, 6_000_000),
    rates=st.tuples(*[st.integers(1, 3_000_000)] * 3),
    plans=st.integers(1, 2),
)
def test_tenants_bear_what_a_model_in_fractions_says(runs, hourly, rates, plans):
    micro = dict(zip("abc", rates, strict=True))
    commitments = [
        replace(plan(Fraction(hourly, 10**6), {name: Fraction(rate, 10**6) for name, rate in micro.items()}, hours=3), name=name,
                id=UUID(int=number)) for number, name in enumerate("pq"[:plans])
    ]  # fmt: skip
    given = [
        run(
            flavor,
            units,
            Fraction(price, 10**6),
            user(name),
            start=DAY + begins * HOUR,
            length=timedelta(minutes=minutes),
        )
        for flavor, name, units, price, minutes, begins in runs
    ]
    splits = split_day(DAY.date(), commitments, given)
    model = [Model(runs, number) for number in range(3)]
    exact = {name: rate * 10**6 for name, rate in micro.items()}
    for found in splits:
        spent, covered = defaultdict(Fraction), defaultdict(Fraction)
        for number, hour in enumerate(found.hours):
            one, of_price = model[number].spend(hourly * 10**6, exact)
            for name, amount in one.items():
                spent[name] += amount
                covered[name] += of_price[name]
            whole = sum(one.values(), Fraction(0))
            assert hour.used == whole.numerator // whole.denominator
            assert hour.used + hour.unused == hour.amortised == hour.quantity == hourly * 10**6
            assert hour.used_quantity == hour.used
        assert sum(found.used.values()) + found.unused == found.amortised
        for name in ("x/1", "x/2", "x/3"):
            assert abs(found.used.get(user(name), 0) - spent[name]) < 4
            assert abs(found.covered.get(user(name), {}).get("USD", 0) - covered[name]) < 4
    charged = sum(worth.cost for one in given for worth in one.worth)
    assert sum(amount for found in splits for by in found.covered.values() for amount in by.values()) <= charged


def test_the_order_of_reports_changes_nothing():
    runs = [run(flavor, units, price, user(f"x/{n}")) for n, (flavor, (units, price, _)) in enumerate(AWS.items())]
    rates = {flavor: rate for flavor, (_, _, rate) in AWS.items()}
    assert only(plan(13, rates), runs=runs) == only(plan(13, rates), runs=runs[::-1])


def test_rounded_amounts_add_up():
    parts = {name: Fraction(1, 3) for name in "abc"}
    assert rounded(parts) == {"a": 1, "b": 0, "c": 0}
    assert rounded({}) == {}


FILE = """commitments:
- name: compute
  kind: savings_plan
  clusters: [north]
  hourly: 2.5
  rates: [{flavor: h100, capacity_type: on_demand, rate: 1.75}, {flavor: a100, capacity_type: spot, rate: 1}]
  start: 2026-10-01T00:00:00Z
  until: 2026-10-02T00:00:00Z
  currency: USD
"""


def test_a_file_has_plans():
    (found,) = read_commitments(FILE)
    assert (found.hourly, found.total, found.units, found.flavor) == (Decimal("2.5"), 60, 0, "")
    assert found.kinds == (("a100", "spot"), ("h100", "on_demand"))


@pytest.mark.parametrize(
    ("old", "new", "field", "code"),
    [
        ("  hourly: 2.5\n", "", "hourly", "required"),
        ("hourly: 2.5", "hourly: 0", "hourly", "out_of_range"),
        ("hourly: 2.5", "hourly: -1", "hourly", "out_of_range"),
        ("hourly: 2.5", "hourly: 1.0000001", "hourly", "out_of_range"),
        ("  hourly", "  units: 2\n  hourly", "units", "unknown_field"),
        ("  hourly", "  recurring: 2\n  hourly", "recurring", "unknown_field"),
        ("  hourly", "  upfront: 60.000001\n  hourly", "upfront", "out_of_range"),
        ("kind: savings_plan", "kind: own_purchase", "hourly", "unknown_field"),
        ("rate: 1.75", "rate: 0", "rates[0].rate", "out_of_range"),
        ("rate: 1.75", "price: 1", "rates[0].price", "unknown_field"),
        (", rate: 1.75", "", "rates[0].rate", "required"),
        ("a100, capacity_type: spot", "h100, capacity_type: on_demand", "rates", "given_twice"),
        ("[{flavor: h100, capacity_type: on_demand, rate: 1.75}, {flavor: a100, capacity_type: spot, rate: 1}]", "[]", "rates", "out_of_range"),
        ("[{flavor: h100, capacity_type: on_demand, rate: 1.75}, {flavor: a100, capacity_type: spot, rate: 1}]", "h100", "rates", "out_of_range"),
        ("[{flavor: h100, capacity_type: on_demand, rate: 1.75}, ", "[1, ", "rates[0]", "not_an_object"),
    ],
)  # fmt: skip
def test_a_file_with_a_wrong_plan_says_where(old, new, field, code):
    assert old in FILE
    with pytest.raises(NotCommitments) as refused:
        read_commitments(FILE.replace(old, new))
    assert (refused.value.field, refused.value.code) == (f"commitments[0].{field}", code)


def test_focus_counts_a_plan_in_its_currency():
    applied = Applied("used", "id", "compute", "savings_plan", "USD", 2_500_000_000_000)
    found = columns_of(applied, Decimal("2.5"))
    assert (found["CommitmentDiscountCategory"], found["CommitmentDiscountType"]) == ("Spend", "Savings Plan")
    assert (found["CommitmentDiscountQuantity"], found["CommitmentDiscountUnit"]) == ("2.500000000000", "USD")
    assert columns_of(replace(applied, kind="own_purchase", quantity=QUANTITY_AN_HOUR), Decimal(1))["CommitmentDiscountQuantity"] == (
        "1.000000000000"
    )  # fmt: skip
    contract = Contract(
        "id", "compute", "savings_plan", "USD", 0, ["north"], "", DAY, DAY + 24 * HOUR, Decimal(10), Decimal(0), Decimal(60), "USD",
        "Platform", "acme", DAY, DAY, rates=[("h100", "on_demand", "1.75"), ("a100", "spot", "1")], hourly=Decimal("2.5"),
    )  # fmt: skip
    row = contract_row(contract, DAY)
    assert (row["ContractCommitmentCategory"], row["ContractCommitmentQuantity"]) == ("Spend", "60.000000000000")
    assert row["ContractCommitmentDescription"] == "2.5 USD an hour for a100, h100 on north"
    assert (row["ContractCommitmentPaymentModel"], row["ContractCommitmentPaymentInterval"]) == (
        "Partial Upfront", "Monthly",
    )  # fmt: skip
    assert '["a100", "h100"]' in row["ContractCommitmentApplicability"]
    paid = contract_row(replace(contract, upfront=Decimal(60)), DAY)
    assert paid["ContractCommitmentPaymentModel"] == "All Upfront"
