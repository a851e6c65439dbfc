"""/jobs/{id}/migrate: moving a running job, and what that would do."""

from typing import Any
from uuid import UUID

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from billing.api.shapes import MoneyShape
from federation.models.moves import MOST_CLUSTERS
from federation.operations import request_migration
from federation.queries.jobs import job_of
from federation.queries.moves import MOST_REASON_BYTES, Lost, MovePlan, preview
from foundation.plain_json import instant
from tenancy.api.views import ApiView

from .answers import why_not_json
from .estimates import known_money
from .jobs import with_cost
from .pending_stops import wait_field
from .shapes import JobShape, WhyNotShape


class MigrationShape(serializers.Serializer[Any]):
    clusters = serializers.ListField(
        child=serializers.CharField(max_length=63),
        required=False,
        max_length=MOST_CLUSTERS,
        help_text="Names, or ids, of the clusters where it is to continue. By default, any other.",
    )
    reason = serializers.CharField(
        required=False, max_length=MOST_REASON_BYTES, help_text="Why, for the job's timeline."
    )
    lose_work = serializers.BooleanField(
        required=False, help_text="Whether a job without a checkpoint for the new place is moved too. By default, no."
    )
    wait_for_checkpoint_seconds = wait_field()


class MoveEndShape(serializers.Serializer[Any]):
    """Where a move leads from or to. `flavor` is that of the first pod set."""

    cluster = serializers.CharField()
    flavor = serializers.CharField()
    price_per_hour = MoneyShape(allow_null=True, help_text="Of all pods; null if one has no price.")


class RepeatedWorkShape(serializers.Serializer[Any]):
    """Work since the last checkpoint, or since the start if it cannot be resumed there."""

    seconds = serializers.IntegerField()
    gpu_hours = serializers.CharField()
    cost = MoneyShape(allow_null=True, help_text="What it costs at today's price where the job runs.")


class RefusedMoveShape(serializers.Serializer[Any]):
    code = serializers.ChoiceField(choices=["state_conflict", "no_place_to_move", "cannot_resume"])
    message = serializers.CharField()


class MovePreviewShape(serializers.Serializer[Any]):
    """What a move would do now. It reserves nothing."""

    possible = serializers.BooleanField()
    refusal = RefusedMoveShape(allow_null=True, help_text="Why it is not possible, as the move itself would answer.")
    origin = MoveEndShape(allow_null=True, help_text="Null if the job does not run.")
    destination = MoveEndShape(allow_null=True, help_text="Null if no cluster in question has room now.")
    expected_start_at = serializers.DateTimeField(
        allow_null=True, help_text="When its pods would run there: after it has stopped, and its images are pulled."
    )
    repeated_work = RepeatedWorkShape(allow_null=True)
    why_not = WhyNotShape(many=True, help_text="If there is no destination, the reasons of the clusters in question.")


def preview_json(plan: MovePlan) -> dict[str, Any]:
    """The plan, for users."""
    run, quote, place = plan.run, plan.quote, plan.place
    start = quote.expected_start if quote else None
    return {
        "possible": plan.refusal is None,
        "refusal": None if plan.refusal is None else {"code": plan.refusal.code, "message": plan.refusal.detail},
        "origin": None
        if run is None or quote is None
        else _end(run.cluster, run.pods[0].flavor, known_money(quote.hourly_cost, quote.currency)),
        "destination": None
        if place is None
        else _end(place.cluster, place.pod_sets[0].flavor, known_money(place.hourly_cost, place.currency)),
        "expected_start_at": None if start is None else instant(start),
        "repeated_work": None if plan.lost is None or quote is None else _lost_json(plan.lost, quote.currency),
        "why_not": [why_not_json(reason) for reason in plan.why_not],
    }


def _end(cluster: str, flavor: str, price: dict[str, str] | None) -> dict[str, Any]:
    return {"cluster": cluster, "flavor": flavor, "price_per_hour": price}


def _lost_json(lost: Lost, currency: str) -> dict[str, Any]:
    return {
        "seconds": lost.seconds,
        "gpu_hours": format(lost.gpu_hours, "f"),
        "cost": known_money(lost.cost, currency),
    }


class Migration(ApiView):
    @extend_schema(request=MigrationShape, responses={202: JobShape})
    def post(self, request: Request, job_id: UUID) -> Response:
        """Moves a running job to another cluster: its run is stopped with time for a checkpoint, and it is placed again
        elsewhere. Refused unless another cluster, one of those named, has room for it now. Idempotent while its run is
        being stopped, and later with an Idempotency-Key.
        """

        def produce() -> tuple[int, dict[str, Any]]:
            request_migration(self.actor, job_id, request.data)
            return 202, with_cost(self.actor, job_of(self.actor, job_id))

        return self.created(request, None, f"jobs/{job_id}/migrate", produce)


class MigrationPreview(ApiView):
    only_asks = True

    @extend_schema(request=MigrationShape, responses=MovePreviewShape)
    def post(self, request: Request, job_id: UUID) -> Response:
        """Returns what moving the job would do now, without moving it: where it would continue and when, the prices here and
        there, and the work that it would repeat; or why it cannot be moved. Takes the body of the move.
        """
        return Response(preview_json(preview(self.actor, job_id, request.data)))
