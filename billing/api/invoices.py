"""Invoices, statements and credit notes over HTTP."""

from datetime import date
from decimal import Decimal
from typing import Any
from uuid import UUID

from django.http import HttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from rest_framework import serializers, status
from rest_framework.renderers import BaseRenderer
from rest_framework.request import Request
from rest_framework.response import Response

from billing.engine.currencies import minor_digits
from billing.engine.invoices import Terms
from billing.models import Invoice, InvoiceTerms
from billing.models.invoices import TEXT_LENGTH
from billing.models.periods import REASON_LENGTH
from billing.operations.invoices import MOST_LINES, WantedInvoice, credit_invoice, issue_invoice, put_terms
from billing.queries.invoices import content_of, credited_of, invoice_by_id, visible_invoices, visible_terms
from foundation.media import JSONRenderer
from foundation.plain_json import encode, instant
from foundation.problems import Invalid
from foundation.schema import page_shape
from foundation.shapes import Instant, StrictShape, Text, Whole
from tenancy.api.views import ApiView

from .period import MONTH
from .shapes import CURRENCY

ORDERS = {"issued": "issued_at", "-issued": "-issued_at"}
TERMS_ORDERS = {"tenant": "tenant__path", "-tenant": "-tenant__path"}
MOST_DIGITS = 30
KINDS = list(Invoice.Kind.values)
LINE_KINDS = ["charge", "correction", "adjustment", "credit"]


class InvoiceCreate(StrictShape):
    """Which closed month of which tenant: of an organisation it is an invoice, of a tenant below it a statement."""

    tenant = Text(max_length=1100, help_text="Path, such as acme or acme/research.")
    month = Text(max_length=7, help_text="YYYY-MM.")
    currency = Text(
        max_length=3, required=False, default="", allow_blank=True, help_text="If the month charges in several."
    )
    remark = Text(max_length=REASON_LENGTH, required=False, default="", allow_blank=True)


class CreditedLine(StrictShape):
    """How much of a line to take back."""

    line = Whole(min_value=1, max_value=MOST_LINES)
    amount = Text(max_length=MOST_DIGITS, help_text='Before tax, with the sign of the line, such as "10.00".')


class CreditNoteCreate(StrictShape):
    """What to take back of an invoice, and why."""

    reason = Text(max_length=REASON_LENGTH)
    lines = CreditedLine(
        many=True, required=False, allow_null=True, default=None, help_text="Without it: all that is left."
    )


class InvoiceListed(serializers.Serializer[Any]):
    """A document without its lines."""

    id = serializers.UUIDField()
    number = serializers.CharField()
    kind = serializers.ChoiceField(KINDS)
    organisation = serializers.CharField()
    tenant = serializers.CharField()
    month = serializers.CharField()
    edition = serializers.IntegerField()
    currency = serializers.CharField()
    total = serializers.CharField()
    reference = serializers.UUIDField(allow_null=True, help_text="The invoice that a credit note is of.")
    digest = serializers.CharField(help_text="SHA-256 of the document's canonical JSON.")
    issued_by = serializers.CharField()
    issued_at = Instant()


class InvoiceLineShown(serializers.Serializer[Any]):
    """A line of a document."""

    number = serializers.IntegerField()
    kind = serializers.ChoiceField(LINE_KINDS)
    tenant = serializers.CharField()
    cluster = serializers.CharField()
    flavor = serializers.CharField()
    month = serializers.CharField(help_text="Of use: an earlier one than the document's in a correction.")
    unit = serializers.CharField(allow_null=True, required=False)
    quantity = serializers.CharField(allow_null=True, required=False, help_text="Unit-hours; null: not known.")
    unit_price = serializers.CharField(allow_null=True, required=False, help_text="The exact amount by the quantity.")
    exact = serializers.CharField(help_text="What the ledger says.")
    amount = serializers.CharField(help_text="In the minor unit.")
    tax = serializers.CharField(help_text="Its part of the tax.")
    credits = serializers.IntegerField(required=False, help_text="The line of the invoice that it takes back.")


class TaxShown(serializers.Serializer[Any]):
    """The tax line."""

    name = serializers.CharField()
    rate = serializers.CharField(allow_null=True, help_text="Percent.")
    amount = serializers.CharField()


class DocumentShown(serializers.Serializer[Any]):
    """A document as it was issued."""

    schema = serializers.CharField()
    number = serializers.CharField()
    kind = serializers.ChoiceField(KINDS)
    issuer = serializers.CharField()
    organisation = serializers.CharField()
    tenant = serializers.CharField()
    month = serializers.CharField()
    revision = serializers.IntegerField(help_text="The close of the month that it is of.")
    checksum = serializers.CharField(help_text="Of that close.")
    edition = serializers.IntegerField()
    currency = serializers.CharField()
    issued_at = serializers.CharField()
    due_on = serializers.CharField(allow_null=True)
    payment_days = serializers.IntegerField(allow_null=True)
    cost_centre = serializers.CharField()
    gl_account = serializers.CharField()
    remark = serializers.CharField()
    reference = serializers.CharField(allow_null=True, help_text="The number of the invoice that a credit note is of.")
    reason = serializers.CharField()
    lines = InvoiceLineShown(many=True)
    exact = serializers.CharField()
    subtotal = serializers.CharField()
    tax = TaxShown()
    total = serializers.CharField()


