"""Rows of FOCUS whose price is in another currency than their organisation is billed in."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Final

from .conversion import Rate, converted

COSTS = ("BilledCost", "EffectiveCost", "ListCost", "ContractedCost")
UNIT_PRICES = ("ListUnitPrice", "ContractedUnitPrice")
COLUMNS: Final = (
    "PricingCurrency", "PricingCurrencyContractedUnitPrice", "PricingCurrencyEffectiveCost", "PricingCurrencyListUnitPrice",
)  # fmt: skip
"""Of the specification."""
OWN_COLUMNS: Final = ("x_ExchangeRate", "x_ExchangeRateDate", "x_ExchangeRateSource")
DECIMALS = frozenset({*COLUMNS[1:], "x_ExchangeRate"})
PLACES = 12


@dataclass(frozen=True, slots=True)
class Exchanged:
    """What a charge costs in the currency that it is billed in. Without a rate: a difference at several rates."""

    currency: str
    amount: Decimal
    rate: Decimal | None = None
    day: date | None = None
    source: str = ""


class Shares:
    """Splits what is converted into parts whose sums are rounded, so that all parts together are the rounded whole."""

    def __init__(self) -> None:
        self._sums: dict[object, tuple[Decimal, Decimal]] = {}

    def next(self, key: object, amount: Decimal, rate: Decimal) -> Decimal:
        """The next part of what `key` names."""
        before, given = self._sums.get(key, (Decimal(0), Decimal(0)))
        whole = converted(before + amount, rate)
        self._sums[key] = before + amount, whole
        return whole - given


def exchange(amount: Decimal, currency: str, rate: Rate, into: str, shares: Shares, key: object) -> Exchanged:
    """A part of a key's charges at the rate of its day."""
    part = shares.next((key, currency, rate), amount, rate.rate)
    return Exchanged(into, part, rate.rate, rate.day, rate.source)


def in_both(rows: Iterator[dict[str, str]], currency: str, exchanged: Exchanged) -> Iterator[dict[str, str]]:
    """The rows of a charge, billed in the other currency. Their costs add up to its amount; the last row has what is left."""
    found = list(rows)
    shares, left = Shares(), exchanged.amount
    for number, row in enumerate(found, start=1):
        cost = Decimal(row["EffectiveCost"])
        part = left
        if number < len(found) and exchanged.rate is not None:
            part = shares.next("rows", cost, exchanged.rate)
        left -= part
        yield row | _costs(part, row) | _unit_prices(row, exchanged.rate) | _before(row, currency, exchanged)


def in_one(row: Mapping[str, str]) -> dict[str, str]:
    """A row that was not converted, in a file in which others were."""
    return {**row, "PricingCurrency": row["BillingCurrency"], "PricingCurrencyEffectiveCost": row["EffectiveCost"]} | {
        f"PricingCurrency{name}": row[name] for name in UNIT_PRICES if row.get(name)
    }


def _before(row: Mapping[str, str], currency: str, exchanged: Exchanged) -> dict[str, str]:
    found = {
        "BillingCurrency": exchanged.currency,
        "PricingCurrency": currency,
        "PricingCurrencyEffectiveCost": row["EffectiveCost"],
        "x_ExchangeRateSource": exchanged.source,
    }
    found |= {f"PricingCurrency{name}": row[name] for name in UNIT_PRICES if row.get(name)}
    if exchanged.rate is not None and exchanged.day is not None:
        found |= {"x_ExchangeRate": f"{exchanged.rate:.18f}", "x_ExchangeRateDate": f"{exchanged.day}"}
    return found


def _costs(amount: Decimal, row: Mapping[str, str]) -> dict[str, str]:
    """Each kind of cost; one that is zero beside another remains so."""
    is_whole = not Decimal(row["EffectiveCost"])
    return {name: _text(amount if is_whole or Decimal(row[name]) else Decimal(0)) for name in COSTS}


def _unit_prices(row: Mapping[str, str], rate: Decimal | None) -> dict[str, str]:
    if rate is None:
        return {}
    return {name: _text(converted(Decimal(row[name]), rate)) for name in UNIT_PRICES if row.get(name)}


def _text(amount: Decimal) -> str:
    return format(amount, f".{PLACES}f")
