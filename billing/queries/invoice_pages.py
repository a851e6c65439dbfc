"""What the pages of invoices show, as frozen values."""

from dataclasses import dataclass
from datetime import date, datetime
from typing import Any
from uuid import UUID

from billing.engine.currencies import minor_digits
from billing.models import Invoice, InvoiceTerms, LedgerPeriod
from tenancy.engine.roles import Permission
from tenancy.queries import Actor, permissions_at, visible_tenants

from .invoices import content_of, credited_of, invoice_by_id, visible_invoices

MOST_INVOICES = 200
MOST_MONTHS = 36
MOST_TENANTS = 1000


@dataclass(frozen=True, slots=True)
class InvoiceRow:
    """A document in a list."""

    id: UUID
    number: str
    kind: str
    tenant: str
    month: date
    total: str
    currency: str
    state: str
    issued_at: datetime
    issued_by: str


@dataclass(frozen=True, slots=True)
class InvoiceDetail:
    """One document as it was issued, with its credit notes. `may_credit`: the actor may take back what is left."""

    row: InvoiceRow
    content: dict[str, Any]
    digest: str
    credited: str
    reference: InvoiceRow | None
    credit_notes: tuple[InvoiceRow, ...]
    may_credit: bool


def invoice_rows(actor: Actor) -> tuple[InvoiceRow, ...]:
    """The newest documents of the tenants that the actor may see."""
    rows = visible_invoices(actor).defer("document").order_by("-issued_at", "-sequence")[:MOST_INVOICES]
    return tuple(_row(one) for one in rows)


def invoice_detail(actor: Actor, invoice_id: UUID) -> InvoiceDetail:
    """One document. Raises NotFound."""
    invoice = invoice_by_id(actor, invoice_id)
    is_invoice = invoice.kind == Invoice.Kind.INVOICE
    row = _row(invoice)
    notes = visible_invoices(actor).filter(reference=invoice).defer("document").order_by("sequence")
    credited = f"{credited_of(invoice)[0]:.{minor_digits(invoice.currency)}f}" if is_invoice else ""
    may_issue = Permission.ISSUE_INVOICE in permissions_at(actor, invoice.tenant)
    return InvoiceDetail(
        row=row,
        content=content_of(invoice),
        digest=invoice.digest,
        credited=credited if row.state != "issued" else "",
        reference=_row(invoice.reference) if invoice.reference else None,
        credit_notes=tuple(_row(one) for one in notes),
        may_credit=is_invoice and may_issue and row.state != "credited",
    )


def tenants_to_invoice(actor: Actor) -> tuple[str, ...]:
    """The paths of the tenants for which the actor may issue documents."""
    rows = visible_tenants(actor, Permission.ISSUE_INVOICE).order_by("path").values_list("path", flat=True)
    return tuple(rows[:MOST_TENANTS])


def months_to_invoice(actor: Actor) -> tuple[str, ...]:
    """The closed months of the organisations in which the actor may issue documents, the newest first."""
    roots = {path.partition("/")[0] for path in tenants_to_invoice(actor)}
    rows = LedgerPeriod.objects.filter(organisation__path__in=roots, state=LedgerPeriod.State.CLOSED)
    months = rows.order_by("-month").values_list("month", flat=True).distinct()[:MOST_MONTHS]
    return tuple(f"{month:%Y-%m}" for month in months)


def terms_row(actor: Actor, tenant_path: str) -> InvoiceTerms | None:
    """The terms that are set at a tenant for which the actor may set them."""
    among = visible_tenants(actor, Permission.ISSUE_INVOICE)
    return InvoiceTerms.objects.filter(tenant__in=among, tenant__path=tenant_path).select_related("tenant").first()


def _row(invoice: Invoice) -> InvoiceRow:
    return InvoiceRow(
        id=invoice.id,
        number=invoice.number,
        kind=invoice.get_kind_display().capitalize(),
        tenant=invoice.tenant_path,
        month=invoice.period.month,
        total=f"{invoice.total:.{minor_digits(invoice.currency)}f}",
        currency=invoice.currency,
        state=_state(invoice),
        issued_at=invoice.issued_at,
        issued_by=invoice.issued_by_name,
    )


def _state(invoice: Invoice) -> str:
    """`issued`, or how far an invoice is credited."""
    if invoice.kind != Invoice.Kind.INVOICE:
        return "issued"
    credited, in_full = credited_of(invoice)
    if in_full:
        return "credited"
    return "partly_credited" if credited else "issued"
