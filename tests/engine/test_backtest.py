"""The back test of ways to forecast, against a plain one that reads each way's rule day by day."""

from collections.abc import Callable, Sequence
from decimal import Decimal
from random import Random
from statistics import fmean, median

import pytest

from billing.engine.backtest import METHODS, back_test, pattern_of

Way = Callable[[Sequence[float]], list[float]]


def by_weekday(kind: Callable[[Sequence[float]], float], weeks: int) -> Way:
    """The same weekday of the last weeks, as far as there are whole ones."""

    def expected(past: Sequence[float]) -> list[float]:
        known = min(weeks, len(past) // 7)
        days = [[past[len(past) - 7 * number + day] for number in range(1, known + 1)] for day in range(7)]
        return [max(0.0, kind(one)) for one in days]

    return expected


def level(days: int) -> Way:
    return lambda past: [max(0.0, fmean(past[-days:]))] * 7


WAYS = {
    "the same weekday of last week": by_weekday(fmean, 1),
    "mean of the weekday, 2 weeks": by_weekday(fmean, 2),
    "mean of the weekday, 4 weeks": by_weekday(fmean, 4),
    "mean of the weekday, 8 weeks": by_weekday(fmean, 8),
    "median of the weekday, 4 weeks": by_weekday(median, 4),
    "median of the weekday, 8 weeks": by_weekday(median, 8),
    "the last day": level(1),
    "mean of all days, 3 days": level(3),
    "mean of all days, 1 week": level(7),
    "mean of all days, 4 weeks": level(28),
    "mean of all days, 8 weeks": level(56),
}


def thirds(values):
    """Three parts in order; the first ones are longer if the number cannot be divided."""
    short, longer = divmod(len(values), 3)
    sizes = [short + (number < longer) for number in range(3)]
    return [values[sum(sizes[:number]) : sum(sizes[: number + 1])] for number in range(3)]


def chosen_of(misses):
    """The number of the way with the least mean miss of those that beat the first one by a twentieth in each third."""
    if len(misses[0]) < 3:
        return 0
    usual = [fmean(part) for part in thirds(misses[0])]
    good = [
        number
        for number, own in enumerate(misses)
        if all(fmean(part) < 0.95 * first for part, first in zip(thirds(own), usual, strict=True))
    ]
    return min(good, key=lambda number: fmean(misses[number]), default=0)


def percentile(values, part):
    ordered, place = sorted(values), part * (len(values) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def by_plain_rules(history, ahead):
    horizon = max(1, min(ahead, 28, (len(history) - 14) // 2))
    origins = [at for at in range(14, len(history) - horizon + 1) if len(history) - horizon - at < 13 * 7]
    came = [sum(history[at : at + horizon]) for at in origins]
    off = [
        [
            cost - sum(way(history[:at])[day % 7] for day in range(horizon))
            for at, cost in zip(origins, came, strict=True)
        ]
        for way in WAYS.values()
    ]
    misses = [[abs(one) for one in row] for row in off]
    best = chosen_of(misses)
    then = [
        (misses[chosen_of([row[: place - horizon + 1] for row in misses])][place], misses[0][place])
        for place in range(horizon, len(origins))
    ]
    return {
        "chosen": list(WAYS)[best],
        "errors": [fmean(row) for row in misses],
        "parts": [sum(row) / sum(map(abs, came)) if any(came) else None for row in misses],
        "origins": len(origins),
        "horizon": horizon,
        "below": percentile(off[best], 0.1),
        "above": percentile(off[best], 0.9),
        "then": fmean(one for one, _ in then) if then else None,
        "naive": fmean(one for _, one in then) if then else None,
    }


def noisy(days, of, chance):
    return [max(0.0, of(day) + chance.uniform(-20, 20)) for day in range(days)]


CHANCE = Random(5)
HISTORIES = {
    "three weeks": (noisy(21, lambda day: 100 if day % 7 < 5 else 10, CHANCE), 30),
    "busy weekdays": (noisy(60, lambda day: 100 if day % 7 < 5 else 10, CHANCE), 10),
    "level": (noisy(120, lambda _: 80, CHANCE), 7),
    "rising": (noisy(120, lambda day: 5 * day, CHANCE), 7),
    "a step": (noisy(100, lambda day: 20 if day < 50 else 300, CHANCE), 28),
    "half a year": (noisy(182, lambda day: 50 + 30 * (day % 7), CHANCE), 40),
    "with outliers": ([100.0 + 900 * (day % 13 == 0) + day % 7 for day in range(130)], 14),
    "with credits": ([100.0 - 260 * (day % 3 == 0) for day in range(90)], 9),
    "nothing": ([0.0] * 40, 5),
    "one day ahead": (noisy(45, lambda day: 60 + 40 * (day % 2), CHANCE), 1),
}  # fmt: skip


@pytest.mark.parametrize("name", HISTORIES)
def test_the_test_of_all_methods_is_that_of_their_rules_day_by_day(name):
    history, ahead = HISTORIES[name]
    expected, found = by_plain_rules(history, ahead), back_test(history, ahead)
    assert [score.method.name for score in found.scores] == list(WAYS)
    assert (found.chosen.name, found.origins, found.horizon, found.ahead) == (
        expected["chosen"], expected["origins"], expected["horizon"], ahead,
    )  # fmt: skip
    assert [score.error for score in found.scores] == pytest.approx(expected["errors"])
    for score, part in zip(found.scores, expected["parts"], strict=True):
        assert score.part == (None if part is None else pytest.approx(part))
    assert (found.below, found.above) == pytest.approx((expected["below"], expected["above"]))
    for own, plain in ((found.as_chosen_then, expected["then"]), (found.naive_then, expected["naive"])):
        assert own == (None if plain is None else pytest.approx(plain))


def test_these_histories_choose_different_methods():
    assert len({back_test(*given).chosen for given in HISTORIES.values()}) > 3


def test_the_range_of_more_days_than_were_tested_grows_in_proportion():
    found = back_test(*HISTORIES["level"])
    assert found.off_at(found.horizon) == pytest.approx((found.below, found.above))
    assert found.off_at(3 * found.horizon) == pytest.approx((3 * found.below, 3 * found.above))


@pytest.mark.parametrize("days", [7, 13, 14, 30, 60])
def test_a_pattern_in_decimals_is_that_of_the_rule(days):
    chance = Random(days)
    history = [Decimal(chance.randint(-200, 1000)) / 8 for _ in range(days)]
    for method in METHODS:
        expected = WAYS[method.name]([float(one) for one in history])
        assert [float(one) for one in pattern_of(method, history)] == pytest.approx(expected)


def test_a_pattern_of_less_than_a_week_repeats_what_is_known():
    history = [Decimal(1), Decimal(2), Decimal(6)]
    named = {method.name: pattern_of(method, history) for method in METHODS}
    assert named["the same weekday of last week"] == [1, 2, 6, 0, 0, 0, 0]
    assert named["mean of all days, 4 weeks"] == [3] * 7
    assert named["the last day"] == [6] * 7
    assert {tuple(pattern_of(method, [])) for method in METHODS} == {(0,) * 7}
