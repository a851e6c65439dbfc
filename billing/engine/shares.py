"""Rounding for display that keeps sums exact: largest remainder; ties go to the earlier row."""

from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction
from math import lcm


def shown_parts(parts: Sequence[Fraction | int], places: int, *, per: int = 1) -> tuple[tuple[Decimal, ...], Decimal]:
    """Each part and the total, divided by `per`, with `places` decimals: the total is rounded half-even, the parts add
    up to it exactly.

    Rounding moves a part by less than one unit of the last place, and a part of zero stays zero. Parts may be
    negative. All is done in whole numbers over one denominator: a fraction a step costs tens of times as much.

    >>> shown_parts([Fraction(100, 3)] * 3, 2)
    ((Decimal('33.34'), Decimal('33.33'), Decimal('33.33')), Decimal('100.00'))
    """
    if not any(parts):
        nothing = _decimal(0, places)
        return (nothing,) * len(parts), nothing
    whole = lcm(*{part.denominator for part in parts})
    unit, scale = whole * per, 10**places
    counts = [part.numerator * (whole // part.denominator) * scale for part in parts]
    total = round(Fraction(sum(counts), unit))
    split = [divmod(count, unit) for count in counts]
    floors = [count for count, _ in split]
    if missing := total - sum(floors):
        by_remainder = sorted(range(len(parts)), key=lambda row: -split[row][1])
        for row in by_remainder[:missing]:
            floors[row] += 1
    return tuple(_decimal(units, places) for units in floors), _decimal(total, places)


def _decimal(units: int, places: int) -> Decimal:
    return Decimal(f"{units}e-{places}")
