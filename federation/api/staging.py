"""Staging plans and copies of datasets over HTTP: translate, make one call, translate back."""

from typing import Any
from uuid import UUID

from drf_spectacular.utils import OpenApiResponse, extend_schema
from rest_framework import serializers, status
from rest_framework.request import Request
from rest_framework.response import Response

from clusters.engine.storages import MOST_PATH
from clusters.operations.staging import Spot, WantedPlan, make_staging_plan, remove_staging_plan
from clusters.queries.staging import plan_by_id
from federation.operations import cancel_stage_in, run_without_data, start_stage_in
from federation.queries.jobs import job_of
from federation.queries.staging import STATES, StageInView, view_of, views_of_dataset, views_on_cluster
from foundation.plain_json import instant
from foundation.shapes import Instant, StrictShape, Text
from tenancy.api.views import ApiView

from .jobs import with_cost
from .shapes import JobShape


class SpotShape(StrictShape):
    """A path on a storage of the cluster."""

    storage = Text(max_length=63, help_text="Name of a storage of the cluster that serves the dataset's tenant.")
    path = Text(max_length=MOST_PATH, help_text="Below the tenant's part of the storage, such as `imagenet/2012`.")


class StagingPlanCreate(StrictShape):
    """From where on a cluster a dataset is copied, and to where."""

    cluster = Text(max_length=63, help_text="Name of a cluster that serves the dataset's tenant.")
    source = SpotShape()  # type: ignore[assignment]  # the stubs know DRF's own `source`
    target = SpotShape(help_text="Its storage must be `read_write`.")
    sha256 = Text(
        required=False,
        allow_blank=True,
        max_length=64,
        help_text="What the copy must have: of the list of its files' sha256 and names, sorted by name. By default, anything.",
    )


class ReplicaShown(serializers.Serializer[Any]):
    """A copy that is there."""

    storage = serializers.CharField()
    path = serializers.CharField()
    size_bytes = serializers.IntegerField(allow_null=True)
    sha256 = serializers.CharField()
    staged_at = Instant()
    egress_cost = serializers.CharField(
        allow_null=True,
        help_text="Of the copy, by the egress prices then; null if unknown. It is shown and not charged.",
    )
    egress_currency = serializers.CharField()


class StagingPlanShown(serializers.Serializer[Any]):
    """A staging plan with its copy."""

    id = serializers.UUIDField()
    dataset = serializers.CharField()
    tenant = serializers.CharField()
    cluster = serializers.CharField()
    source = SpotShape()  # type: ignore[assignment]  # the stubs know DRF's own `source`
    target = SpotShape()
    sha256 = serializers.CharField()
    state = serializers.ChoiceField(choices=STATES)
    message = serializers.CharField(help_text="Of the last failure, or what the copy waits for.")
    why_not = serializers.CharField(help_text="Why nothing is copied now; empty if copies may begin.")
    copied_bytes = serializers.IntegerField(allow_null=True)
    total_bytes = serializers.IntegerField(allow_null=True)
    failures = serializers.IntegerField(help_text="In a row.")
    next_at = Instant(allow_null=True, help_text="When it is copied again at the earliest after a failure.")
    waiting_jobs = serializers.IntegerField()
    replica = ReplicaShown(allow_null=True)
    created_by = serializers.CharField()
    created_at = Instant()


class StagingPlansShown(serializers.Serializer[Any]):
    """The staging plans of a dataset, or on a cluster."""

    items = StagingPlanShown(many=True)


class StagingPlansView(ApiView):
    """`/datasets/{id}/staging-plans`."""

    @extend_schema(operation_id="staging_plans_list", responses=StagingPlansShown)
    def get(self, request: Request, dataset_id: UUID) -> Response:
        """Lists the dataset's staging plans on clusters that you may see, each with its copy."""
        return Response({"items": [show_view(view) for view in views_of_dataset(self.actor, dataset_id)]})

    @extend_schema(operation_id="staging_plans_create", request=StagingPlanCreate, responses={201: StagingPlanShown})
    def post(self, request: Request, dataset_id: UUID) -> Response:
        """Says how the dataset comes to a cluster. It is copied when a job waits for it, or when you start it."""
        body = self.read(StagingPlanCreate)
        body |= {name: Spot(**body[name]) for name in ("source", "target")}

        def produce() -> tuple[int, dict[str, Any]]:
            made = make_staging_plan(self.actor, dataset_id, WantedPlan(**body))
            return status.HTTP_201_CREATED, show_view(view_of(made))

        return self.created(request, None, f"staging plans of {dataset_id}", produce)


