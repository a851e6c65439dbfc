"""Invoices, statements and credit notes as values: lines in the minor unit that add up, tax, and the canonical document.

All of it is a pure function of the charges: the same charges give the same bytes.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from hashlib import sha256
from typing import Any, Literal, TypeAlias

from .currencies import minor_digits
from .shares import shown_parts

Kind: TypeAlias = Literal["invoice", "statement", "credit_note"]
LineKind: TypeAlias = Literal["charge", "correction", "adjustment", "credit"]
SCHEMA = "switchyard.invoice/1"
PREFIXES: Mapping[Kind, str] = {"invoice": "INV", "statement": "STM", "credit_note": "CN"}
NUMBER_DIGITS = 6
QUANTITY_AN_HOUR = 3_600_000_000
"""Of a quantity, which is in thousandths of a unit times milliseconds."""
PLACES = 6
"""Of hours and of unit prices on a document."""


@dataclass(frozen=True, slots=True)
class Charge:
    """What one tenant owes for one SKU (cluster and flavor) of one month of use. Without a flavor it is an adjustment.

    `quantity`: in thousandths of a unit times milliseconds; None if the ledger does not know it.
    """

    tenant: str
    cluster: str
    flavor: str
    month: date
    unit: str
    quantity: int | None
    amount: Decimal


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a document. `amount` and `tax` are in the minor unit, `exact` is what the ledger says.

    `credits`: the number of the invoice's line that a line of a credit note takes back.
    """

    number: int
    kind: LineKind
    charge: Charge
    exact: Decimal
    amount: Decimal
    tax: Decimal
    credits: int | None = None


@dataclass(frozen=True, slots=True)
class Terms:
    """What an organisation sets for its documents. `tax_rate` in percent; None: no tax."""

    issuer: str = ""
    tax_rate: Decimal | None = None
    tax_name: str = ""
    payment_days: int = 30
    cost_centre: str = ""
    gl_account: str = ""
    remark: str = ""


@dataclass(frozen=True, slots=True)
class Heading:
    """Which document it is: for whom, of which close of which month, by whom and when."""

    kind: Kind
    sequence: int
    organisation: str
    tenant: str
    month: date
    revision: int
    checksum: str
    edition: int
    currency: str
    issued_at: datetime
    terms: Terms = field(default_factory=Terms)
    reference: str = ""
    reason: str = ""

    @property
    def number(self) -> str:
        """Such as INV-000001."""
        return f"{PREFIXES[self.kind]}-{self.sequence:0{NUMBER_DIGITS}d}"

    @property
    def due_on(self) -> date | None:
        """The day until which an invoice is to be paid; nothing is paid for the other kinds."""
        return self.issued_at.date() + timedelta(days=self.terms.payment_days) if self.kind == "invoice" else None


@dataclass(frozen=True, slots=True)
class Sums:
    """Of a document's lines."""

    exact: Decimal
    subtotal: Decimal
    tax: Decimal

    @property
    def total(self) -> Decimal:
        """What is to be paid."""
        return self.subtotal + self.tax


@dataclass(frozen=True, slots=True)
class Invoiced:
    """A line of an invoice with what earlier credit notes took back of it."""

    line: Line
    credited: Decimal
    credited_tax: Decimal

    @property
    def rest(self) -> Decimal:
        """What can still be credited."""
        return self.line.amount - self.credited


class NotCreditable(ValueError):
    """A credit that is more than what was invoiced, of the other sign, or not in the minor unit. Arguments: the line's
    number, and what is left of it.
    """


def charged_lines(charges: Sequence[Charge], month: date, currency: str, tax_rate: Decimal | None) -> tuple[Line, ...]:
    """The lines of an invoice of this month, in one order. Use of an earlier month is a correction.

    Amounts and taxes are rounded by largest remainder, so that they add up to the rounded totals.
    """
    ordered = sorted(
        (charge for charge in charges if charge.amount),
        key=lambda one: (one.month != month, one.month, one.tenant, one.cluster, one.flavor),
    )
    digits = minor_digits(currency)
    amounts, _ = shown_parts([Fraction(one.amount) for one in ordered], digits)
    taxes, _ = shown_parts([Fraction(amount) * Fraction(tax_rate or 0) / 100 for amount in amounts], digits)
    return tuple(
        Line(number, _kind(charge, month), charge, charge.amount, amount, tax)
        for number, (charge, amount, tax) in enumerate(zip(ordered, amounts, taxes, strict=True), start=1)
    )


