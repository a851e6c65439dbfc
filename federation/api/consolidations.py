"""/jobs/{id}/consolidations: who moved so that a job fits, or for whom it moved."""

from typing import Any
from uuid import UUID

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from federation.models.consolidations import OUTCOMES
from federation.queries.consolidations import ConsolidationView, MoveLine, consolidations_of, plan_views
from foundation.plain_json import instant
from foundation.schema import page_shape
from foundation.shapes import Instant
from tenancy.api.views import ApiView

ORDERS = {"-created": "-id", "created": "id"}


class PlannedJobShape(serializers.Serializer[Any]):
    job = serializers.UUIDField()
    name = serializers.CharField(allow_null=True, help_text="Null if you may not see the job.")
    tenant = serializers.CharField(allow_null=True)
    gpus = serializers.FloatField(help_text="Its size; slices count as GPUs.")


class PlannedMoveShape(PlannedJobShape):
    """A job that moved."""

    origin = serializers.CharField(allow_null=True, help_text="The cluster where it ran; null if you may not see it.")
    cluster = serializers.CharField(
        allow_null=True, help_text="Where its new place is; null, and without nodes, if you may not see it."
    )
    nodes = serializers.ListField(child=serializers.CharField(), help_text="Kept for it until `deadline_at` at most.")
    lost_seconds = serializers.IntegerField(help_text="Of work that it repeats.")


class ConsolidationShape(serializers.Serializer[Any]):
    id = serializers.UUIDField()
    role = serializers.ChoiceField(
        choices=["moved", "beneficiary"], help_text="Whether this job moved, or others moved for it."
    )
    beneficiary = PlannedJobShape()
    cluster = serializers.CharField(allow_null=True, help_text="Where its place is; null if you may not see it.")
    nodes = serializers.ListField(child=serializers.CharField(), help_text="Kept for the beneficiary until `ended_at`.")
    moves = PlannedMoveShape(many=True)
    gain_gpu_seconds = serializers.FloatField(help_text="The work that it does earlier than without the moves.")
    cost_gpu_seconds = serializers.FloatField(help_text="What the moves cost. At most `share` of the gain.")
    lost_gpu_seconds = serializers.FloatField(help_text="The work that is repeated.")
    share = serializers.FloatField()
    otherwise_at = Instant(allow_null=True, help_text="When it was expected to start without them, if known.")
    is_exact = serializers.BooleanField(help_text="Whether no cheaper choice existed on that cluster.")
    created_at = Instant()
    deadline_at = Instant()
    ended_at = Instant(allow_null=True)
    outcome = serializers.ChoiceField(
        choices=OUTCOMES,
        allow_null=True,
        help_text="`placed`: the beneficiary got a place; `withdrawn`: it does not wait any more; `expired`: the deadline "
        "passed. Null while it lasts.",
    )


class Consolidations(ApiView):
    paged = True

    @extend_schema(operation_id="jobs_consolidations_list", responses=page_shape(ConsolidationShape))
    def get(self, request: Request, job_id: UUID) -> Response:
        """Lists the plans in which the job moved so that a larger one fits, or others moved for it, newest first. Jobs that you
        may not see have no names, nor do clusters that you may not see.
        """
        page = self.page(consolidations_of(self.actor, job_id), orders=ORDERS, render=lambda row: row)
        page.data["items"] = [_shown(one) for one in plan_views(self.actor, job_id, page.data["items"])]
        return page


def _shown(view: ConsolidationView) -> dict[str, Any]:
    return {
        "id": str(view.id),
        "role": "moved" if view.is_moved else "beneficiary",
        "beneficiary": {
            "job": str(view.job_id),
            "name": view.name or None,
            "tenant": view.tenant or None,
            "gpus": view.gpus,
        },
        "cluster": view.cluster or None,
        "nodes": list(view.nodes),
        "moves": [_move(one) for one in view.moves],
        "gain_gpu_seconds": view.gain_gpu_seconds,
        "cost_gpu_seconds": view.cost_gpu_seconds,
        "lost_gpu_seconds": view.lost_gpu_seconds,
        "share": view.share,
        "otherwise_at": instant(view.otherwise_at),
        "is_exact": view.is_exact,
        "created_at": instant(view.created_at),
        "deadline_at": instant(view.deadline_at),
        "ended_at": instant(view.ended_at),
        "outcome": view.outcome or None,
    }


def _move(one: MoveLine) -> dict[str, Any]:
    return {
        "job": str(one.job_id),
        "name": one.name or None,
        "tenant": one.tenant or None,
        "gpus": one.gpus,
        "origin": one.origin or None,
        "cluster": one.cluster or None,
        "nodes": list(one.nodes),
        "lost_seconds": one.lost_seconds,
    }