class InvoiceShown(InvoiceListed):
    """A document with its content, and what was credited of it."""

    document = DocumentShown()
    credited = serializers.CharField(allow_null=True, help_text="With tax; null unless it is an invoice.")
    credited_in_full = serializers.BooleanField(allow_null=True)


INVOICE_PAGE = page_shape(InvoiceListed)


class InvoicesView(ApiView):
    """`/invoices`."""

    paged = True
    filters = ("tenant", "month")

    @extend_schema(operation_id="invoices_list", responses=INVOICE_PAGE)
    def get(self, request: Request) -> Response:
        """Lists the documents of the tenants that you see, of a tenant and those below it, or of a month."""
        month = month_of(self.query["month"]) if "month" in self.query else None
        rows = visible_invoices(self.actor, tenant_path=self.query.get("tenant", ""), month=month)
        return self.page(rows.defer("document"), orders=ORDERS, render=show_listed)

    @extend_schema(operation_id="invoices_issue", request=InvoiceCreate, responses={201: InvoiceShown})
    def post(self, request: Request) -> Response:
        """Issues the invoice of an organisation's closed month, or the statement of a tenant below it."""
        fields = self.read(InvoiceCreate)
        if fields["currency"] and not CURRENCY.fullmatch(fields["currency"]):
            raise Invalid.field("currency", "bad_format", "three letters such as USD")
        wanted = WantedInvoice(fields["tenant"], month_of(fields["month"]), fields["currency"], fields["remark"])

        def produce() -> tuple[int, dict[str, Any]]:
            return status.HTTP_201_CREATED, show_invoice(issue_invoice(self.actor, wanted))

        return self.created(request, None, "invoices", produce)


class InvoiceView(ApiView):
    """`/invoices/{id}`."""

    @extend_schema(operation_id="invoices_get", responses=InvoiceShown)
    def get(self, request: Request, invoice_id: UUID) -> Response:
        """Returns a document."""
        return Response(show_invoice(invoice_by_id(self.actor, invoice_id)))


class PDFRenderer(BaseRenderer):
    """A PDF, as the view returns it; a refusal remains JSON."""

    media_type = "application/pdf"
    format = "pdf"
    charset = None
    render_style = "binary"

    def render(self, data: Any, *_: Any, **__: Any) -> bytes:
        return data if isinstance(data, bytes) else encode(data)


class InvoicePdfView(ApiView):
    """`/invoices/{id}.pdf`."""

    renderer_classes = [PDFRenderer, JSONRenderer]

    @extend_schema(operation_id="invoices_pdf", responses={(200, "application/pdf"): OpenApiTypes.BINARY})
    def get(self, request: Request, invoice_id: UUID) -> HttpResponse:
        """Returns a document as PDF: the same bytes each time."""
        from .invoice_pdf import pdf_of  # noqa: PLC0415 - its fonts and images are a tenth of a start, and most processes need none

        invoice = invoice_by_id(self.actor, invoice_id)
        name = f"{invoice.organisation.path}-{invoice.number}.pdf"
        return HttpResponse(
            pdf_of(content_of(invoice), invoice.digest),
            content_type="application/pdf",
            headers={"Content-Disposition": f'attachment; filename="{name}"'},
        )


class CreditNotesView(ApiView):
    """`/invoices/{id}/credit-notes`."""

    paged = True

    @extend_schema(operation_id="credit_notes_list", responses=INVOICE_PAGE)
    def get(self, request: Request, invoice_id: UUID) -> Response:
        """Lists the credit notes of an invoice."""
        invoice = invoice_by_id(self.actor, invoice_id)
        return self.page(
            visible_invoices(self.actor).filter(reference=invoice).defer("document"), orders=ORDERS, render=show_listed
        )

    @extend_schema(operation_id="credit_notes_issue", request=CreditNoteCreate, responses={201: InvoiceShown})
    def post(self, request: Request, invoice_id: UUID) -> Response:
        """Takes back lines of an invoice, at most what was invoiced. Without `lines`, all that is left."""
        fields = self.read(CreditNoteCreate)
        amounts = None if fields["lines"] is None else _amounts(fields["lines"])

        def produce() -> tuple[int, dict[str, Any]]:
            return status.HTTP_201_CREATED, show_invoice(
                credit_invoice(self.actor, invoice_id, fields["reason"], amounts)
            )

        return self.created(request, None, f"invoices/{invoice_id}/credit-notes", produce)


