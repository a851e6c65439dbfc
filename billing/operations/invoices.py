"""Issues invoices, statements and credit notes. A document and its number are written in one transaction."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from decimal import Decimal
from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.models import Max
from django.db.models.functions import Now

from billing import locks
from billing.engine.invoices import (
    Heading,
    Kind,
    Line,
    NotCreditable,
    Terms,
    charged_lines,
    credit_lines,
    digest_of,
    document,
    sums_of,
)
from billing.models import Invoice, InvoiceLine, InvoiceTerms, LedgerPeriod
from billing.models.invoices import MOST_PAYMENT_DAYS, MOST_TAX_RATE
from billing.queries.invoices import charges_of, content_of, currencies_of, invoice_by_id, invoiced_lines, terms_of
from foundation.clock import database_now
from foundation.problems import Conflict, FieldError, Invalid
from foundation.rows import insert_rows
from foundation.transactions import retried
from tenancy.engine.roles import Permission
from tenancy.models import Tenant
from tenancy.operations import record_audit
from tenancy.queries import Actor, tenant_by_path

MOST_LINES = 2000
"""Of one document; a larger organisation issues statements of its tenants."""
TAX_PLACES = Decimal("0.001")


@dataclass(frozen=True, slots=True)
class WantedInvoice:
    """The document of a tenant's month. `currency` may be empty if the month charges in one only."""

    tenant_path: str
    month: date
    currency: str = ""
    remark: str = ""


@dataclass(frozen=True, slots=True)
class _Place:
    """The rows that a document and its lines refer to: clusters by number of the line; of a credit note, its invoice and
    that one's lines by number.
    """

    tenant: Tenant
    period: LedgerPeriod
    clusters: Mapping[int, UUID | None]
    reference: Invoice | None = None
    credited: Mapping[int, InvoiceLine] = field(default_factory=dict)


@retried
def issue_invoice(actor: Actor, wanted: WantedInvoice) -> Invoice:
    """The invoice of an organisation's closed month, or the statement of a tenant below it.

    Raises NotFound, NotAllowedHere, Invalid (`currency`), Conflict (`period_not_closed`, `already_invoiced`,
    `nothing_to_invoice`, `too_many_lines`).
    """
    with transaction.atomic():
        tenant = tenant_by_path(actor, wanted.tenant_path, Permission.ISSUE_INVOICE)
        organisation = tenant if tenant.parent_id is None else Tenant.objects.get(path=tenant.path.partition("/")[0])
        period = _closed_period(organisation, wanted.month)
        locks.number_invoices(organisation.id)
        is_invoice = tenant.id == organisation.id
        kind: Kind = "invoice" if is_invoice else "statement"
        currency = _currency(period, wanted.currency, "" if is_invoice else tenant.path)
        edition = _next_edition(period, tenant, currency)
        terms = terms_of(tenant)
        heading = Heading(
            kind, _next_number(organisation, kind), organisation.path, tenant.path, period.month, period.revision,
            period.checksum, edition, currency, database_now(),
            replace(terms, remark=wanted.remark or terms.remark, tax_rate=terms.tax_rate if is_invoice else None),
        )  # fmt: skip
        charged = charges_of(period.id, currency, "" if is_invoice else tenant.path)
        lines = charged_lines([one.charge for one in charged], period.month, currency, heading.terms.tax_rate)
        clusters = {one.charge: one.cluster_id for one in charged}
        place = _Place(tenant, period, {line.number: clusters[line.charge] for line in lines})
        invoice = _write(actor, heading, lines, place)
    return invoice_by_id(actor, invoice.id)


@retried
def credit_invoice(actor: Actor, invoice_id: UUID, reason: str, amounts: Mapping[int, Decimal] | None) -> Invoice:
    """The credit note that takes back these amounts before tax, by number of the invoice's line; None: all that is left.

    Raises NotFound, NotAllowedHere, Conflict (`not_an_invoice`, `nothing_to_credit`), Invalid (`more_than_invoiced`).
    """
    with transaction.atomic():
        invoice = invoice_by_id(actor, invoice_id, may_issue=True)
        if invoice.kind != Invoice.Kind.INVOICE:
            raise Conflict("Only an invoice can be credited.", code="not_an_invoice")
        locks.number_invoices(invoice.organisation_id)
        invoiced = invoiced_lines(invoice)
        try:
            lines = credit_lines(invoiced, amounts, invoice.currency)
        except NotCreditable as error:
            number, rest = error.args
            left = f"of line {number}, {rest.normalize():f} can be credited, in the currency's minor unit"
            raise Invalid.field("lines", "more_than_invoiced", left) from error
        if not lines:
            raise Conflict("Nothing is left to credit.", code="nothing_to_credit")
        was = content_of(invoice)
        kind: Kind = "credit_note"
        terms = Terms(was["issuer"], invoice.tax_rate, was["tax"]["name"], 0, was["cost_centre"], was["gl_account"], "")
        heading = Heading(
            kind, _next_number(invoice.organisation, kind), invoice.organisation.path, invoice.tenant_path,
            invoice.period.month, invoice.revision, was["checksum"], invoice.edition, invoice.currency, database_now(), terms,
            invoice.number, reason,
        )  # fmt: skip
        rows = {row.number: row for row in InvoiceLine.objects.filter(invoice=invoice)}
        clusters = {line.number: rows[line.credits or 0].cluster_id for line in lines}
        note = _write(actor, heading, lines, _Place(invoice.tenant, invoice.period, clusters, invoice, rows))
    return invoice_by_id(actor, note.id)


