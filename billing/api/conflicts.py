"""Conflicts of postings over HTTP."""

from typing import Any
from uuid import UUID

from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from billing.models import PostingConflict
from billing.models.periods import REASON_LENGTH
from billing.operations.conflicts import resolve_conflict
from billing.queries.conflicts import ConflictDetail, conflict_detail, visible_conflicts
from foundation.plain_json import instant
from foundation.problems import Invalid
from foundation.schema import page_shape
from foundation.shapes import Instant, StrictShape, Text
from tenancy.api.views import ApiView

ORDERS = {"seen": "seen_at", "-seen": "-seen_at"}
STATES = ["open", "resolved"]
STATE = OpenApiParameter("state", str, enum=STATES, description="Only conflicts in this state.")


class ConflictResolution(StrictShape):
    """Which content stands, and why."""

    decision = serializers.ChoiceField(
        PostingConflict.Decision.values,
        help_text="`posted`: dismiss the offered content. `offered`: replace the posted one.",
    )
    reason = Text(max_length=REASON_LENGTH)


class ConflictShown(serializers.Serializer[Any]):
    """Two contents under one key of the ledger."""

    id = serializers.UUIDField()
    organisation = serializers.CharField()
    key = serializers.CharField()
    month = serializers.CharField(help_text="Of the charge, YYYY-MM.")
    state = serializers.ChoiceField(STATES)
    posted_digest = serializers.CharField(help_text="SHA-256 of the posted content.")
    offered_digest = serializers.CharField()
    seen_at = Instant()
    decision = serializers.CharField(allow_null=True)
    reason = serializers.CharField(allow_null=True)
    resolved_by = serializers.CharField(allow_null=True)
    resolved_at = Instant(allow_null=True)


class ConflictDetailShown(ConflictShown):
    """A conflict with both contents as canonical text."""

    posted = serializers.CharField()
    offered = serializers.CharField()


class ConflictsView(ApiView):
    """`/posting-conflicts`."""

    paged = True
    filters = ("state",)

    @extend_schema(operation_id="posting_conflicts_list", parameters=[STATE], responses=page_shape(ConflictShown))
    def get(self, request: Request) -> Response:
        """Lists the conflicts of postings of the organisations that you see as a whole. An open one blocks its month."""
        state = self.query.get("state", "")
        if state not in ("", *STATES):
            raise Invalid.field("state", "unknown_state", f"one of {', '.join(STATES)}")
        return self.page(visible_conflicts(self.actor, state=state), orders=ORDERS, render=show_conflict)


class ConflictView(ApiView):
    """`/posting-conflicts/{id}`."""

    @extend_schema(operation_id="posting_conflicts_get", responses=ConflictDetailShown)
    def get(self, request: Request, conflict_id: UUID) -> Response:
        """Returns a conflict with both contents."""
        return Response(show_detail(conflict_detail(self.actor, conflict_id)))


class ConflictResolutionView(ApiView):
    """`/posting-conflicts/{id}/resolve`."""

    @extend_schema(operation_id="posting_conflicts_resolve", request=ConflictResolution, responses=ConflictShown)
    def post(self, request: Request, conflict_id: UUID) -> Response:
        """Resolves a conflict. The same decision again changes nothing."""
        fields = self.read(ConflictResolution)
        return Response(show_conflict(resolve_conflict(self.actor, conflict_id, fields["decision"], fields["reason"])))


def show_conflict(row: PostingConflict) -> dict[str, Any]:
    """A conflict as the API shows it."""
    return {
        "id": str(row.id),
        "organisation": row.organisation.path,
        "key": row.key,
        "month": f"{row.month:%Y-%m}",
        "state": "open" if row.resolved_at is None else "resolved",
        "posted_digest": row.standing_digest,
        "offered_digest": row.offered_digest,
        "seen_at": instant(row.seen_at),
        "decision": row.decision or None,
        "reason": row.note or None,
        "resolved_by": row.resolved_by_name or None,
        "resolved_at": instant(row.resolved_at),
    }


def show_detail(detail: ConflictDetail) -> dict[str, Any]:
    """A conflict with both contents."""
    return {**show_conflict(detail.row), "posted": detail.posted, "offered": detail.row.offered}
