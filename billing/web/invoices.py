"""Invoices, statements and credit notes: the list, a document that prints, and the terms."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from uuid import UUID

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect

from billing.engine.invoices import Terms
from billing.models.invoices import TEXT_LENGTH
from billing.models.periods import REASON_LENGTH
from billing.operations.invoices import WantedInvoice, credit_invoice, issue_invoice, put_terms
from billing.queries.invoice_pages import (
    InvoiceDetail,
    InvoiceRow,
    invoice_detail,
    invoice_rows,
    months_to_invoice,
    tenants_to_invoice,
    terms_row,
)
from foundation.pages import Form, asked, show, typed
from foundation.problems import FieldError, Invalid, Problem
from tenancy.queries import Actor
from tenancy.web import page

from .typing_in import decimal_of, month_of

ISSUE_CONTROLS = {name: name for name in ("tenant", "month", "currency", "remark")}
CREDIT_CONTROLS = {"reason": "reason", "lines": "amount", "line": "line", "amount": "amount"}
TERMS_CONTROLS = {
    name: name
    for name in ("tenant", "issuer", "tax_rate", "tax_name", "payment_days", "cost_centre", "gl_account", "remark")
}
AMOUNT = re.compile(r"-?[0-9]{1,20}(\.[0-9]{1,6})?")
Choices = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class InvoicesPage:
    invoices: tuple[InvoiceRow, ...]
    tenants: Choices
    months: Choices
    form: Form


@dataclass(frozen=True, slots=True)
class InvoicePage:
    invoice: InvoiceDetail
    form: Form


@dataclass(frozen=True, slots=True)
class TermsPage:
    tenants: Choices
    form: Form


@page(takes=())
def invoices(request: HttpRequest, actor: Actor) -> HttpResponse:
    """The documents of the tenants that the user sees; users who may issue them do so here."""
    if request.method != "POST":
        return _list(request, actor, Form())
    values = typed(request)
    try:
        wanted = WantedInvoice(
            values.get("tenant", ""),
            month_of(values.get("month", "")),
            values.get("currency", "").strip().upper(),
            _text(values, "remark", REASON_LENGTH),
        )
        made = issue_invoice(actor, wanted)
    except Problem as problem:
        return _list(request, actor, Form.refused(values, problem, ISSUE_CONTROLS), status=problem.status)
    messages.success(request, f"{made.number} is issued.")
    return redirect("invoice", made.id)


@page(takes=())
def invoice(request: HttpRequest, actor: Actor, invoice_id: UUID) -> HttpResponse:
    """One document; users who may issue them credit an invoice here."""
    if request.method != "POST":
        return _one(request, actor, invoice_id, Form())
    values = typed(request)
    try:
        reason = _text(values, "reason", REASON_LENGTH)
        if not reason:
            raise Invalid.field("reason", "required", "say why it is credited")
        made = credit_invoice(actor, invoice_id, reason, _amounts(values))
    except Problem as problem:
        form = Form.refused(values, problem, CREDIT_CONTROLS)
        return _one(request, actor, invoice_id, form, status=problem.status)
    messages.success(request, f"{made.number} is issued.")
    return redirect("invoice", made.id)


@page(takes=("tenant",))
def terms(request: HttpRequest, actor: Actor) -> HttpResponse:
    """The terms of a tenant's future documents."""
    if request.method != "POST":
        return _terms(request, actor, Form(_values(actor, asked(request).get("tenant", ""))))
    values = typed(request)
    try:
        put_terms(actor, values.get("tenant", ""), _typed_terms(values))
    except Problem as problem:
        return _terms(request, actor, Form.refused(values, problem, TERMS_CONTROLS), status=problem.status)
    messages.success(request, "The terms apply to documents that are issued from now on.")
    return redirect("invoices")


def _list(request: HttpRequest, actor: Actor, form: Form, *, status: int = 200) -> HttpResponse:
    tenants = _choices(tenants_to_invoice(actor))
    months = tuple((month, f"{month_of(month):%B %Y}") for month in months_to_invoice(actor))
    shown = InvoicesPage(invoice_rows(actor), tenants, months, form)
    return show(request, "billing/invoices.html", shown, status=status)


def _one(request: HttpRequest, actor: Actor, invoice_id: UUID, form: Form, *, status: int = 200) -> HttpResponse:
    shown = InvoicePage(invoice_detail(actor, invoice_id), form)
    return show(request, "billing/invoice.html", shown, status=status)


def _terms(request: HttpRequest, actor: Actor, form: Form, *, status: int = 200) -> HttpResponse:
    shown = TermsPage(_choices(tenants_to_invoice(actor)), form)
    return show(request, "billing/invoice_terms.html", shown, status=status)


def _choices(texts: tuple[str, ...]) -> Choices:
    return tuple((text, text) for text in texts)


def _values(actor: Actor, tenant_path: str) -> dict[str, str]:
    row = terms_row(actor, tenant_path)
    if row is None:
        return {"tenant": tenant_path, "payment_days": "30"}
    return {
        "tenant": tenant_path,
        "issuer": row.issuer,
        "tax_rate": "" if row.tax_rate is None else f"{row.tax_rate:f}",
        "tax_name": row.tax_name,
        "payment_days": str(row.payment_days),
        "cost_centre": row.cost_centre,
        "gl_account": row.gl_account,
        "remark": row.remark,
    }


def _typed_terms(values: Mapping[str, str]) -> Terms:
    errors = []
    rate, days = values.get("tax_rate", "").strip(), values.get("payment_days", "").strip()
    tax_rate = decimal_of(rate) if rate else None
    if tax_rate is not None and not tax_rate.is_finite():
        errors.append(FieldError("tax_rate", "bad_format", "a percentage such as 19, or nothing"))
    if not (days.isascii() and days.isdigit() and len(days) <= len("365")):
        errors.append(FieldError("payment_days", "bad_format", "a number of days"))
    if errors:
        raise Invalid("Some terms are not valid.", errors=errors)
    texts = {name: _text(values, name, TEXT_LENGTH) for name in ("issuer", "cost_centre", "gl_account")}
    return Terms(
        tax_rate=tax_rate,
        tax_name=_text(values, "tax_name", 40),
        payment_days=int(days),
        remark=_text(values, "remark", REASON_LENGTH),
        **texts,
    )


def _amounts(values: Mapping[str, str]) -> dict[int, Decimal] | None:
    """The part to credit; None: all that is left."""
    line, amount = values.get("line", "").strip(), values.get("amount", "").strip()
    if not line and not amount:
        return None
    if not (line.isascii() and line.isdigit() and len(line) <= len("2000")):
        raise Invalid.field("line", "bad_format", "the number of a line; without line and amount, all is credited")
    if not AMOUNT.fullmatch(amount):
        raise Invalid.field("amount", "bad_format", "an amount such as 10.00, before tax")
    return {int(line): Decimal(amount)}


def _text(values: Mapping[str, str], name: str, longest: int) -> str:
    text = values.get(name, "").strip()
    if len(text) > longest or not text.isprintable():
        raise Invalid.field(name, "out_of_range", f"at most {longest} characters in one line")
    return text
