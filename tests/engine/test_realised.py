"""What was saved: nothing for what did not change, whatever the volume, and nothing claimed from few runs."""

from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from billing.engine.realised import LEAST_UNITS, Runs, WhyNot, realised
from tests.laws import examples


def runs(costs, failed=0):
    """Jobs with these costs, of which the last `failed` did not succeed."""
    exact = [Fraction(one) for one in costs]
    squares = sum((one * one for one in exact), Fraction(0))
    return Runs(len(exact), len(exact) - failed, sum(exact, Fraction(0)), squares)


COSTS = st.lists(st.fractions(min_value=0, max_value=1000, max_denominator=100), min_size=LEAST_UNITS, max_size=12)


@examples(200)
@given(costs=COSTS, before=st.integers(1, 9), after=st.integers(1, 9))
def test_the_same_jobs_save_nothing_whatever_their_number(costs, before, after):
    """The same costs again and again: less of them, or more, is the same cost of each."""
    found = realised(runs(costs * before), runs(costs * after))
    assert abs(found.amount) <= Decimal("0.000001")
    assert not found.is_beyond_chance


@examples(200)
@given(costs=COSTS, times=st.integers(1, 9), part=st.fractions(min_value=0, max_value=1, max_denominator=10))
def test_a_lower_cost_of_each_is_saved_on_each_that_ran(costs, times, part):
    found = realised(runs(costs), runs([one * part for one in costs] * times))
    expected = sum(costs, Fraction(0)) * (1 - part) * times
    assert abs(Fraction(found.amount) - expected) <= Fraction(1, 100_000)
    assert found.low <= found.amount <= found.high


@pytest.mark.parametrize(
    ("before", "after", "why_not"),
    [
        (runs([9] * 4), runs([1] * 50), WhyNot.TOO_FEW_BEFORE),
        (runs([9] * 50), runs([1] * 4), WhyNot.TOO_FEW_AFTER),
        (runs([9] * 50, failed=46), runs([1] * 50), WhyNot.TOO_FEW_BEFORE),
        (runs([9] * 50), runs([1] * 50, failed=46), WhyNot.TOO_FEW_AFTER),
        (Runs(), Runs(), WhyNot.TOO_FEW_BEFORE),
        (Runs(9, 9, Fraction(9), Fraction(9), others=1), runs([0] * 9), WhyNot.OTHER_CURRENCY),
        (runs([9] * 9), Runs(9, 9, Fraction(0), Fraction(0), others=1), WhyNot.OTHER_CURRENCY),
        (runs([9] * 5), runs([1] * 5), None),
    ],
)
def test_few_runs_and_other_currencies_claim_nothing(before, after, why_not):
    found = realised(before, after)
    assert found.why_not == why_not
    assert (found.amount is None) == (why_not is not None)
    assert not found.is_beyond_chance or why_not is None


def test_failures_cost_their_success():
    """Ten jobs at 2, five of which fail, are 4 for each success; after, none fails."""
    found = realised(runs([2] * 10, failed=5), runs([2] * 10))
    assert (found.each_before, found.each_after, found.amount) == (4, 2, 20)


def test_a_dearer_month_is_a_loss():
    assert realised(runs([2] * 10), runs([3] * 10)).amount == -10


def test_what_may_be_chance_is_said():
    scattered = [1, 50, 2, 60, 1, 55]
    found = realised(runs(scattered), runs([one * Fraction(9, 10) for one in scattered]))
    assert found.amount > 0
    assert found.low < 0 < found.high
    assert not found.is_beyond_chance
    assert realised(runs([10, 11] * 9), runs([5, 6] * 9)).is_beyond_chance


def test_the_range_is_two_standard_errors():
    """Costs 1 and 3 in turn: the variance of one is 2 * 10 / 9 / 2."""
    found = realised(runs([1, 3] * 5), runs([1, 3] * 5))
    each = (Decimal(10) / 9 / 10 * 2).sqrt() * 2 * 10
    assert abs(found.high - each) < Decimal("0.00001")
    assert found.low == -found.high


def test_runs_add_up():
    assert runs([1, 2]).plus(runs([3], failed=1)) == runs([1, 2, 3], failed=1)
