"""Which days stand out: far above the weekday's median and the last week's, by money that matters."""

from datetime import date, timedelta
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from billing.engine.anomalies import LOOKS_BACK, standing_out
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


def week_by_week(*amounts):
    """The same amount on all days of each week, the latest first."""
    return [amount for amount in reversed(amounts) for _ in range(7)]


def test_a_day_stands_out_only_beyond_each_gate_not_at_it():
    one = Decimal("0.01")
    steady = days([100] * 56, 0)
    varied = days(week_by_week(90, 110, 90, 110, 90, 110, 90, 110), 0)
    for known, gate in ((steady, Decimal(25)), (varied, Decimal(52))):
        for cost, stands_out in ((100 + gate, False), (100 + gate + one, True)):
            given_days = {**known, DAY: cost}
            found = standing_out(given_days, DAY, known_since=date.min, least=one)
            assert (found is not None) is stands_out
    assert standing_out({**varied, DAY: Decimal(200)}, DAY, known_since=date.min, least=one).spread == 10


def test_usual_is_of_eight_weekdays_and_of_the_seven_days_before():
    def usual(amounts):
        return standing_out({**amounts, DAY: Decimal(10_000)}, DAY, known_since=date.min, least=LEAST).usual

    weekdays = {DAY - timedelta(days=7 * week): Decimal(1000) for week in range(5, 12)}
    assert LOOKS_BACK == 56
    assert usual(weekdays) == 500, "four of eight"
    assert usual({**weekdays, DAY - timedelta(days=LOOKS_BACK): Decimal(0)}) == 0
    assert usual({**weekdays, DAY - timedelta(days=LOOKS_BACK + 7): Decimal(0)}) == 500
    for recent, expected in (((1, 2, 3, 4), 300), ((1, 2, 3), 0), ((4, 5, 6, 7), 300), ((5, 6, 7, 8), 0)):
        assert usual({DAY - timedelta(days=number): Decimal(300) for number in recent}) == expected
    assert usual({DAY - timedelta(days=number): Decimal(-50) for number in range(1, 57)}) == 0, "never below nothing"
