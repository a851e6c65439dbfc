"""Remarks on lines of documents, and disputes of them: the list, those of one document, and the next step of one."""

from collections.abc import Mapping
from dataclasses import dataclass
from uuid import UUID

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect

from billing.models import Invoice, InvoiceRemark
from billing.models.periods import REASON_LENGTH
from billing.operations.disputes import answer_remark, open_remark, resolve_remark
from billing.queries.disputes import RemarkRow, entry_keys, remark_by_id, remarks_on, visible_remarks
from billing.queries.invoices import invoice_by_id
from foundation.pages import Form, show, typed
from foundation.problems import Invalid, Problem
from tenancy.engine.roles import Permission
from tenancy.queries import Actor, permissions_at
from tenancy.web import page

CONTROLS = {name: name for name in ("line", "kind", "text", "answer", "outcome")}
KINDS = (("remark", "a remark"), ("dispute", "a dispute, which blocks the closes of months until it is resolved"))
OUTCOMES = (("accepted", "accepted: credit it with a credit note"), ("rejected", "rejected"))
MOST_REMARKS = 200
MOST_DIGITS = 4


@dataclass(frozen=True, slots=True)
class RemarksPage:
    remarks: tuple[InvoiceRemark, ...]


@dataclass(frozen=True, slots=True)
class DocumentRemarksPage:
    invoice: Invoice
    remarks: tuple[RemarkRow, ...]
    kinds: tuple[tuple[str, str], ...]
    may_open: bool
    form: Form


@dataclass(frozen=True, slots=True)
class RemarkPage:
    remark: InvoiceRemark
    entries: tuple[str, ...]
    outcomes: tuple[tuple[str, str], ...]
    may_act: bool
    form: Form


@page(takes=())
def remarks(request: HttpRequest, actor: Actor) -> HttpResponse:
    """The remarks on the documents that the user sees: those to resolve first."""
    rows = visible_remarks(actor)
    to_resolve = rows.exclude(state=InvoiceRemark.State.RESOLVED).order_by("opened_at")[:MOST_REMARKS]
    resolved = rows.filter(state=InvoiceRemark.State.RESOLVED).order_by("-resolved_at")[:MOST_REMARKS]
    return show(request, "billing/remarks.html", RemarksPage((*to_resolve, *resolved)))


@page(takes=())
def remarks_of(request: HttpRequest, actor: Actor, invoice_id: UUID) -> HttpResponse:
    """The remarks on one document; users who may dispute its lines do so here."""
    if request.method != "POST":
        return _of(request, actor, invoice_id, Form())
    values = typed(request)
    try:
        line, kind = values.get("line", "").strip(), values.get("kind", "")
        if not (line.isascii() and line.isdigit() and len(line) <= MOST_DIGITS):
            raise Invalid.field("line", "bad_format", "the number of a line")
        if kind not in InvoiceRemark.Kind.values:
            raise Invalid.field("kind", "required", "choose one")
        open_remark(actor, invoice_id, int(line), kind, _text(values, "text"))
    except Problem as problem:
        return _of(request, actor, invoice_id, Form.refused(values, problem, CONTROLS), status=problem.status)
    messages.success(request, "Finance sees it, and answers.")
    return redirect("remarks-of-invoice", invoice_id)


@page(takes=())
def remark(request: HttpRequest, actor: Actor, remark_id: UUID) -> HttpResponse:
    """One remark with the entries of its line; users who may issue documents answer and resolve it here."""
    if request.method != "POST":
        return _one(request, actor, remark_id, Form())
    values = typed(request)
    try:
        if "outcome" in values:
            if values["outcome"] not in InvoiceRemark.Outcome.values:
                raise Invalid.field("outcome", "required", "choose one")
            resolve_remark(actor, remark_id, values["outcome"])
        else:
            answer_remark(actor, remark_id, _text(values, "answer"))
    except Problem as problem:
        return _one(request, actor, remark_id, Form.refused(values, problem, CONTROLS), status=problem.status)
    messages.success(request, "Done.")
    return redirect("invoice-remark", remark_id)


def _of(request: HttpRequest, actor: Actor, invoice_id: UUID, form: Form, *, status: int = 200) -> HttpResponse:
    invoice = invoice_by_id(actor, invoice_id)
    may_open = Permission.DISPUTE_CHARGE in permissions_at(actor, invoice.tenant)
    shown = DocumentRemarksPage(invoice, remarks_on(actor, invoice), KINDS, may_open, form)
    return show(request, "billing/remarks_of.html", shown, status=status)


def _one(request: HttpRequest, actor: Actor, remark_id: UUID, form: Form, *, status: int = 200) -> HttpResponse:
    row = remark_by_id(actor, remark_id)
    may_act = Permission.ISSUE_INVOICE in permissions_at(actor, row.organisation)
    shown = RemarkPage(row, tuple(entry_keys(row)), OUTCOMES, may_act, form)
    return show(request, "billing/remark.html", shown, status=status)


def _text(values: Mapping[str, str], name: str) -> str:
    text = values.get(name, "").strip()
    if not 0 < len(text) <= REASON_LENGTH or not text.isprintable():
        raise Invalid.field(name, "required", f"1 to {REASON_LENGTH} characters in one line")
    return text
