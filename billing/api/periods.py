"""The months of the ledger over HTTP."""

from typing import Any
from uuid import UUID

from drf_spectacular.utils import extend_schema
from rest_framework import serializers, status
from rest_framework.request import Request
from rest_framework.response import Response

from billing.models import LedgerPeriod
from billing.models.periods import REASON_LENGTH
from billing.operations.periods import approve_reopening, begin_closing, cancel_closing, request_reopening
from billing.queries.periods import checklist, period_by_id, visible_periods
from foundation.plain_json import instant
from foundation.schema import page_shape
from foundation.shapes import Instant, StrictShape, Text
from tenancy.api.views import ApiView

ORDERS = {"month": "month", "-month": "-month"}


class PeriodClosing(StrictShape):
    """How to close a period."""

    accept_unpriced = serializers.BooleanField(
        required=False, default=False, help_text="Close it although some of its time has no price."
    )


class ReopeningCreate(StrictShape):
    """Why a period is to be reopened."""

    reason = Text(max_length=REASON_LENGTH)


class PeriodShown(serializers.Serializer[Any]):
    """A month of an organisation's ledger."""

    id = serializers.UUIDField()
    organisation = serializers.CharField()
    month = serializers.CharField(help_text="YYYY-MM.")
    state = serializers.CharField(help_text="`open`, `closing` or `closed`.")
    checksum = serializers.CharField(allow_null=True, help_text="SHA-256 of its canonical lines while it is closed.")
    revision = serializers.IntegerField(help_text="How often it was closed.")
    closed_by = serializers.CharField(allow_null=True)
    closed_at = Instant(allow_null=True)


class ChecklistItem(serializers.Serializer[Any]):
    """One condition of a close."""

    name = serializers.CharField()
    fulfilled = serializers.BooleanField()
    detail = serializers.CharField(help_text="What is missing; empty if nothing is.")


class PeriodDetail(PeriodShown):
    """A month with what is missing before it can close."""

    checklist = ChecklistItem(many=True, help_text="Empty once it is closed.")


class ReopeningShown(serializers.Serializer[Any]):
    """A request to reopen a period, which another person has to approve."""

    reason = serializers.CharField()
    requested_by = serializers.CharField()
    requested_at = Instant()


class PeriodsView(ApiView):
    """`/periods`."""

    paged = True

    @extend_schema(operation_id="periods_list", responses=page_shape(PeriodShown))
    def get(self, request: Request) -> Response:
        """Lists the months of the organisations that you see as a whole. A month appears with its first posting."""
        return self.page(visible_periods(self.actor), orders=ORDERS, render=show_period)


class PeriodView(ApiView):
    """`/periods/{id}`."""

    @extend_schema(operation_id="periods_get", responses=PeriodDetail)
    def get(self, request: Request, period_id: UUID) -> Response:
        """Returns a month and the checklist of its close."""
        period = period_by_id(self.actor, period_id)
        items = [] if period.state == LedgerPeriod.State.CLOSED else checklist(period)
        shown = [{"name": item.name, "fulfilled": item.is_fulfilled, "detail": item.detail} for item in items]
        return Response({**show_period(period), "checklist": shown})


class PeriodCloseView(ApiView):
    """`/periods/{id}/close`."""

    @extend_schema(operation_id="periods_close", request=PeriodClosing, responses=PeriodShown)
    def post(self, request: Request, period_id: UUID) -> Response:
        """Closes a month: it is `closing` until the ledger closes it. One that is closing or closed does not change."""
        fields = self.read(PeriodClosing)
        return Response(show_period(begin_closing(self.actor, period_id, accepts_unpriced=fields["accept_unpriced"])))


class PeriodClosingCancelView(ApiView):
    """`/periods/{id}/cancel-closing`."""

    @extend_schema(operation_id="periods_cancel_closing", request=None, responses=PeriodShown)
    def post(self, request: Request, period_id: UUID) -> Response:
        """Sets a `closing` month back to open. One that is open does not change; a closed one has to be reopened."""
        return Response(show_period(cancel_closing(self.actor, period_id)))


class PeriodReopeningView(ApiView):
    """`/periods/{id}/reopening`."""

    @extend_schema(operation_id="periods_request_reopening", request=ReopeningCreate, responses={201: ReopeningShown})
    def post(self, request: Request, period_id: UUID) -> Response:
        """Asks to reopen the last closed month. Nothing happens until another person approves."""
        made = request_reopening(self.actor, period_id, self.read(ReopeningCreate)["reason"])
        shown = {
            "reason": made.reason,
            "requested_by": made.requested_by_name,
            "requested_at": instant(made.requested_at),
        }
        return Response(shown, status=status.HTTP_201_CREATED)


class PeriodReopeningApprovalView(ApiView):
    """`/periods/{id}/reopening/approve`."""

    @extend_schema(operation_id="periods_approve_reopening", request=None, responses=PeriodShown)
    def post(self, request: Request, period_id: UUID) -> Response:
        """Reopens a month that another person asked to reopen."""
        return Response(show_period(approve_reopening(self.actor, period_id)))


def show_period(period: LedgerPeriod) -> dict[str, Any]:
    """A period as the API shows it."""
    is_closed = period.state == LedgerPeriod.State.CLOSED
    return {
        "id": str(period.id),
        "organisation": period.organisation.path,
        "month": f"{period.month:%Y-%m}",
        "state": period.state,
        "checksum": period.checksum or None,
        "revision": period.revision,
        "closed_by": period.closing_by_name if is_closed else None,
        "closed_at": instant(period.closed_at) if is_closed else None,
    }
