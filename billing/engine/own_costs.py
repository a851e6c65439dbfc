"""What an hour of a unit costs its owner: the price of own hardware, from its costs, step by step.

The database computes the same rate in `billing/sql/own_costs.sql`. A changed formula gets the next number, and the old one is kept
for the prices that have it.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any

from .currencies import CURRENCIES
from .shares import shown_parts

FORMULA = 1
HOURS_A_MONTH = 730
"""8,760 hours a year in twelve months."""
MONTHS_A_YEAR = 12
PLACES = 6
MOST_RATE = Decimal(10) ** 9
"""A rate is below this."""
NUMBER = re.compile(r"[0-9]{1,9}(\.[0-9]{1,6})?")


@dataclass(frozen=True, slots=True)
class Bounds:
    """The least and the most that an input may be; `whole`: without decimals."""

    least: Decimal
    most: Decimal
    whole: bool = False


def _bounds(least: str, most: str) -> Bounds:
    return Bounds(Decimal(least), Decimal(most))


def _count(most: int) -> Bounds:
    return Bounds(Decimal(1), Decimal(most), whole=True)


MONEY = _bounds("0", "999999999.999999")
SHARE = _bounds("0", "100")
INPUTS: Mapping[str, Bounds] = {
    "purchase_price": MONEY,
    "residual_value": MONEY,
    "life_months": _count(240),
    "nodes": _count(100_000),
    "units_per_node": _count(10_000),
    "spares_percent": SHARE,
    "power_watts": _bounds("0", "1000000"),
    "load_percent": SHARE,
    "pue": _bounds("1", "5"),
    "electricity_price": MONEY,
    "space_cost": MONEY,
    "network_cost": MONEY,
    "support_cost": MONEY,
    "support_percent": SHARE,
    "staff_cost": MONEY,
    "capital_percent": SHARE,
    "utilisation_percent": _bounds("1", "100"),
    "margin_percent": _bounds("0", "1000"),
}
OPTIONAL = ("support_cost", "support_percent")
"""Exactly one of the two is given."""


class NotOwnCosts(ValueError):
    """Inputs that give no rate: (input, code, what is wrong) of each; an empty name is the model as a whole."""

    def __init__(self, faults: Sequence[tuple[str, str, str]]) -> None:
        super().__init__("; ".join(detail for _, _, detail in faults))
        self.faults = tuple(faults)


@dataclass(frozen=True, slots=True)
class OwnCosts:
    """The costs of the nodes of one flavor. Amounts are in `currency`; percentages are of 100.

    Of a node: `purchase_price`, and `residual_value` after `life_months`; `power_watts` at full load, of which it draws
    `load_percent` on average; per month `space_cost` and `network_cost`. `electricity_price` is per kWh, times the data centre's
    `pue`. Of all nodes together: `support_cost` a year, or `support_percent` of the purchase price a year; `staff_cost` per month.
    `nodes` run; `spares_percent` more are bought. `capital_percent` is a year's interest on the average book value.
    `utilisation_percent` of the unit-hours are sold, and `margin_percent` of the costs is added to them.
    """

    currency: str
    purchase_price: Decimal
    residual_value: Decimal
    life_months: Decimal
    nodes: Decimal
    units_per_node: Decimal
    spares_percent: Decimal
    power_watts: Decimal
    load_percent: Decimal
    pue: Decimal
    electricity_price: Decimal
    space_cost: Decimal
    network_cost: Decimal
    staff_cost: Decimal
    capital_percent: Decimal
    utilisation_percent: Decimal
    margin_percent: Decimal
    support_cost: Decimal | None = None
    support_percent: Decimal | None = None

    def as_text(self) -> dict[str, str]:
        """The inputs that were given, in their order, without needless zeros."""
        values = asdict(self)
        return {name: f"{values[name].normalize():f}" for name in INPUTS if values[name] is not None}

    def stored(self) -> dict[str, Any]:
        """As a price keeps them."""
        return {"formula": FORMULA, "currency": self.currency, **self.as_text()}


@dataclass(frozen=True, slots=True)
class Part:
    """A part of the rate: of all nodes per month, per hour of a running node, per sold hour of a unit."""

    name: str
    per_month: Decimal
    per_node_hour: Decimal
    per_unit_hour: Decimal


@dataclass(frozen=True, slots=True)
class Steps:
    """How the rate comes about. In each column the parts add up to the total; `total.per_unit_hour` is the rate."""

    node_hours: Decimal
    """Per month, of all running nodes."""
    unit_hours: Decimal
    sold_unit_hours: Decimal
    parts: tuple[Part, ...]
    total: Part

    @property
    def rate(self) -> Decimal:
        """The price of an hour of a unit."""
        return self.total.per_unit_hour


def read_input(name: str, text: str) -> Decimal:
    """The value of one input. Raises NotOwnCosts (`bad_format`, `out_of_range`)."""
    bounds = INPUTS[name]
    if not NUMBER.fullmatch(text) or (bounds.whole and "." in text):
        example = "a whole number such as 60" if bounds.whole else f"a number such as 2.74, at most {PLACES} decimals"
        raise NotOwnCosts([(name, "bad_format", f"{example}, at most 9 digits before the point")])
    value = Decimal(text)
    if not bounds.least <= value <= bounds.most:
        raise NotOwnCosts([(name, "out_of_range", f"from {bounds.least:f} to {bounds.most:f}")])
    return value


def read_own_costs(currency: str, texts: Mapping[str, str]) -> OwnCosts:
    """The inputs by name; what is absent or empty is not given. Raises NotOwnCosts with every fault."""
    faults: list[tuple[str, str, str]] = []
    values: dict[str, Decimal] = {}
    if not currency:
        faults.append(("currency", "required", "give a currency such as EUR"))
    elif currency not in CURRENCIES:
        faults.append(("currency", "unknown_currency", f"{currency[:10]} is no currency of ISO 4217 in use"))
    for name in INPUTS:
        if text := texts.get(name, ""):
            try:
                values[name] = read_input(name, text)
            except NotOwnCosts as refused:
                faults += refused.faults
        elif name not in OPTIONAL:
            faults.append((name, "required", "give a number; 0 if there is none"))
    faults += _contradictions(values, texts)
    if faults:
        raise NotOwnCosts(faults)
    found = OwnCosts(currency=currency, **values)
    if not rate_of(found) < MOST_RATE:
        raise NotOwnCosts([("", "out_of_range", f"these inputs give a rate of {MOST_RATE:,f} or more")])
    return found


def _contradictions(values: Mapping[str, Decimal], texts: Mapping[str, str]) -> list[tuple[str, str, str]]:
    faults = []
    support = [name for name in OPTIONAL if texts.get(name)]
    if len(support) > 1:
        faults.append(("support_percent", "given_twice", "support is an amount or a percentage, not both"))
    elif not support:
        faults.append(("support_cost", "required", "give an amount, or a percentage; 0 if there is none"))
    if values.get("residual_value", Decimal(0)) > values.get("purchase_price", MONEY.most):
        faults.append(("residual_value", "out_of_range", "at most the purchase price"))
    return faults


def rate_of(costs: OwnCosts) -> Decimal:
    """The price of an hour of a unit, rounded half-even to six decimals."""
    return steps_of(costs).rate


def steps_of(costs: OwnCosts) -> Steps:
    """The rate and each part of it. All is exact until it is rounded for display, as reports are."""
    monthly = _monthly(costs)
    monthly["margin"] = sum(monthly.values(), Fraction(0)) * Fraction(costs.margin_percent) / 100
    node_hours = costs.nodes * HOURS_A_MONTH
    unit_hours = node_hours * costs.units_per_node
    sold = unit_hours * costs.utilisation_percent / 100
    quantities = (Fraction(1), Fraction(node_hours), Fraction(sold))
    columns = [shown_parts([amount / per for amount in monthly.values()], PLACES) for per in quantities]
    shown = zip(monthly, *(parts for parts, _ in columns), strict=True)
    return Steps(
        node_hours=node_hours,
        unit_hours=unit_hours,
        sold_unit_hours=sold,
        parts=tuple(Part(*row) for row in shown),
        total=Part("total", *(total for _, total in columns)),
    )


def _monthly(costs: OwnCosts) -> dict[str, Fraction]:
    """The costs of all nodes in a month, before the margin. Spares cost what a node costs but electricity: they do not run."""
    nodes = Fraction(costs.nodes)
    bought = nodes * (100 + Fraction(costs.spares_percent)) / 100
    new, old = Fraction(costs.purchase_price), Fraction(costs.residual_value)
    kilowatts = Fraction(costs.power_watts) / 1000 * Fraction(costs.load_percent) / 100 * Fraction(costs.pue)
    if costs.support_cost is not None:
        support = Fraction(costs.support_cost) / MONTHS_A_YEAR
    else:
        support = bought * new * Fraction(costs.support_percent or 0) / 100 / MONTHS_A_YEAR
    return {
        "depreciation": bought * (new - old) / Fraction(costs.life_months),
        "capital": bought * (new + old) / 2 * Fraction(costs.capital_percent) / 100 / MONTHS_A_YEAR,
        "electricity": nodes * kilowatts * HOURS_A_MONTH * Fraction(costs.electricity_price),
        "space": bought * Fraction(costs.space_cost),
        "network": bought * Fraction(costs.network_cost),
        "support": support,
        "staff": Fraction(costs.staff_cost),
    }


def stored_costs(kept: Mapping[str, Any]) -> OwnCosts:
    """The inputs that a price keeps (formula 1, the only one so far). They count as they are: bounds and currencies may have
    changed since.
    """
    return OwnCosts(currency=kept["currency"], **{name: Decimal(kept[name]) for name in INPUTS if name in kept})