class TermsPut(StrictShape):
    """What future documents of a tenant say. Tenants below it without their own terms have the same."""

    tenant = Text(max_length=1100, help_text="Path, such as acme.")
    issuer = Text(max_length=TEXT_LENGTH, required=False, default="", allow_blank=True)
    tax_rate = Text(
        max_length=10, required=False, allow_null=True, default=None, help_text='Percent, such as "19"; invoices only.'
    )
    tax_name = Text(max_length=40, required=False, default="", allow_blank=True)
    payment_days = Whole(min_value=0, max_value=365, required=False, default=30)
    cost_centre = Text(max_length=TEXT_LENGTH, required=False, default="", allow_blank=True)
    gl_account = Text(max_length=TEXT_LENGTH, required=False, default="", allow_blank=True)
    remark = Text(max_length=REASON_LENGTH, required=False, default="", allow_blank=True)


class TermsShown(serializers.Serializer[Any]):
    """The terms of a tenant's future documents."""

    tenant = serializers.CharField()
    issuer = serializers.CharField()
    tax_rate = serializers.CharField(allow_null=True)
    tax_name = serializers.CharField()
    payment_days = serializers.IntegerField()
    cost_centre = serializers.CharField()
    gl_account = serializers.CharField()
    remark = serializers.CharField()
    updated_at = Instant()


class InvoiceTermsView(ApiView):
    """`/invoice-terms`."""

    paged = True

    @extend_schema(operation_id="invoice_terms_list", responses=page_shape(TermsShown))
    def get(self, request: Request) -> Response:
        """Lists the terms of the tenants that you see."""
        return self.page(visible_terms(self.actor), orders=TERMS_ORDERS, render=show_terms)

    @extend_schema(operation_id="invoice_terms_put", request=TermsPut, responses=TermsShown)
    def put(self, request: Request) -> Response:
        """Sets the terms of a tenant's future documents. Issued documents do not change."""
        fields = self.read(TermsPut)
        path, rate = fields.pop("tenant"), fields.pop("tax_rate")
        terms = Terms(**fields, tax_rate=None if rate is None else number_of("tax_rate", rate))
        return Response(show_terms(put_terms(self.actor, path, terms)))


def month_of(text: str) -> date:
    """The first day of a month as users write it. Raises Invalid."""
    match = MONTH.fullmatch(text)
    if match is None or not 1970 <= int(match.group(1)) < 9999:  # noqa: PLR2004 - years that a calendar has
        raise Invalid.field("month", "not_a_month", "write a month as YYYY-MM")
    return date(int(match.group(1)), int(match.group(2)), 1)


def number_of(field: str, text: str) -> Decimal:
    """A decimal number as text. Raises Invalid."""
    whole, _, part = text.removeprefix("-").partition(".")
    if not (f"{whole}{part}".isascii() and f"{whole}{part}".isdigit() and whole) or text.endswith("."):
        raise Invalid.field(field, "bad_format", 'a string such as "19" or "10.50"')
    return Decimal(text)


def _amounts(lines: list[dict[str, Any]]) -> dict[int, Decimal]:
    amounts = {one["line"]: number_of("lines", one["amount"]) for one in lines}
    if len(amounts) < len(lines):
        raise Invalid.field("lines", "given_twice", "name each line once")
    return amounts


def show_listed(invoice: Invoice) -> dict[str, Any]:
    """A document in a list."""
    return {
        "id": str(invoice.id),
        "number": invoice.number,
        "kind": invoice.kind,
        "organisation": invoice.organisation.path,
        "tenant": invoice.tenant_path,
        "month": f"{invoice.period.month:%Y-%m}",
        "edition": invoice.edition,
        "currency": invoice.currency,
        "total": f"{invoice.total:.{minor_digits(invoice.currency)}f}",
        "reference": str(invoice.reference_id) if invoice.reference_id else None,
        "digest": invoice.digest,
        "issued_by": invoice.issued_by_name,
        "issued_at": instant(invoice.issued_at),
    }


def show_invoice(invoice: Invoice) -> dict[str, Any]:
    """A document with its content."""
    credited, in_full = credited_of(invoice) if invoice.kind == Invoice.Kind.INVOICE else (None, None)
    return {
        **show_listed(invoice),
        "document": content_of(invoice),
        "credited": None if credited is None else f"{credited.normalize():f}",
        "credited_in_full": in_full,
    }


def show_terms(terms: InvoiceTerms) -> dict[str, Any]:
    """Terms as the API shows them."""
    return {
        "tenant": terms.tenant.path,
        "issuer": terms.issuer,
        "tax_rate": None if terms.tax_rate is None else f"{terms.tax_rate:f}",
        "tax_name": terms.tax_name,
        "payment_days": terms.payment_days,
        "cost_centre": terms.cost_centre,
        "gl_account": terms.gl_account,
        "remark": terms.remark,
        "updated_at": instant(terms.updated_at),
    }
