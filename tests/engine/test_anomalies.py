"""Which days stand out: far above the weekday's median and the last week's, by money that matters."""

from datetime import date, timedelta
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from billing.engine.anomalies import standing_out
from tests.laws import examples

DAY = date(2026, 11, 10)
LEAST = Decimal(100)


def days(amounts, cost):
    """The amounts of the days before DAY, and its cost."""
    known = {DAY - timedelta(days=number): Decimal(one) for number, one in enumerate(reversed(amounts), 1)}
    return {**known, DAY: Decimal(cost)}


def judged(amounts, cost, weeks=8):
    return standing_out(days(amounts, cost), DAY, known_since=DAY - timedelta(days=7 * weeks), least=LEAST)


def test_a_day_far_above_its_weekday_and_the_last_week_stands_out():
    found = judged([100] * 56, 1000)
    assert (found.cost, found.usual, found.spread) == (1000, 100, 0)
    assert judged([100] * 56, 199) is None  # less than the least money
    assert judged([10_000] * 56, 12_000) is None  # a fifth more
    assert judged([100] * 56, 200) is not None


def test_a_busy_weekday_is_usual_on_that_weekday():
    assert judged([1000, 0, 0, 0, 0, 0, 0] * 8, 1000) is None
    assert judged([0, 1000, 0, 0, 0, 0, 0] * 8, 1000) is not None


def test_what_varies_much_must_be_more():
    varied = [1000 if (number // 7) % 2 else 100 for number in range(56)]
    assert judged(varied, 1200) is None
    assert judged(varied, 5000) is not None


def test_new_spending_stands_out_for_four_days_and_then_is_usual():
    amounts = [0] * 56
    found = []
    for _ in range(10):
        found.append(judged(amounts, 500) is not None)
        amounts = [*amounts[1:], 500]
    assert found == [True] * 4 + [False] * 6


@pytest.mark.parametrize(("weeks", "stands_out"), [(0, False), (3, False), (4, True)])
def test_four_weeks_must_be_known(weeks, stands_out):
    assert (judged([], 1000, weeks) is not None) is stands_out


@pytest.mark.law
@given(
    st.lists(st.decimals(-100, 10_000, places=2), max_size=60),
    st.decimals(-100, 100_000, places=2),
    st.dictionaries(st.integers(1, 20), st.decimals(0, 10_000, places=2), max_size=4),
)
@examples(90)
def test_later_days_change_nothing_and_what_stands_out_costs_more_by_the_gate(amounts, cost, later):
    known = days(amounts, cost)
    since = DAY - timedelta(days=60)
    found = standing_out(known, DAY, known_since=since, least=LEAST)
    more = {**known, **{DAY + timedelta(days=n): amount for n, amount in later.items()}}
    assert standing_out(more, DAY, known_since=since, least=LEAST) == found
    if found is not None:
        assert found.cost - found.usual >= LEAST
        assert found.usual >= 0 <= found.spread
        above = {**known, DAY: cost + 1000}
        assert standing_out(above, DAY, known_since=since, least=LEAST) is not None
