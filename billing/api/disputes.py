"""Remarks on lines of documents, and disputes of them, over HTTP."""

from typing import Any
from uuid import UUID

from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers, status
from rest_framework.request import Request
from rest_framework.response import Response

from billing.models import InvoiceRemark
from billing.models.periods import REASON_LENGTH
from billing.operations.disputes import answer_remark, open_remark, resolve_remark
from billing.operations.invoices import MOST_LINES
from billing.queries.disputes import entry_keys, remark_by_id, visible_remarks
from billing.queries.invoices import invoice_by_id
from foundation.plain_json import instant
from foundation.problems import Invalid
from foundation.schema import page_shape
from foundation.shapes import Instant, StrictShape, Text, Whole
from tenancy.api.views import ApiView

ORDERS = {"opened": "opened_at", "-opened": "-opened_at"}
KINDS = list(InvoiceRemark.Kind.values)
STATES = list(InvoiceRemark.State.values)
STATE = OpenApiParameter("state", str, enum=STATES, description="Only remarks in this state.")


class RemarkCreate(StrictShape):
    """What is said of a line."""

    line = Whole(min_value=1, max_value=MOST_LINES)
    kind = serializers.ChoiceField(
        InvoiceRemark.Kind.values, help_text="A `dispute` blocks closes until it is resolved."
    )
    text = Text(max_length=REASON_LENGTH)


class RemarkAnswer(StrictShape):
    """The answer to a remark."""

    answer = Text(max_length=REASON_LENGTH)


class RemarkResolution(StrictShape):
    """How a remark ends. What is accepted is credited by a credit note."""

    outcome = serializers.ChoiceField(InvoiceRemark.Outcome.values)


class RemarkListed(serializers.Serializer[Any]):
    """A remark on a line, or a dispute of it."""

    id = serializers.UUIDField()
    invoice = serializers.UUIDField()
    number = serializers.CharField(help_text="Of the document.")
    line = serializers.IntegerField()
    kind = serializers.ChoiceField(KINDS)
    state = serializers.ChoiceField(STATES)
    text = serializers.CharField()
    opened_by = serializers.CharField()
    opened_at = Instant()
    answer = serializers.CharField(allow_null=True)
    answered_by = serializers.CharField(allow_null=True)
    answered_at = Instant(allow_null=True)
    outcome = serializers.CharField(allow_null=True)
    resolved_by = serializers.CharField(allow_null=True)
    resolved_at = Instant(allow_null=True)


class RemarkShown(RemarkListed):
    """A remark with the keys of the ledger's entries that the line was made of."""

    entries = serializers.ListField(child=serializers.CharField())


REMARK_PAGE = page_shape(RemarkListed)


class RemarksView(ApiView):
    """`/invoice-remarks`."""

    paged = True
    filters = ("state",)

    @extend_schema(operation_id="invoice_remarks_list", parameters=[STATE], responses=REMARK_PAGE)
    def get(self, request: Request) -> Response:
        """Lists the remarks on the documents that you see."""
        state = self.query.get("state", "")
        if state and state not in STATES:
            raise Invalid.field("state", "unknown_state", f"one of {', '.join(STATES)}")
        return self.page(visible_remarks(self.actor, state=state), orders=ORDERS, render=show_listed)


class InvoiceRemarksView(ApiView):
    """`/invoices/{id}/remarks`."""

    paged = True

    @extend_schema(operation_id="invoices_remarks_list", responses=REMARK_PAGE)
    def get(self, request: Request, invoice_id: UUID) -> Response:
        """Lists the remarks on a document."""
        invoice = invoice_by_id(self.actor, invoice_id)
        return self.page(visible_remarks(self.actor).filter(line__invoice=invoice), orders=ORDERS, render=show_listed)

    @extend_schema(operation_id="invoices_remarks_open", request=RemarkCreate, responses={201: RemarkShown})
    def post(self, request: Request, invoice_id: UUID) -> Response:
        """Opens a remark on a line, or a dispute of it."""
        fields = self.read(RemarkCreate)

        def produce() -> tuple[int, dict[str, Any]]:
            made = open_remark(self.actor, invoice_id, fields["line"], fields["kind"], fields["text"])
            return status.HTTP_201_CREATED, show_remark(made)

        return self.created(request, None, f"invoices/{invoice_id}/remarks", produce)


class RemarkView(ApiView):
    """`/invoice-remarks/{id}`."""

    @extend_schema(operation_id="invoice_remarks_get", responses=RemarkShown)
    def get(self, request: Request, remark_id: UUID) -> Response:
        """Returns a remark with the entries of its line."""
        return Response(show_remark(remark_by_id(self.actor, remark_id)))


class RemarkAnswerView(ApiView):
    """`/invoice-remarks/{id}/answer`."""

    @extend_schema(operation_id="invoice_remarks_answer", request=RemarkAnswer, responses=RemarkShown)
    def post(self, request: Request, remark_id: UUID) -> Response:
        """Answers an open remark."""
        return Response(show_remark(answer_remark(self.actor, remark_id, self.read(RemarkAnswer)["answer"])))


class RemarkResolutionView(ApiView):
    """`/invoice-remarks/{id}/resolve`."""

    @extend_schema(operation_id="invoice_remarks_resolve", request=RemarkResolution, responses=RemarkShown)
    def post(self, request: Request, remark_id: UUID) -> Response:
        """Resolves an answered remark."""
        return Response(show_remark(resolve_remark(self.actor, remark_id, self.read(RemarkResolution)["outcome"])))


def show_listed(row: InvoiceRemark) -> dict[str, Any]:
    """A remark in a list."""
    return {
        "id": str(row.id),
        "invoice": str(row.line.invoice_id),
        "number": row.line.invoice.number,
        "line": row.line.number,
        "kind": row.kind,
        "state": row.state,
        "text": row.text,
        "opened_by": row.opened_by_name,
        "opened_at": instant(row.opened_at),
        "answer": row.answer or None,
        "answered_by": row.answered_by_name or None,
        "answered_at": instant(row.answered_at),
        "outcome": row.outcome or None,
        "resolved_by": row.resolved_by_name or None,
        "resolved_at": instant(row.resolved_at),
    }


def show_remark(row: InvoiceRemark) -> dict[str, Any]:
    """A remark with its entries."""
    return {**show_listed(row), "entries": entry_keys(row)}
