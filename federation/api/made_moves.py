"""/jobs/{id}/moves: the moves of a job, and what those to cheaper places have saved."""

from decimal import Decimal
from typing import Any
from uuid import UUID

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from billing.api.shapes import MoneyShape
from federation.models import Move
from federation.queries.made_moves import STATES, MoveView, move_views, moves_of
from foundation.plain_json import instant
from foundation.schema import page_shape
from foundation.shapes import Instant
from tenancy.api.views import ApiView

from .estimates import known_money

ORDERS = {"-created": "-attempt_id", "created": "attempt_id"}


class MadeMoveShape(serializers.Serializer[Any]):
    """A move. Prices are of an hour of all pods; all money is null of moves that were not for a lower price."""

    attempt = serializers.UUIDField(help_text="The run that was stopped.")
    state = serializers.ChoiceField(
        choices=STATES,
        help_text="`stopping`: its run is being stopped; `made`; `not_made`: the run ended otherwise first, so the job did not move.",
    )
    cause = serializers.ChoiceField(choices=Move.Cause.values)
    created_at = Instant()
    origin = serializers.CharField(allow_null=True, help_text="The cluster where it ran; null if you may not see it.")
    cluster = serializers.CharField(
        allow_null=True,
        help_text="Where it was placed then, or is expected to be; null if you may not see it, or if it did not move.",
    )
    lost_seconds = serializers.IntegerField(help_text="Of work that it repeats.")
    price_from = MoneyShape(allow_null=True, help_text="Where it ran, when it was moved.")
    price_to = MoneyShape(
        allow_null=True, help_text="At the new place, then; null if it was placed on another cluster than expected."
    )
    saving = MoneyShape(allow_null=True, help_text="What was expected of the work that was certainly left.")
    cost = MoneyShape(allow_null=True, help_text="What the move itself was expected to cost.")
    realised_saving = MoneyShape(
        allow_null=True,
        help_text="So far: the work of its runs since then at `price_from`, less what they cost. Null before they begin.",
    )
    finish_by = Instant(allow_null=True, help_text="The deadline of a move for that.")
    late_at = Instant(allow_null=True, help_text="Likewise: when the job could have ended where it ran.")


class MadeMoves(ApiView):
    paged = True

    @extend_schema(operation_id="jobs_moves_list", responses=page_shape(MadeMoveShape))
    def get(self, request: Request, job_id: UUID) -> Response:
        """Lists the moves of a job, newest first: why it was moved, from where to where, and of moves to cheaper places what was
        expected and what they have saved so far. Clusters that you may not see have no names.
        """
        page = self.page(moves_of(self.actor, job_id), orders=ORDERS, render=lambda row: row)
        page.data["items"] = [_shown(one) for one in move_views(self.actor, job_id, page.data["items"])]
        return page


def _shown(one: MoveView) -> dict[str, Any]:
    def money(amount: Decimal | None) -> dict[str, str] | None:
        return known_money(amount, one.currency)

    return {
        "attempt": str(one.id),
        "state": one.state,
        "cause": one.cause,
        "created_at": instant(one.at),
        "origin": one.origin or None,
        "cluster": one.cluster or None,
        "lost_seconds": one.lost_seconds,
        "price_from": money(one.price_from),
        "price_to": money(one.price_to),
        "saving": money(one.saving),
        "cost": money(one.price_of_move),
        "realised_saving": money(one.realised),
        "finish_by": instant(one.finish_by),
        "late_at": instant(one.late_at),
    }
