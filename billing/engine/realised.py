"""What an accepted recommendation saved, measured later: the cost of a comparable unit before and after.

A unit is a job that succeeded, with all that jobs of its name cost on the way; of a commitment, a day. So less work is no saving, and
more work hides none. What else changed meanwhile (prices, data, the program) is in the figure too.
"""

from dataclasses import dataclass
from decimal import Decimal, localcontext
from enum import StrEnum
from fractions import Fraction

LEAST_UNITS = 5
"""Before, and after. Fewer say nothing."""
DEVIATIONS = 2
"""Standard errors within which a difference may be chance: about 95 of 100 are."""
DIGITS = 50


@dataclass(frozen=True, slots=True)
class Runs:
    """Jobs (or days) of a time: how many, their units, their cost, and the sum of the squares of their costs. `others` of them have a cost
    that cannot be compared.
    """

    jobs: int = 0
    units: int = 0
    cost: Fraction = Fraction(0)
    squares: Fraction = Fraction(0)
    others: int = 0

    def plus(self, more: "Runs") -> "Runs":
        """Both together."""
        return Runs(
            self.jobs + more.jobs, self.units + more.units, self.cost + more.cost, self.squares + more.squares,
            self.others + more.others,
        )  # fmt: skip


class WhyNot(StrEnum):
    """Why nothing is claimed."""

    TOO_FEW_BEFORE = "too_few_before"
    TOO_FEW_AFTER = "too_few_after"
    OTHER_CURRENCY = "other_currency"
    """Some jobs were charged in another currency, or without a price."""
    SAVES_NOTHING = "saves_nothing"
    """What is recommended changes no cost."""


@dataclass(frozen=True, slots=True)
class Realised:
    """`amount` was saved on the units after (negative: they cost more); `low` to `high` is what chance leaves of it.

    None: nothing is claimed, for `why_not`. `each_before` and `each_after` are the cost of a unit.
    """

    before: Runs
    after: Runs
    amount: Decimal | None = None
    low: Decimal | None = None
    high: Decimal | None = None
    each_before: Decimal | None = None
    each_after: Decimal | None = None
    why_not: WhyNot | None = None

    @property
    def is_beyond_chance(self) -> bool:
        """Whether all of the range has one sign."""
        return self.low is not None and self.high is not None and (self.low > 0 or self.high < 0)


def realised(before: Runs, after: Runs) -> Realised:
    """The saving: the difference in cost of a unit, times the units after."""
    if before.others or after.others:
        return Realised(before, after, why_not=WhyNot.OTHER_CURRENCY)
    if before.units < LEAST_UNITS:
        return Realised(before, after, why_not=WhyNot.TOO_FEW_BEFORE)
    if after.units < LEAST_UNITS:
        return Realised(before, after, why_not=WhyNot.TOO_FEW_AFTER)
    each = [one.cost / one.units for one in (before, after)]
    amount = (each[0] - each[1]) * after.units
    spread = _root(sum((_variance_of_a_unit(one) for one in (before, after)), Fraction(0))) * after.units * DEVIATIONS
    return Realised(
        before, after, _shown(amount), _shown(amount - spread), _shown(amount + spread), _shown(each[0]), _shown(each[1])
    )  # fmt: skip


def _variance_of_a_unit(runs: Runs) -> Fraction:
    """Of the mean cost of a unit: that of the mean cost of a job, with the jobs that each unit takes."""
    mean = runs.cost / runs.jobs
    of_a_job = max(runs.squares / runs.jobs - mean * mean, Fraction(0)) * Fraction(runs.jobs, max(runs.jobs - 1, 1))
    return of_a_job / runs.jobs * Fraction(runs.jobs, runs.units) ** 2


def _root(value: Fraction) -> Fraction:
    with localcontext() as context:
        context.prec = DIGITS
        return Fraction((Decimal(value.numerator) / Decimal(value.denominator)).sqrt())


def _shown(value: Fraction) -> Decimal:
    with localcontext() as context:
        context.prec = DIGITS
        return (Decimal(value.numerator) / Decimal(value.denominator)).quantize(Decimal("0.000001"))