def credit_lines(invoiced: Sequence[Invoiced], wanted: Mapping[int, Decimal] | None, currency: str) -> tuple[Line, ...]:
    """The lines of a credit note: for each number of a line, how much to take back; None: all that is left.

    A line's tax is credited in proportion: in full once its amount is. Raises NotCreditable.
    """
    by_number = {one.line.number: one for one in invoiced}
    if wanted is None:
        wanted = {number: one.rest for number, one in by_number.items() if one.rest}
    lines: list[Line] = []
    for number, amount in sorted(wanted.items()):
        one = by_number.get(number)
        rest = one.rest if one else Decimal(0)
        is_minor = _rounded(Fraction(amount), minor_digits(currency)) == amount
        if one is None or not is_minor or amount * rest <= 0 or abs(amount) > abs(rest):
            raise NotCreditable(number, rest)
        taxed = _tax_until(one, one.credited + amount, minor_digits(currency)) - one.credited_tax
        lines.append(Line(len(lines) + 1, "credit", one.line.charge, -amount, -amount, -taxed, credits=number))
    return tuple(lines)


def sums_of(lines: Sequence[Line]) -> Sums:
    """The sums of a document."""
    zero = Decimal(0)
    return Sums(
        sum((line.exact for line in lines), zero),
        sum((line.amount for line in lines), zero),
        sum((line.tax for line in lines), zero),
    )


def document(heading: Heading, lines: Sequence[Line]) -> str:
    """The document as canonical JSON: sorted names, no spaces, money as text."""
    terms, sums, digits = heading.terms, sums_of(lines), minor_digits(heading.currency)
    content = {
        "schema": SCHEMA,
        "kind": heading.kind,
        "number": heading.number,
        "issuer": terms.issuer or heading.organisation,
        "organisation": heading.organisation,
        "tenant": heading.tenant,
        "month": f"{heading.month:%Y-%m}",
        "revision": heading.revision,
        "checksum": heading.checksum,
        "edition": heading.edition,
        "currency": heading.currency,
        "issued_at": heading.issued_at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "due_on": heading.due_on and heading.due_on.isoformat(),
        "payment_days": terms.payment_days if heading.due_on else None,
        "cost_centre": terms.cost_centre,
        "gl_account": terms.gl_account,
        "remark": terms.remark,
        "reference": heading.reference or None,
        "reason": heading.reason,
        "lines": [_shown(line, digits) for line in lines],
        "exact": f"{sums.exact:.12f}",
        "subtotal": f"{sums.subtotal:.{digits}f}",
        "tax": {
            "name": terms.tax_name if terms.tax_rate else "",
            "rate": None if not terms.tax_rate else f"{terms.tax_rate:f}",
            "amount": f"{sums.tax:.{digits}f}",
        },
        "total": f"{sums.total:.{digits}f}",
    }
    return json.dumps(content, ensure_ascii=False, sort_keys=True, separators=(",", ":"))


def digest_of(text: str) -> str:
    """SHA-256 of a document."""
    return sha256(text.encode()).hexdigest()


def hours(quantity: int) -> Decimal:
    """Unit-hours, as a document shows them."""
    return _rounded(Fraction(quantity, QUANTITY_AN_HOUR), PLACES)


def _shown(line: Line, digits: int) -> dict[str, Any]:
    charge = line.charge
    shown: dict[str, Any] = {
        "number": line.number,
        "kind": line.kind,
        "tenant": charge.tenant,
        "cluster": charge.cluster,
        "flavor": charge.flavor,
        "month": f"{charge.month:%Y-%m}",
        "exact": f"{line.exact:.12f}",
        "amount": f"{line.amount:.{digits}f}",
        "tax": f"{line.tax:.{digits}f}",
    }
    if line.credits is not None:
        return shown | {"credits": line.credits}
    is_known = bool(charge.quantity) and bool(charge.flavor)
    quantity = charge.quantity or 0
    price = _rounded(Fraction(line.exact) * QUANTITY_AN_HOUR / quantity, PLACES) if is_known else None
    return shown | {
        "unit": charge.unit if charge.flavor else None,
        "quantity": f"{hours(quantity):f}" if is_known else None,
        "unit_price": None if price is None else f"{price:f}",
    }


def _kind(charge: Charge, month: date) -> LineKind:
    if charge.month != month:
        return "correction"
    return "charge" if charge.flavor else "adjustment"


def _tax_until(one: Invoiced, credited: Decimal, digits: int) -> Decimal:
    """The part of a line's tax that belongs to the first `credited` of its amount."""
    return _rounded(Fraction(one.line.tax) * Fraction(credited) / Fraction(one.line.amount), digits)


def _rounded(value: Fraction, places: int) -> Decimal:
    return Decimal(f"{round(value * 10**places)}e-{places}")
