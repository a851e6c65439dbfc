"""What the tests of currencies share."""

from datetime import date
from decimal import Decimal

from billing.operations.conversion import convert_days
from billing.operations.exchange import (
    NewRate,
    import_reference_rates,
    set_billing_currency,
    set_exchange_rate,
)
from tenancy.queries import SYSTEM

from .ledgers import settle_pending_checks

OCTOBER, NOVEMBER = date(2026, 10, 1), date(2026, 11, 1)
RATES = """Date,USD,JPY,CHF,KWD,
2026-10-06,1.1050,171.25,0.9312,N/A,
2026-10-05,1.1000,170.10,0.9300,0.3390,
2026-10-02,1.1200,169.99,0.9250,0.3400,
"""


def billed_in(currency, month=OCTOBER, path="acme"):
    """Sets the currency of the organisation's documents."""
    row = set_billing_currency(SYSTEM, path, month, currency)
    settle_pending_checks()
    return row


def imported(text=RATES, path="acme", source="ECB", **more):
    """Imports a file, converts what waits, and does the checks of commit."""
    found = import_reference_rates(SYSTEM, path, text, source, **more)
    convert_days()
    settle_pending_checks()
    return found


def override(rate, base="USD", quote="EUR", start=date(2026, 10, 1), until=date(2026, 11, 1), path="acme"):
    """Sets a rate by hand, converts what waits, and does the checks of commit."""
    row = set_exchange_rate(SYSTEM, NewRate(path, base, quote, Decimal(rate), start, until, "agreed"))
    convert_days()
    settle_pending_checks()
    return row
