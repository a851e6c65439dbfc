"""Reads reference rates of exchange in the format of the European Central Bank (`eurofxref-hist.csv`).

The first column is the day, each other one a currency; a number says what one euro was worth on that day. `N/A`: no rate.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from decimal import Decimal

BASE = "EUR"
DAYS_VALID = 7
"""A reference rate counts from its day until the next one is published, at most so long: weekends and holidays are shorter."""
MOST_CHARACTERS = 2_000_000
"""Of a file that people send: all days since 1999 have fewer."""
RATE = re.compile(r"[0-9]{1,12}(\.[0-9]{1,12})?")
CODE = re.compile(r"[A-Z]{3}")
NOTHING = frozenset({"", "N/A"})


@dataclass(frozen=True, slots=True)
class ReferenceRate:
    """One euro is worth `rate` of a currency on a day."""

    day: date
    currency: str
    rate: Decimal


class NotReferenceRates(ValueError):
    """The text is not in the format. The argument says where, and what is wrong."""


def read_reference_rates(text: str, since: date | None = None) -> Iterator[ReferenceRate]:
    """The rates of a file from a day on, in its order. Raises NotReferenceRates."""
    rows = (line.split(",") for line in text.removeprefix("\ufeff").splitlines())
    head = [name.strip() for name in next(rows, [])]
    currencies = head[1:-1] if head[-1:] == [""] else head[1:]
    if head[:1] != ["Date"] or not currencies or len(set(currencies)) != len(currencies):
        raise NotReferenceRates("line 1: the columns are Date and one for each currency")
    if wrong := [name for name in currencies if not CODE.fullmatch(name)]:
        raise NotReferenceRates(f"line 1: {wrong[0][:20]!r} is no currency")
    seen: set[date] = set()
    for number, row in enumerate(rows, start=2):
        if not any(row):
            continue
        day = _day(row[0], number)
        if day in seen or len(row) not in {len(head), len(currencies) + 1}:
            raise NotReferenceRates(f"line {number}: the day is there twice, or columns are missing")
        seen.add(day)
        if since is None or day >= since:
            for currency, cell in zip(currencies, row[1:], strict=False):
                if (found := cell.strip()) not in NOTHING:
                    yield ReferenceRate(day, currency, _rate(found, currency, number))


def _day(text: str, number: int) -> date:
    try:
        return date.fromisoformat(text.strip())
    except ValueError:
        raise NotReferenceRates(f"line {number}: {text[:20]!r} is no day such as 2026-10-01") from None


def _rate(text: str, currency: str, number: int) -> Decimal:
    if not RATE.fullmatch(text) or not Decimal(text):
        raise NotReferenceRates(f"line {number}: {text[:20]!r} is no rate of {currency}")
    return Decimal(text)