class StagingPlanView(ApiView):
    """`/datasets/{id}/staging-plans/{id}`."""

    @extend_schema(operation_id="staging_plans_read", responses=StagingPlanShown)
    def get(self, request: Request, dataset_id: UUID, plan_id: UUID) -> Response:
        """Returns a staging plan with its copy."""
        return Response(show_view(view_of(plan_by_id(self.actor, dataset_id, plan_id))))

    @extend_schema(operation_id="staging_plans_delete", responses={204: OpenApiResponse(description="Removed.")})
    def delete(self, request: Request, dataset_id: UUID, plan_id: UUID) -> Response:
        """Removes a staging plan and stops its copy. Files that were copied stay; placement counts them no longer."""
        remove_staging_plan(self.actor, dataset_id, plan_id)
        return Response(status=status.HTTP_204_NO_CONTENT)


class StageInStartView(ApiView):
    """`/datasets/{id}/staging-plans/{id}/start`."""

    @extend_schema(operation_id="staging_plans_start", request=None, responses=StagingPlanShown)
    def post(self, request: Request, dataset_id: UUID, plan_id: UUID) -> Response:
        """Copies the dataset, also if it was copied before or has failed. Harmless while it copies."""
        return Response(show_view(view_of(start_stage_in(self.actor, dataset_id, plan_id))))


class StageInCancelView(ApiView):
    """`/datasets/{id}/staging-plans/{id}/cancel`."""

    @extend_schema(operation_id="staging_plans_cancel", request=None, responses=StagingPlanShown)
    def post(self, request: Request, dataset_id: UUID, plan_id: UUID) -> Response:
        """Stops the copy. Jobs that wait for it are placed without it. Idempotent."""
        return Response(show_view(view_of(cancel_stage_in(self.actor, dataset_id, plan_id))))


class ClusterStagingView(ApiView):
    """`/clusters/{id}/staging-plans`."""

    @extend_schema(operation_id="cluster_staging_plans_list", responses=StagingPlansShown)
    def get(self, request: Request, cluster_id: UUID) -> Response:
        """Lists the staging plans on a cluster for datasets that you may see, each with its copy."""
        return Response({"items": [show_view(view) for view in views_on_cluster(self.actor, cluster_id)]})


class RunWithoutDataView(ApiView):
    """`/jobs/{id}/run-without-data`."""

    @extend_schema(operation_id="jobs_run_without_data", request=None, responses=JobShape)
    def post(self, request: Request, job_id: UUID) -> Response:
        """Lets a job that waits for copies of its data be placed without them. The copies go on. Idempotent."""
        run_without_data(self.actor, job_id)
        return Response(with_cost(self.actor, job_of(self.actor, job_id)))


def show_view(view: StageInView) -> dict[str, Any]:
    """A plan with its copy as the API shows it."""
    plan, row, replica = view.plan, view.row, view.replica
    return {
        "id": str(plan.id),
        "dataset": plan.dataset.name,
        "tenant": plan.dataset.tenant.path,
        "cluster": plan.cluster.name,
        "source": {"storage": plan.source.name, "path": plan.source_path},
        "target": {"storage": plan.target.name, "path": plan.target_path},
        "sha256": plan.sha256,
        "state": view.state,
        "message": view.message,
        "why_not": view.why_not,
        "copied_bytes": row.copied_bytes if row else None,
        "total_bytes": row.total_bytes if row else None,
        "failures": row.failures if row else 0,
        "next_at": instant(view.next_at),
        "waiting_jobs": view.waiting,
        "replica": None
        if replica is None
        else {
            "storage": plan.target.name,
            "path": replica.path,
            "size_bytes": replica.size_bytes,
            "sha256": replica.sha256,
            "staged_at": instant(replica.staged_at),
            "egress_cost": None if replica.egress_cost is None else str(replica.egress_cost),
            "egress_currency": replica.egress_currency,
        },
        "created_by": plan.created_by,
        "created_at": instant(plan.created_at),
    }
