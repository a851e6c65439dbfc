"""What accountants post beside usage: adjustments of the world's month."""

from datetime import date
from decimal import Decimal

from django.db import transaction

from billing.engine.ledger import Entry, Line
from billing.models import LedgerEntry
from billing.operations import posting
from foundation.transactions import retried
from tenancy.models import Tenant

MONTH = date(2026, 6, 1)
"""The month of the world."""


@retried
def adjust(key: str, amount: Decimal) -> None:
    """Posts an adjustment of the month under this key, or offers another content for it."""
    organisation = Tenant.objects.get(path="acme").id
    lines = (Line("rounding", "USD", amount), Line("adjustments", "USD", -amount))
    with transaction.atomic():
        posting.post(Entry(key, "adjustment", organisation, MONTH, lines, reason="agreed"))


def key_of_a_day() -> str:
    """The key of a day of usage; empty if none is posted."""
    return LedgerEntry.objects.filter(kind="usage").order_by("id").values_list("key", flat=True).first() or ""
