"""Forecasts: parts add up, the past alone decides, and nothing usual is no credit."""

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from billing.engine.backtest import METHODS, NAIVE, back_test, pattern_of
from billing.engine.budgets import Commitment, Expectation, Terms, expectation_message, period_at, worst_case
from billing.engine.forecast import LEAST_DAYS, Member, divided, forecast, running_by_day
from tests.laws import among, examples

MONTH = Terms("money", "USD", "month")
AT = datetime(2026, 11, 11, 6, tzinfo=UTC)
SPAN = period_at(MONTH, AT)
TODAY = AT.date()
ZERO = Decimal(0)


def history_of(amounts, until=TODAY):
    """The amounts as the days before `until`."""
    return {until - timedelta(days=number): Decimal(one) for number, one in enumerate(reversed(amounts), 1)}


def one(amounts, posted=ZERO, running=None, name="acme"):
    return Member(name, Decimal(posted), history_of(amounts), running or {})


WEEK = [100, 100, 100, 100, 100, 10, 10]


def test_a_steady_week_goes_on_and_its_range_is_nothing():
    found = forecast([one(WEEK * 6, posted=500)], SPAN, AT)
    assert found.parts.posted == 500
    first = Decimal(WEEK[0]) * Decimal("0.75")  # today: 18 of 24 hours are left
    rest = [WEEK[number % 7] for number in range(1, 20)]
    assert found.parts.expected == first + sum(rest)
    assert found.low == found.high == found.parts.total
    assert found.tested.chosen == NAIVE
    assert found.reaches(Decimal(575)) == TODAY
    assert found.reaches(Decimal(576)) == TODAY + timedelta(days=1)
    assert found.reaches(found.parts.total + 1) is None
    assert [day.day for day in found.days] == [TODAY + timedelta(days=number) for number in range(20)]


def test_running_work_takes_the_place_of_usual_work_and_adds_only_beyond_it():
    running = {TODAY: Decimal(500), TODAY + timedelta(days=1): Decimal(40)}
    found = forecast([one([100] * 42, running=running)], SPAN, AT)
    assert found.days[0].expected == 0
    assert found.days[1].expected == 60
    assert found.parts.running == 540
    assert found.parts.total == 540 + 60 + 18 * 100


def test_with_too_little_history_only_what_runs_is_forecast():
    running = {TODAY: Decimal(7)}
    found = forecast([one([5] * (LEAST_DAYS - 1), posted=3, running=running)], SPAN, AT)
    assert (found.has_history, found.days_of_history, found.parts.expected) == (False, LEAST_DAYS - 1, 0)
    assert found.parts.total == found.low == found.high == 10
    assert forecast([one([5] * LEAST_DAYS)], SPAN, AT).has_history


@pytest.mark.parametrize("members", [[], [one([])], [one([0] * 60)]])
def test_nothing_is_expected_of_nothing(members):
    found = forecast(members, SPAN, AT)
    assert (found.parts.total, found.has_history, found.low, found.high) == (0, False, 0, 0)


def test_the_range_holds_what_came_in_nine_of_ten_such_days():
    noisy = [100 + (number * 37) % 50 for number in range(90)]
    found = forecast([one(noisy)], SPAN, AT)
    assert found.low < found.parts.total < found.high
    widths = [day.high - day.low for day in found.days]
    assert widths == sorted(widths)


def test_the_chosen_method_is_the_least_wrong_one_and_the_scores_say_so():
    level = [100 if number % 2 else 50 for number in range(120)]  # every other day: last week is always wrong
    tested = back_test(level, 14)
    assert tested.horizon == 14
    errors = {score.method: score.error for score in tested.scores}
    assert errors[tested.chosen] <= errors[NAIVE]


def test_a_method_replaces_last_week_only_if_it_was_clearly_better_all_the_time():
    rising = [10 * number for number in range(120)]  # the last day is nearest to what comes
    tested = back_test(rising, 7)
    assert tested.chosen.name == "the last day"
    assert tested.as_chosen_then < tested.naive_then
    lately = [1000 if number % 7 == 0 else 10 for number in range(90)] + [10 * number for number in range(30)]
    assert back_test(lately, 1).chosen == NAIVE


def test_a_run_counts_on_the_days_until_its_deadline_and_time_that_is_not_metered_yet_counts_today():
    rest = Commitment(Decimal(2), "USD", Decimal(1), AT - timedelta(hours=12), 48 * 3600)
    found = running_by_day(MONTH, rest, SPAN, AT)
    assert found == {TODAY: Decimal(60), TODAY + timedelta(days=1): Decimal(36)}
    assert sum(found.values()) == worst_case(MONTH, rest, SPAN)
    assert running_by_day(MONTH, rest._replace(currency="EUR"), SPAN, AT) == dict.fromkeys(found, ZERO)
    over = rest._replace(starts_at=SPAN[1] - timedelta(hours=1))
    assert running_by_day(MONTH, over, SPAN, AT) == {SPAN[1].date() - timedelta(days=1): Decimal(2)}
    assert running_by_day(MONTH, rest._replace(seconds=0), SPAN, AT) == {}


def test_what_an_alert_says():
    found = Expectation(80, Decimal(5000), Decimal(5200), Decimal("4800.5"), Decimal(5900), date(2026, 11, 27))
    assert expectation_message(MONTH, SPAN, found) == (
        "5200.00 USD are expected by the end of 2026-11, between 4800.50 USD and 5900.00 USD."
        " 80 % of 5000.00 USD are expected to be reached on 2026-11-27."
    )


