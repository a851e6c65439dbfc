"""Parsing of this room's form input: numbers, currencies, days."""

from datetime import UTC, date, datetime
from decimal import Decimal, InvalidOperation

from foundation.problems import FieldError, Invalid

PLACES = 6
CURRENCY_LENGTH = 3
YEARS = range(1970, 9999)
"""With months before and after each."""


def decimal_of(text: str) -> Decimal:
    """The number that the user typed; NaN if it is not a number."""
    try:
        return Decimal(text.strip())
    except InvalidOperation:
        return Decimal("NaN")


def fault_of_currency(text: str) -> str:
    """What is wrong with a currency code; empty if it is valid."""
    is_good = len(text) == CURRENCY_LENGTH and text.isascii() and text.isalpha()
    return "" if is_good else "three letters such as USD"


def midnight_of(text: str, errors: list[FieldError]) -> datetime | None:
    """Midnight UTC of the day that the user typed; empty means now."""
    if not text.strip():
        return None
    try:
        return datetime.strptime(text.strip(), "%Y-%m-%d").replace(tzinfo=UTC)
    except ValueError:
        errors.append(FieldError("effective_from", "bad_format", "a day such as 2026-12-01"))
        return None


def month_of(text: str) -> date:
    """The first day of the month that the user chose. Raises Invalid."""
    try:
        found = datetime.strptime(text.strip(), "%Y-%m").replace(tzinfo=UTC).date()
    except ValueError:
        found = date.min
    if found.year not in YEARS:
        raise Invalid.field("month", "not_a_month", "write a month such as 2026-12")
    return found


def day_of(field: str, text: str) -> date:
    """The day that the user chose. Raises Invalid."""
    try:
        return date.fromisoformat(text.strip())
    except ValueError:
        raise Invalid.field(field, "not_a_day", "choose a day such as 2026-12-01") from None