def put_terms(actor: Actor, tenant_path: str, terms: Terms) -> InvoiceTerms:
    """The terms of a tenant's future documents, replaced. Raises NotFound, NotAllowedHere, Invalid."""
    errors = []
    if terms.tax_rate is not None and not (
        0 < terms.tax_rate <= MOST_TAX_RATE and terms.tax_rate == terms.tax_rate.quantize(TAX_PLACES)
    ):
        errors.append(FieldError("tax_rate", "out_of_range", f"more than 0, at most {MOST_TAX_RATE}, up to 3 decimals"))
    if not 0 <= terms.payment_days <= MOST_PAYMENT_DAYS:
        errors.append(FieldError("payment_days", "out_of_range", f"from 0 to {MOST_PAYMENT_DAYS}"))
    if errors:
        raise Invalid("Some terms are not valid.", errors=errors)
    with transaction.atomic():
        tenant = tenant_by_path(actor, tenant_path, Permission.ISSUE_INVOICE)
        values: dict[str, Any] = {
            "issuer": terms.issuer, "tax_rate": terms.tax_rate, "tax_name": terms.tax_name,
            "payment_days": terms.payment_days, "cost_centre": terms.cost_centre, "gl_account": terms.gl_account,
            "remark": terms.remark,
        }  # fmt: skip
        InvoiceTerms.objects.update_or_create(tenant=tenant, defaults={**values, "updated_at": Now()})
        said = {**values, "tax_rate": None if terms.tax_rate is None else f"{terms.tax_rate:f}"}
        record_audit(
            actor, "invoice_terms.put", object_kind="tenant", object_id=tenant.id, tenant_id=tenant.id, detail=said
        )
    return InvoiceTerms.objects.select_related("tenant").get(tenant=tenant)


def _closed_period(organisation: Tenant, month: date) -> LedgerPeriod:
    """The period, which stays closed until commit."""
    period = LedgerPeriod.objects.filter(organisation=organisation, month=month).first()
    if period is not None:
        locks.keep_period(organisation.id, month)
        period.refresh_from_db()
    if period is None or period.state != LedgerPeriod.State.CLOSED:
        raise Conflict("Only a closed month is invoiced. Close it first.", code="period_not_closed")
    return period


def _currency(period: LedgerPeriod, wanted: str, below: str) -> str:
    found = currencies_of(period.id, below)
    if not found:
        raise Conflict("The month charges nothing to this tenant.", code="nothing_to_invoice")
    if not wanted and len(found) > 1:
        raise Invalid.field("currency", "required", f"the month charges in {', '.join(found)}: issue one for each")
    if wanted and wanted not in found:
        raise Invalid.field("currency", "unknown_value", f"the month charges in {', '.join(found)}")
    return wanted or found[0]


def _next_edition(period: LedgerPeriod, tenant: Tenant, currency: str) -> int:
    """1, or the next after invoices that are credited in full: the database refuses it otherwise."""
    last = (
        Invoice.objects.filter(period=period, revision=period.revision, tenant=tenant, currency=currency)
        .exclude(kind=Invoice.Kind.CREDIT_NOTE)
        .order_by("-edition")
        .first()
    )
    if last is None:
        return 1
    if last.kind == Invoice.Kind.STATEMENT or any(one.rest for one in invoiced_lines(last)):
        raise Conflict(f"{last.number} is of this month already. Credit it in full first.", code="already_invoiced")
    return last.edition + 1


def _next_number(organisation: Tenant, kind: Kind) -> int:
    last = Invoice.objects.filter(organisation=organisation, kind=kind).aggregate(last=Max("sequence"))["last"]
    return (last or 0) + 1


def _write(actor: Actor, heading: Heading, lines: Sequence[Line], of: _Place) -> Invoice:
    if len(lines) > MOST_LINES:
        raise Conflict(
            f"It would have {len(lines)} lines; the most is {MOST_LINES}. Issue statements of the tenants below.",
            code="too_many_lines",
        )
    text, sums = document(heading, lines), sums_of(lines)
    invoice = Invoice.objects.create(
        organisation_id=of.period.organisation_id, kind=heading.kind, sequence=heading.sequence, number=heading.number,
        tenant=of.tenant, tenant_path=heading.tenant, period=of.period, revision=heading.revision, edition=heading.edition,
        currency=heading.currency, exact=sums.exact, subtotal=sums.subtotal, tax=sums.tax, total=sums.total,
        tax_rate=heading.terms.tax_rate, reference=of.reference, reason=heading.reason, line_count=len(lines), document=text,
        digest=digest_of(text), issued_by_id=actor.user_id, issued_by_name=actor.name, issued_at=heading.issued_at,
    )  # fmt: skip
    insert_rows(
        [
            InvoiceLine(
                invoice=invoice, number=line.number, kind=line.kind, tenant_path=line.charge.tenant,
                cluster_id=of.clusters[line.number], cluster_name=line.charge.cluster, flavor=line.charge.flavor,
                month=line.charge.month, quantity=None if line.credits else line.charge.quantity, exact=line.exact,
                amount=line.amount, tax=line.tax, credits=of.credited.get(line.credits or 0),
            )
            for line in lines
        ]
    )  # fmt: skip
    record_audit(
        actor,
        "invoice.credit" if of.reference else "invoice.issue",
        object_kind="invoice",
        object_id=invoice.id,
        tenant_id=of.tenant.id,
        detail={
            "number": heading.number, "kind": heading.kind, "month": f"{heading.month:%Y-%m}", "currency": heading.currency,
            "total": f"{sums.total:f}", "digest": invoice.digest, "reference": heading.reference, "reason": heading.reason,
        },
    )  # fmt: skip
    return invoice
