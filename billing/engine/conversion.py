"""Converts what tenants are charged into the currency that their organisation is billed in: a pure function of an entry and rates.

A conversion is an entry of its own beside the converted one. Each tenant's charge leaves its currency and enters the other one;
the account `exchange` has the opposite. Amounts are rounded once, to 10**-12, half away from zero, so that the conversion of a
reversal is the exact opposite of the conversion of what it reverses. Invoices round when they make lines.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from fractions import Fraction
from hashlib import sha256

from .ledger import SCALE, Entry, Line, Priced, money, units

CONVERSION = "conversion"
EXPENSE, CONVERTED = "tenant_expense:", "tenant_converted:"


@dataclass(frozen=True, slots=True)
class Rate:
    """One unit of a currency is worth `rate` of the other one. `day`: of the older rate that it was made from."""

    rate: Decimal
    day: date
    source: str


def foreign_currencies(entry: Entry, currency: str) -> frozenset[str]:
    """The other currencies in which an entry charges tenants."""
    return frozenset(line.currency for line in _charges(entry) if line.currency != currency)


def conversion_of(entry: Entry, currency: str, rates: Mapping[str, Rate], number: int) -> Entry:
    """The conversion of all its foreign charges, which is the entry's `number`-th. KeyError if a rate is missing."""
    lines: list[Line] = []
    exchange: Counter[str] = Counter()
    for line in _charges(entry):
        if line.currency == currency:
            continue
        rate, account = rates[line.currency], CONVERTED + line.account.removeprefix(EXPENSE)
        amount = converted(line.amount, rate.rate)
        less = None if line.quantity is None else -line.quantity
        priced = Priced(line.amount, line.currency, rate.rate, rate.day, rate.source)
        lines.append(Line(account, line.currency, -line.amount, less))
        if amount:
            lines.append(Line(account, currency, amount, line.quantity, priced))
        exchange[line.currency] += units(line.amount)
        exchange[currency] -= units(amount)
    lines += [Line("exchange", code, money(amount)) for code, amount in sorted(exchange.items()) if amount]
    name = sha256(entry.key.encode()).hexdigest()[:32]
    return Entry(
        f"{CONVERSION}/{name}/{number}", CONVERSION, entry.organisation_id, entry.charge_day, tuple(lines), entry.day,
        converts=entry.key,
    )  # fmt: skip


def converted(amount: Decimal, rate: Decimal) -> Decimal:
    """An amount at a rate, to 10**-12, half away from zero.

    >>> converted(Decimal("-0.000000000001"), Decimal("0.5"))
    Decimal('-1E-12')
    """
    exact = Fraction(amount) * Fraction(rate) * SCALE
    whole = (2 * abs(exact.numerator) + exact.denominator) // (2 * exact.denominator)
    return money(whole if exact >= 0 else -whole)


def _charges(entry: Entry) -> list[Line]:
    return [line for line in entry.lines if line.account.startswith(EXPENSE)]
