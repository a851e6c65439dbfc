"""`manage.py seed_demo_books`: closes the demo's first months and issues their documents, one of which is disputed. It runs after
the history of the nodes begins with the past jobs (`devtools.demo_history`). Run again, it changes nothing.
"""

from datetime import date
from decimal import Decimal
from typing import Any

from billing.engine.invoices import Terms
from billing.models import Invoice, LedgerPeriod
from billing.operations.disputes import answer_remark, open_remark
from billing.operations.invoices import WantedInvoice, issue_invoice, put_terms
from billing.operations.periods import begin_closing, keep_ledger
from federation.management.demo import DOCUMENTS, ORGANISATION, REMARKS
from foundation.commands import GatewayCommand
from tenancy.models import User
from tenancy.queries import Actor, actor_for

MONTHS_LEFT_OPEN = 2
"""The current month, and the one before it, which people close on its page."""
TERMS = Terms(issuer="Acme Computing", tax_rate=Decimal(19), tax_name="VAT", cost_centre="CC-4100", gl_account="6640")


class Command(GatewayCommand):
    help = "Closes the demo's first months and issues their documents, one of which is disputed."

    def handle(self, *_: Any, **__: Any) -> None:
        finance = _person("lena")
        months = _close(finance)
        if months and not Invoice.objects.exists():
            put_terms(finance, ORGANISATION, TERMS)
            for path in DOCUMENTS:
                issue_invoice(finance, WantedInvoice(f"{ORGANISATION}/{path}".rstrip("/"), months[-1]))
            _remark(finance)
        self.stdout.write(f"closed months: {len(months)}, documents: {Invoice.objects.count()}")


def _close(finance: Actor) -> list[date]:
    """The months that are closed now, oldest first."""
    keep_ledger()
    for period in list(LedgerPeriod.objects.order_by("month"))[:-MONTHS_LEFT_OPEN]:
        begin_closing(finance, period.id)
        keep_ledger()
    return list(
        LedgerPeriod.objects.filter(state=LedgerPeriod.State.CLOSED).order_by("month").values_list("month", flat=True)
    )


def _remark(finance: Actor) -> None:
    for who, path, kind, text, answer in REMARKS:
        document = Invoice.objects.get(tenant__path=f"{ORGANISATION}/{path}")
        remark = open_remark(_person(who), document.id, 1, kind, text)
        if answer:
            answer_remark(finance, remark.id, answer)


def _person(name: str) -> Actor:
    return actor_for(User.objects.get(email=f"{name}@{ORGANISATION}.example"))
