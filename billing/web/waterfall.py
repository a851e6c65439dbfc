"""From what jobs paid to what it all costs: the steps of a month's bridge, each from where the last one ended."""

from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from itertools import accumulate

from billing.engine.ledger import SCALE
from billing.engine.shares import shown_parts
from billing.queries.sharing_report import Bridge

from .usage import PLACES

BRIDGE = (
    ("charged", "Charged to jobs"),
    ("commitment", "Used commitments, less the usage that they covered"),
    ("credits", "Credits for lost work"),
    ("infrastructure", "Lost work, borne by the organisation"),
    ("idle_shared", "Idle, borne by tenants"),
    ("idle_central", "Idle, kept central"),
    ("overhead", "Nodes that took no jobs"),
    ("platform_shared", "Platform, borne by tenants"),
    ("platform_central", "Platform, kept central"),
    ("commitment_unused", "Commitments, unused"),
)


@dataclass(frozen=True, slots=True)
class Step:
    """A part of the total. The picture's bar is from `x` to `x + width`, in per cent."""

    title: str
    amount: Decimal
    x: str
    width: str


@dataclass(frozen=True, slots=True)
class Waterfall:
    """The steps of a currency, rounded so that they add up to the total."""

    currency: str
    steps: tuple[Step, ...]
    total: Decimal
    whole: Step
    """The bar of the total."""


def waterfall_of(bridge: Bridge) -> Waterfall:
    """The steps of a bridge, but those of nothing."""
    parts, total = shown_parts([Fraction(getattr(bridge, name), SCALE) for name, _ in BRIDGE], PLACES)
    ends = [Decimal(0), *accumulate(parts)]
    low, high = min(ends), max(ends)
    span = high - low

    def step(title: str, begins: Decimal, ends_at: Decimal) -> Step:
        left, right = sorted((begins, ends_at))
        x, width = ((left - low) / span * 100, (right - left) / span * 100) if span else (Decimal(0), Decimal(0))
        return Step(title, ends_at - begins, f"{x:.2f}", f"{width:.2f}")

    steps = [step(title, ends[number], ends[number + 1]) for number, (_, title) in enumerate(BRIDGE) if parts[number]]
    return Waterfall(bridge.currency, tuple(steps), total, step("Total", Decimal(0), total))
