"""Which days cost a team unusually much on one flavor. Pure; a day is compared with earlier ones only."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from decimal import Decimal
from statistics import median

ZERO = Decimal(0)
WEEKS = 8
"""A day is compared with the same weekday of this many weeks before it."""
LEAST_WEEKS = 4
LOOKS_BACK = WEEKS * 7
SPREADS = Decimal("5.2")
"""Median absolute deviations that a day may be above its median: 3.5 standard deviations of a normal distribution."""
LEAST_PART = Decimal("0.25")
"""A day is at least by this part of its median above it."""
A_DAY = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Finding:
    """A day that stands out: its cost, and the median and the median absolute deviation that it was compared with."""

    cost: Decimal
    usual: Decimal
    spread: Decimal


def standing_out(amounts: Mapping[date, Decimal], day: date, *, known_since: date, least: Decimal) -> Finding | None:
    """Whether the day stands out; None if it does not, or if fewer than LEAST_WEEKS weeks are known before it.

    Usual is the median of the weekday, or that of the last seven days if it is more: a new level is usual after four days.
    The day must be above it by `least` (money), by SPREADS deviations, and by LEAST_PART of the median.
    """
    weeks = min(WEEKS, (day - known_since).days // 7)
    if weeks < LEAST_WEEKS:
        return None
    same = [amounts.get(day - number * 7 * A_DAY, ZERO) for number in range(1, weeks + 1)]
    recent = [amounts.get(day - number * A_DAY, ZERO) for number in range(1, 8)]
    middle = median(same)
    spread = median([abs(one - middle) for one in same])
    usual = max(ZERO, middle, median(recent))
    cost = amounts.get(day, ZERO)
    if cost - usual <= max(SPREADS * spread, LEAST_PART * usual) or cost - usual < least:
        return None
    return Finding(cost, usual, spread)
