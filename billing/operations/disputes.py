"""Remarks on lines of documents, and disputes of them: opened, answered, resolved."""

from uuid import UUID

from django.db import transaction
from django.db.models.functions import Now

from billing.models import InvoiceLine, InvoiceRemark
from billing.queries.disputes import remark_by_id
from billing.queries.invoices import invoice_by_id
from foundation.problems import Conflict, Invalid, PermissionDenied
from tenancy.engine.roles import Permission
from tenancy.operations import record_audit
from tenancy.queries import Actor, require

MOST_UNRESOLVED = 20
"""Of one line."""
State = InvoiceRemark.State


def open_remark(actor: Actor, invoice_id: UUID, line_number: int, kind: str, text: str) -> InvoiceRemark:
    """A new remark on a line, or a dispute of it.

    Raises NotFound, NotAllowedHere, Invalid (`unknown_value`), Conflict (`too_many_remarks`).
    """
    with transaction.atomic():
        invoice = invoice_by_id(actor, invoice_id)
        require(actor, invoice.tenant, Permission.DISPUTE_CHARGE)
        line = InvoiceLine.objects.filter(invoice=invoice, number=line_number).first()
        if line is None:
            raise Invalid.field("line", "unknown_value", f"{invoice.number} has the lines 1 to {invoice.line_count}")
        if InvoiceRemark.objects.filter(line=line).exclude(state=State.RESOLVED).count() >= MOST_UNRESOLVED:
            raise Conflict(f"The line has {MOST_UNRESOLVED} remarks that are not resolved.", code="too_many_remarks")
        remark = InvoiceRemark.objects.create(
            organisation=invoice.organisation,
            line=line,
            kind=kind,
            text=text,
            opened_by_id=actor.user_id,
            opened_by_name=actor.name,
        )
        _record(
            actor,
            "invoice_remark.open",
            remark,
            {"kind": kind, "document": invoice.number, "line": line_number, "text": text},
        )
    return remark_by_id(actor, remark.id)


def answer_remark(actor: Actor, remark_id: UUID, answer: str) -> InvoiceRemark:
    """The remark, answered. Raises NotFound, NotAllowedHere, Conflict `remark_not_open`."""
    with transaction.atomic():
        remark = remark_by_id(actor, remark_id, may_answer=True)
        changed = InvoiceRemark.objects.filter(id=remark.id, state=State.OPEN).update(
            state=State.ANSWERED, answer=answer, answered_by_name=actor.name, answered_at=Now()
        )
        if not changed:
            raise Conflict("Only an open remark can be answered.", code="remark_not_open")
        _record(actor, "invoice_remark.answer", remark, {"answer": answer})
    return remark_by_id(actor, remark_id)


def resolve_remark(actor: Actor, remark_id: UUID, outcome: str) -> InvoiceRemark:
    """The remark, resolved. What was accepted is credited by a credit note.

    Raises NotFound, NotAllowedHere, Conflict `remark_not_answered`, PermissionDenied for accepting one's own dispute.
    """
    with transaction.atomic():
        remark = remark_by_id(actor, remark_id, may_answer=True)
        is_own = actor.user_id is not None and actor.user_id == remark.opened_by_id
        if is_own and outcome == InvoiceRemark.Outcome.ACCEPTED and remark.kind == InvoiceRemark.Kind.DISPUTE:
            raise PermissionDenied("Another person than the one who opened a dispute accepts it.")
        changed = InvoiceRemark.objects.filter(id=remark.id, state=State.ANSWERED).update(
            state=State.RESOLVED,
            outcome=outcome,
            resolved_by_id=actor.user_id,
            resolved_by_name=actor.name,
            resolved_at=Now(),
        )
        if not changed:
            raise Conflict("Only an answered remark can be resolved.", code="remark_not_answered")
        _record(actor, "invoice_remark.resolve", remark, {"outcome": outcome})
    return remark_by_id(actor, remark_id)


def _record(actor: Actor, action: str, remark: InvoiceRemark, detail: dict[str, object]) -> None:
    record_audit(
        actor,
        action,
        object_kind="invoice_remark",
        object_id=remark.id,
        tenant_id=remark.line.invoice.tenant_id,
        detail=detail,
    )
