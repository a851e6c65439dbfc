"""What the tests of reconciliation share."""

from billing.models import LedgerPeriod
from billing.operations import periods, posting
from billing.operations.reconciliation import import_provider_invoices
from billing.queries.periods import checklist
from tenancy.queries import SYSTEM

from .ledgers import settle_pending_checks
from .test_idle import MONTH

HEAD = "cluster,month,reference,amount,currency,note\n"


def billed(*rows, path="acme", actor=SYSTEM):
    """Imports lines such as `north,2026-10,INV-1,1860,USD,`."""
    return import_provider_invoices(actor, path, HEAD + "\n".join(rows))


def period():
    return LedgerPeriod.objects.get(month=MONTH, organisation__path="acme")


def reconciled_item():
    """The item of the checklist, once all is posted."""
    posting.post_days()
    (item,) = [one for one in checklist(period()) if one.name == "reconciled"]
    return item


def closes():
    """Whether the month, which is closing, is closed now."""
    is_closed = periods.finish_closing(period().id)
    settle_pending_checks()
    return is_closed
