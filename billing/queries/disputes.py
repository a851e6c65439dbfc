"""Remarks on lines of documents, and disputes of them."""

from dataclasses import dataclass
from datetime import date
from uuid import UUID

from django.db.models import QuerySet

from billing.models import Invoice, InvoiceRemark, LedgerEntry
from foundation.problems import NotFound
from tenancy.engine.roles import Permission
from tenancy.queries import Actor, NotAllowedHere, permissions_at

from .invoices import visible_invoices

State = InvoiceRemark.State


@dataclass(frozen=True, slots=True)
class RemarkRow:
    """A remark as the pages show it. `may_answer`, `may_resolve`: what the actor may do next."""

    remark: InvoiceRemark
    may_answer: bool
    may_resolve: bool


def visible_remarks(actor: Actor, *, state: str = "") -> QuerySet[InvoiceRemark]:
    """The remarks on documents that the actor may see; in one state, if given."""
    rows = InvoiceRemark.objects.filter(line__invoice__in=visible_invoices(actor).order_by().values("id"))
    rows = rows.select_related("line__invoice", "organisation")
    return rows.filter(state=state) if state else rows


def remark_by_id(actor: Actor, remark_id: UUID, *, may_answer: bool = False) -> InvoiceRemark:
    """The remark. NotFound if the actor may not see it; with `may_answer`, NotAllowedHere if they may only see it."""
    remark = visible_remarks(actor).filter(id=remark_id).first()
    if remark is None:
        raise NotFound
    if may_answer and Permission.ISSUE_INVOICE not in permissions_at(actor, remark.organisation):
        raise NotAllowedHere(remark.organisation, Permission.ISSUE_INVOICE)
    return remark


def remarks_on(actor: Actor, invoice: Invoice) -> tuple[RemarkRow, ...]:
    """The remarks on a document that the actor may see, by line and time."""
    may = Permission.ISSUE_INVOICE in permissions_at(actor, invoice.organisation)
    rows = (
        InvoiceRemark.objects.filter(line__invoice=invoice).select_related("line").order_by("line__number", "opened_at")
    )
    return tuple(RemarkRow(row, may and row.state == State.OPEN, may and row.state == State.ANSWERED) for row in rows)


def unresolved_disputes(organisation_id: UUID, until: date) -> QuerySet[InvoiceRemark]:
    """The disputes about documents of a month, or of an earlier one, that are not resolved."""
    return InvoiceRemark.objects.filter(
        organisation=organisation_id, kind=InvoiceRemark.Kind.DISPUTE, line__invoice__period__month__lte=until
    ).exclude(state=State.RESOLVED)


def entry_keys(remark: InvoiceRemark) -> list[str]:
    """The keys of the ledger's entries that the line was made of."""
    return list(LedgerEntry.objects.filter(id__in=remark.entries).order_by("key").values_list("key", flat=True))
