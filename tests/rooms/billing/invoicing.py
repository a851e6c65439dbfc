"""What the tests of invoices share."""

from datetime import date

from billing.models import Invoice, LedgerPeriod
from billing.operations import periods, posting, record_runs
from billing.operations.invoices import WantedInvoice, issue_invoice
from tenancy.queries import SYSTEM
from tests.builders import make_run

from .ledgers import at, settle_pending_checks

SEPTEMBER, OCTOBER = date(2026, 9, 1), date(2026, 10, 1)


def closed(month=10):
    """Posts all, and closes the month of every organisation."""
    posting.post_days()
    for period in LedgerPeriod.objects.filter(month=at(1, month=month).date()):
        periods.begin_closing(SYSTEM, period.id)
        assert periods.finish_closing(period.id)


def closed_month(cluster, month=10):
    """A month (October) with four hours of acme/one and two of acme/two, closed."""
    record_runs([
        make_run(cluster, "acme/one", started_at=at(5, 10, month), until_at=at(5, 14, month)),
        make_run(cluster, "acme/two", started_at=at(6, 10, month), until_at=at(6, 12, month)),
    ])  # fmt: skip
    closed(month)
    return LedgerPeriod.objects.get(organisation__path="acme")


def issued(path="acme", month=OCTOBER, actor=SYSTEM, **more) -> Invoice:
    """A document, with the checks of its commit done."""
    invoice = issue_invoice(actor, WantedInvoice(path, month, **more))
    settle_pending_checks()
    return invoice
