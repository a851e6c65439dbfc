"""Which way of expecting new work was least wrong: each one forecasts from many past days, and is compared with what came.

Every way looks only at days before the one that it forecasts from.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from statistics import median
from typing import Any, TypeAlias

import numpy as np

from .budgets import PLACES

WEEK = 7
BEFORE = 2 * WEEK
"""Days that a way gets at least before it forecasts."""
MOST_HORIZON = 4 * WEEK
MOST_ORIGINS = 13 * WEEK
LOW, HIGH = 0.1, 0.9
_STEP = Decimal(1).scaleb(-PLACES)
Floats: TypeAlias = "np.ndarray[Any, np.dtype[np.float64]]"


@dataclass(frozen=True, slots=True)
class Method:
    """A way to expect a day: from the same weekdays among the last `days`, or from all of them (`is_level`)."""

    name: str
    days: int
    is_level: bool = False
    is_median: bool = False


@dataclass(frozen=True, slots=True)
class Rule:
    """A method replaces NAIVE only if its error is below the part `clearly` of that of NAIVE in each of `periods` equal parts of
    the test: one that was better in a part of it only was lucky more often than it was right.
    """

    periods: int = 3
    clearly: float = 0.95


RULE = Rule()
NAIVE = Method("the same weekday of last week", WEEK)
"""The seasonal naive forecast, which all others have to beat."""
METHODS = (
    NAIVE,
    Method("mean of the weekday, 2 weeks", 2 * WEEK),
    Method("mean of the weekday, 4 weeks", 4 * WEEK),
    Method("mean of the weekday, 8 weeks", 8 * WEEK),
    Method("median of the weekday, 4 weeks", 4 * WEEK, is_median=True),
    Method("median of the weekday, 8 weeks", 8 * WEEK, is_median=True),
    Method("the last day", 1, is_level=True),
    Method("mean of all days, 3 days", 3, is_level=True),
    Method("mean of all days, 1 week", WEEK, is_level=True),
    Method("mean of all days, 4 weeks", 4 * WEEK, is_level=True),
    Method("mean of all days, 8 weeks", 8 * WEEK, is_level=True),
)


@dataclass(frozen=True, slots=True)
class Score:
    """How far a method was off: the mean of the absolute errors of the sums of `BackTest.horizon` days, and their sum as
    a part of what these days cost (None if they cost nothing).
    """

    method: Method
    error: float
    part: float | None


@dataclass(frozen=True, slots=True)
class BackTest:
    """All methods from `origins` past days, over `horizon` days each. `ahead` days are forecast.

    `chosen` has the smallest error of those that are clearly better than NAIVE all the time (RULE), and is NAIVE if there is none:
    never worse than NAIVE in this test. `as_chosen_then` is the error of choosing at
    each of those days by what was known on it: what the choice itself is worth; None if too few days allow one.
    `naive_then` is the error of NAIVE on the same days.
    """

    chosen: Method
    scores: tuple[Score, ...]
    as_chosen_then: float | None
    naive_then: float | None
    origins: int
    horizon: int
    ahead: int
    below: float
    above: float

    def off_at(self, days: int) -> tuple[float, float]:
        """How far the sum of this number of days may be off: the 10th and 90th percentile of the errors, in proportion to
        the days. Errors of more days than could be tested are taken to grow with their number.
        """
        return self.below * days / self.horizon, self.above * days / self.horizon


def back_test(history: Sequence[float], ahead: int) -> BackTest:
    """Tests every method on whole days, the oldest first. Needs at least three weeks."""
    known = np.asarray(history, dtype=np.float64)
    horizon = max(1, min(ahead, MOST_HORIZON, (len(known) - BEFORE) // 2))
    first = max(BEFORE, len(known) - horizon - MOST_ORIGINS + 1)
    came, missed = misses(known, horizon, range(first, len(known) - horizon + 1))
    errors = np.abs(missed).mean(axis=1)
    best = choice(np.abs(missed))
    below, above = np.quantile(missed[best], [LOW, HIGH])
    cost = float(np.abs(came).sum())
    then, naive = _walked(np.abs(missed), horizon)
    return BackTest(
        chosen=METHODS[best],
        scores=tuple(
            Score(method, float(error), float(error) * len(came) / cost if cost else None)
            for method, error in zip(METHODS, errors, strict=True)
        ),
        as_chosen_then=then,
        naive_then=naive,
        origins=len(came),
        horizon=horizon,
        ahead=ahead,
        below=float(below),
        above=float(above),
    )


def misses(known: Floats, horizon: int, origins: range) -> tuple[Floats, Floats]:
    """What this number of days from each origin came to, and by how much each method missed it (a row for each method)."""
    came = np.array([known[origin : origin + horizon].sum() for origin in origins])
    expected = np.array([
        [_pattern(method, known[:origin])[np.arange(horizon) % WEEK].sum() for origin in origins] for method in METHODS
    ])  # fmt: skip
    return came, came - expected


def pattern_of(method: Method, history: Sequence[Decimal]) -> list[Decimal]:
    """What the method expects of each of the seven days after the history, exact to twelve decimals; not below zero."""
    if method.is_level:
        level = list(history[-method.days :])
        return [_settled(_mean(level)) if level else Decimal(0)] * WEEK
    weeks = max(1, min(method.days, len(history)) // WEEK)
    window = list(history[-weeks * WEEK :])
    columns = [window[place::WEEK] for place in range(WEEK)]
    middle: Callable[[Sequence[Decimal]], Decimal] = median if method.is_median else _mean
    return [_settled(middle(column)) if column else Decimal(0) for column in columns]


def _mean(values: Sequence[Decimal]) -> Decimal:
    return sum(values, Decimal(0)) / len(values)


def _settled(amount: Decimal) -> Decimal:
    return max(Decimal(0), amount.quantize(_STEP))


def _pattern(method: Method, known: Floats) -> Floats:
    if method.is_level:
        level: Floats = np.full(WEEK, max(0.0, float(known[-method.days :].mean())))
        return level
    weeks = min(method.days, len(known)) // WEEK
    window = known[len(known) - weeks * WEEK :].reshape(weeks, WEEK)
    found: Floats = np.median(window, axis=0) if method.is_median else window.mean(axis=0)
    return found.clip(min=0.0)


def choice(missed: Floats, rule: Rule = RULE) -> int:
    """The number of the method to use, by the absolute errors of each so far."""
    if missed.shape[1] < rule.periods:
        return 0
    parts = np.array([part.mean(axis=1) for part in np.array_split(missed, rule.periods, axis=1)])
    is_better = (parts < rule.clearly * parts[:, :1]).all(axis=0)
    errors = missed.mean(axis=1)
    errors[~is_better] = np.inf
    return int(np.argmin(errors)) if is_better.any() else 0


def _walked(missed: Floats, horizon: int) -> tuple[float | None, float | None]:
    """The mean error of the method that would have been chosen by the days that were over then, and of NAIVE on the same days."""
    chosen, naive = [], []
    for number in range(horizon, missed.shape[1]):
        best = choice(missed[:, : number - horizon + 1])
        chosen.append(missed[best, number])
        naive.append(missed[0, number])
    return (float(np.mean(chosen)), float(np.mean(naive))) if chosen else (None, None)
