"""Is the rule that chooses a method any good on days and traces that it was not picked on?

For each trace the rule is picked among RULES on the first half of the days of the traces of other sources (folders): teams and
months that it is not judged on. It is judged on the second half of its own days, beside the product's rule, the seasonal naive forecast and AutoETS. All
forecast from the same days and see only the days before them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, TypeAlias

import numpy as np

from billing.engine.backtest import BEFORE, MOST_ORIGINS, RULE, WEEK, Rule, choice, misses
from billing.engine.forecast import LEAST_DAYS

RULES = tuple(Rule(periods, clearly) for periods, clearly in product((1, 2, 3, 4), (0.8, 0.9, 0.95, 1.0)))
Floats: TypeAlias = np.ndarray[Any, np.dtype[np.float64]]
Expected: TypeAlias = Mapping[int, Floats]
"""What another model expects of the days after each origin."""


@dataclass(frozen=True, slots=True)
class Trial:
    """A trace of a source, and its days from which this number of days is forecast. `missed` has the absolute errors of the methods of the
    product, by method and origin; `others` those of AutoETS, if it was asked.
    """

    source: str
    trace: str
    horizon: int
    missed: Floats
    others: Floats | None

    @property
    def judged(self) -> tuple[range, range]:
        """The numbers of the origins in the first half and in the second, from which the product would forecast."""
        first, last = LEAST_DAYS - BEFORE, self.missed.shape[1]
        middle = (first + last) // 2
        return range(first, middle), range(middle, last)

    def error(self, rule: Rule, origins: range) -> float:
        """The mean error of choosing at each origin by what the test of the product shows on that day."""
        found = []
        for number in origins:
            until = number - self.horizon + 1
            known = self.missed[:, max(0, until - MOST_ORIGINS) : max(0, until)]
            found.append(self.missed[choice(known, rule), number])
        return float(np.mean(found))

    def naive(self, origins: range) -> float:
        """The mean error of last week repeated."""
        return float(np.mean(self.missed[0, origins.start : origins.stop]))


def trial_of(
    source: str, trace: str, history: Sequence[float], horizon: int, expected: Expected | None
) -> Trial | None:
    """None if there are too few days for two halves."""
    known = np.asarray(history, dtype=np.float64)
    origins = range(BEFORE, len(known) - horizon + 1)
    if len(origins) < LEAST_DAYS - BEFORE + 2 * WEEK:
        return None
    came, missed = misses(known, horizon, origins)
    others = None
    if expected is not None:
        others = np.array([abs(came[n] - expected[origin][:horizon].sum()) for n, origin in enumerate(origins)])
    return Trial(source, trace, horizon, np.abs(missed), others)


def picked(trials: Sequence[Trial]) -> Rule:
    """The rule with the smallest error, in proportion to that of last week repeated, on the first half of these."""
    return min(RULES, key=lambda rule: _mean([_ratio(one, rule, one.judged[0]) for one in trials]))


def rows_of(trials: Sequence[Trial]) -> tuple[list[dict[str, object]], dict[str, float]]:
    """A row for each trace and horizon, and the geometric means of the errors in proportion to last week repeated."""
    rows: list[dict[str, object]] = []
    ratios: dict[str, list[float]] = {"rule": [], "picked": [], "auto_ets": []}
    elsewhere = {
        source: picked([each for each in trials if each.source != source] or trials)
        for source in {one.source for one in trials}
    }
    for one in trials:
        rule = elsewhere[one.source]
        half = one.judged[1]
        naive = one.naive(half)
        if not naive:
            continue
        own = {"rule": one.error(RULE, half) / naive, "picked": one.error(rule, half) / naive}
        if one.others is not None:
            own["auto_ets"] = float(np.mean(one.others[half.start : half.stop])) / naive
        for name, ratio in own.items():
            ratios[name].append(ratio)
        rows.append(
            {
                "trace": one.trace,
                "days ahead": one.horizon,
                "from days": len(half),
                "last week, GPU-hours": naive,
                "product's rule": f"{own['rule']:.2f}",
                "rule picked elsewhere": f"{own['picked']:.2f}",
                "which is": f"{rule.clearly:g} in {rule.periods}",
                "AutoETS": f"{own['auto_ets']:.2f}" if "auto_ets" in own else "-",
                "first half, product's rule": f"{_ratio(one, RULE, one.judged[0]):.2f}",
            }
        )
    return rows, {f"held_out_{name}": _mean(found) for name, found in ratios.items() if found}


def _ratio(one: Trial, rule: Rule, origins: range) -> float:
    naive = one.naive(origins)
    return one.error(rule, origins) / naive if naive else 1.0


def _mean(ratios: Sequence[float]) -> float:
    """The geometric mean."""
    return float(np.exp(np.mean(np.log(np.maximum(ratios, 1e-9))))) if ratios else 1.0
