"""Rounding for display that keeps sums exact: largest remainder; ties go to the earlier row."""

from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction
from math import floor


def shown_parts(parts: Sequence[Fraction], places: int) -> tuple[tuple[Decimal, ...], Decimal]:
    """Each part and the total with `places` decimals: the total is rounded half-even, the parts add up to it exactly.

    Rounding moves a part by less than one unit of the last place, and a part of zero stays zero. Parts may be
    negative.

    >>> shown_parts([Fraction(100, 3)] * 3, 2)
    ((Decimal('33.34'), Decimal('33.33'), Decimal('33.33')), Decimal('100.00'))
    """
    scaled = [part * 10**places for part in parts]
    total = round(sum(scaled, Fraction(0)))
    floors = [floor(part) for part in scaled]
    missing = total - sum(floors)
    by_remainder = sorted(range(len(parts)), key=lambda row: (floors[row] - scaled[row], row))
    for row in by_remainder[:missing]:
        floors[row] += 1
    return tuple(_decimal(units, places) for units in floors), _decimal(total, places)


def _decimal(units: int, places: int) -> Decimal:
    return Decimal(f"{units}e-{places}")
