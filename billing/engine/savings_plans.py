"""Savings plans: a spend in money for each hour, which pays for usage of some flavors at discounted rates.

Within an hour, the plan pays for what has the largest discount from what it was charged; of equal discounts, for what has the
lower rate, as AWS states (Savings Plans User Guide, "Understanding how Savings Plans apply to your AWS usage"); then by the names
of the flavor and capacity type. Where it does not pay for all of one of these, it pays for the same part of each user's. It pays for
nothing that was not charged more than its rate. All of it is computed in fractions, and what each user bears is rounded once an
hour, by largest remainder.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from itertools import groupby
from math import floor
from typing import Any, Generic, TypeVar

Key = TypeVar("Key", bound=tuple[Any, ...] | str)


@dataclass(frozen=True, slots=True)
class PlanRate:
    """What an hour of a unit of a flavor costs under a plan, in 10**-12 of its currency."""

    flavor: str
    capacity_type: str
    rate: int


@dataclass(frozen=True, slots=True)
class Usage(Generic[Key]):
    """What is left of a user's usage of one flavor in an hour: its unit-hours, and what they were charged, in 10**-12."""

    key: Key
    rate: PlanRate
    unit_hours: Fraction
    charged: Fraction

    @property
    def cost(self) -> Fraction:
        """At the plan's rate."""
        return self.unit_hours * self.rate.rate

    @property
    def order(self) -> tuple[Fraction, int, str, str]:
        """The largest discount first: the least part of the charge that is paid."""
        return self.cost / self.charged, self.rate.rate, self.rate.flavor, self.rate.capacity_type


def paid_by(spend: int, offered: Iterable[Usage[Key]]) -> Mapping[Key, Fraction]:
    """Which part of each usage a spend pays for, without those of which it pays nothing; each in (0, 1]."""
    left = Fraction(spend)
    found: dict[Key, Fraction] = {}
    eligible = sorted((one for one in offered if one.charged > one.cost), key=lambda one: one.order)
    for _, alike in groupby(eligible, key=lambda one: one.order):
        tier = list(alike)
        cost = sum((one.cost for one in tier), Fraction(0))
        part = min(Fraction(1), left / cost) if cost else Fraction(1)
        if not part:
            break
        found |= {one.key: part for one in tier}
        left -= part * cost
    return found


def rounded(parts: Mapping[Key, Fraction]) -> Mapping[Key, int]:
    """Amounts in whole units, which add up to the whole rounded down: largest remainder, ties to the lesser key.

    >>> rounded({"a": Fraction(5, 3), "b": Fraction(5, 3), "c": Fraction(2, 3)})
    {'a': 2, 'b': 1, 'c': 1}
    """
    exact = {key: part for key, part in sorted(parts.items()) if part}
    found = {key: floor(part) for key, part in exact.items()}
    missing = floor(sum(exact.values(), Fraction(0))) - sum(found.values())
    for key in sorted(exact, key=lambda each: found[each] - exact[each])[:missing]:
        found[key] += 1
    return found