cents = st.decimals(min_value=-1000, max_value=100_000, places=4)
uses = st.decimals(min_value=0, max_value=100_000, places=12)
uses_ahead = st.dictionaries(st.integers(0, 40), uses, max_size=3)
series = st.lists(st.one_of(st.just(ZERO), uses, cents), max_size=90)
moments = st.datetimes(datetime(2026, 1, 1), datetime(2027, 12, 31, 23, 59)).map(lambda at: at.replace(tzinfo=UTC))


@st.composite
def worlds(draw, amounts=series):
    at = draw(moments)
    terms = replace(MONTH, period=draw(among("month", "quarter", "year")))
    members = []
    for number in range(draw(st.integers(0, 3))):
        ahead = draw(uses_ahead)
        running = {at.date() + timedelta(days=days): amount for days, amount in ahead.items()}
        own = draw(amounts)
        members.append(Member(f"acme/{number}", draw(cents), history_of(own, at.date()), running))
    return members, period_at(terms, at), at


@pytest.mark.law
@given(worlds())
@examples(150)
def test_parts_add_up_to_the_last_digit_and_nothing_is_below_what_is_posted(world):
    members, span, at = world
    found = forecast(members, span, at)
    for name in ("posted", "running", "expected", "total"):
        assert sum((getattr(parts, name) for parts in found.members.values()), ZERO) == getattr(found.parts, name)
    assert sum((day.running + day.expected for day in found.days), found.parts.posted) == found.parts.total
    assert all(day.expected >= 0 for day in found.days)
    assert found.parts.total >= found.parts.posted
    assert found.parts.posted <= found.low <= found.parts.total <= found.high
    assert found.days[-1].total == found.parts.total
    totals = [day.total for day in found.days]
    assert totals == sorted(totals)
    assert all(found.parts.posted <= day.low <= day.total <= day.high for day in found.days)
    assert all(parts.expected >= 0 for parts in found.members.values())


@pytest.mark.law
@given(worlds(), st.dictionaries(st.integers(0, 60), cents, max_size=5))
@examples(90)
def test_nothing_of_today_or_later_is_looked_at_and_the_same_gives_the_same(world, later):
    members, span, at = world
    changed = [
        replace(one, history={**one.history, **{at.date() + timedelta(days=n): amount for n, amount in later.items()}})
        for one in members
    ]
    assert forecast(changed, span, at) == forecast(members, span, at)


@pytest.mark.law
@given(worlds(), st.sampled_from(["Europe/Berlin", "America/New_York", "Pacific/Kiritimati", "Asia/Kolkata"]))
@examples(60)
def test_the_zone_in_which_times_are_written_changes_nothing(world, zone):
    members, span, at = world
    here = ZoneInfo(zone)
    moved = forecast(members, (span[0].astimezone(here), span[1].astimezone(here)), at.astimezone(here))
    assert moved == forecast(members, span, at)


@pytest.mark.law
@given(st.lists(st.floats(0, 1e6), min_size=28, max_size=182), st.integers(1, 366))
@examples(90)
def test_the_chosen_method_is_never_worse_than_last_week_repeated(history, ahead):
    tested = back_test(history, ahead)
    errors = {score.method: score.error for score in tested.scores}
    assert list(errors) == list(METHODS)
    assert errors[tested.chosen] <= errors[NAIVE]
    assert tested.below <= tested.above
    assert 1 <= tested.horizon <= min(ahead, 28)


@pytest.mark.law
@given(st.lists(st.floats(0, 1e6), min_size=35, max_size=120), st.integers(1, 28), st.floats(0, 1e6))
@examples(60)
def test_a_method_looks_only_at_days_before_the_one_it_forecasts_from(history, ahead, other):
    """The last day is in no pattern, and in the sum that came of exactly the last origin."""
    tested, changed = back_test(history, ahead), back_test([*history[:-1], other], ahead)
    moved = abs(other - history[-1]) / tested.origins
    for before, after in zip(tested.scores, changed.scores, strict=True):
        assert abs(before.error - after.error) <= moved + 1e-6 * (1 + before.error)


def test_shares_are_in_proportion_to_their_weights():
    assert divided(Decimal(9), [Decimal(weight) for weight in (1, 0, 2, 6)]) == [1, 0, 2, 6]
    assert divided(Decimal(9), [ZERO] * 3) == [3, 3, 3]


@pytest.mark.law
@given(uses, st.lists(uses, max_size=6))
@examples(150)
def test_shares_add_up_and_a_weight_of_nothing_gets_nothing(amount, weights):
    shares = divided(amount, weights)
    assert sum(shares, ZERO) == (amount if weights else 0)
    assert all(share >= 0 for share in shares)
    if any(weights):
        assert all(not share for share, weight in zip(shares, weights, strict=True) if not weight)


@pytest.mark.law
@given(st.lists(cents, min_size=1, max_size=80), st.sampled_from(METHODS))
@examples(90)
def test_a_pattern_is_seven_days_and_never_a_credit(history, method):
    found = pattern_of(method, history)
    assert len(found) == 7
    assert all(0 <= amount <= max(ZERO, *history) for amount in found)


def test_a_month_with_a_change_of_clocks_has_as_many_days_as_any():
    at = datetime(2026, 10, 20, 12, tzinfo=timezone(timedelta(hours=2)))
    span = period_at(MONTH, at)
    found = forecast([Member("a", ZERO, history_of([24] * 60, at.date()), {})], span, at)
    assert found.days[0].expected == 14
    assert {day.expected for day in found.days[1:]} == {24}
    assert len(found.days) == 12
