"""Recommendations to partition GPUs of a cluster otherwise, over HTTP."""

from decimal import Decimal
from fractions import Fraction
from typing import Any
from uuid import UUID

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from federation.queries.partitions import Recommendation, recommendations
from tenancy.api.views import ApiView

SECONDS_AN_HOUR = 3600
PLACES = Decimal("0.001")


class SlicesShown(serializers.Serializer[Any]):
    """A number of slices of a profile; the profile `whole` is GPUs without slices."""

    profile = serializers.CharField()
    count = serializers.IntegerField()


class StartedJobShown(serializers.Serializer[Any]):
    """A job that would start."""

    id = serializers.UUIDField()
    name = serializers.CharField()
    tenant = serializers.CharField()


class PartitionShown(serializers.Serializer[Any]):
    """A node to partition otherwise. The gateway does not do it."""

    node = serializers.CharField()
    gpu_model = serializers.CharField()
    now = SlicesShown(many=True)
    then = serializers.ListField(child=SlicesShown(many=True), help_text="Of each of its GPUs.")
    drain_first = serializers.BooleanField(help_text="Whether something runs on it, which has to end before.")
    jobs = StartedJobShown(many=True)
    gained_gpu_hours = serializers.CharField(help_text="The work of these jobs on the node.")
    cost_gpu_hours = serializers.CharField(help_text="What its GPUs do not do while they are partitioned.")


class PartitionsShown(serializers.Serializer[Any]):
    """The recommendations for a cluster."""

    items = PartitionShown(many=True)


class PartitionsView(ApiView):
    """`/clusters/{id}/partitions`."""

    @extend_schema(operation_id="partitions_list", responses=PartitionsShown)
    def get(self, request: Request, cluster_id: UUID) -> Response:
        """Lists the nodes whose GPUs could get other MIG slices, so that jobs which wait for slices start. You must manage the cluster."""
        _, found = recommendations(self.actor, cluster_id)
        return Response({"items": [_shown(one) for one in found]})


def _shown(one: Recommendation) -> dict[str, Any]:
    proposal = one.proposal
    return {
        "node": proposal.node.name,
        "gpu_model": proposal.node.model,
        "now": _slices(sorted(proposal.node.slices.items())),
        "then": [_slices(mix) for mix in proposal.mixes],
        "drain_first": proposal.drains,
        "jobs": [{"id": str(job.id), "name": job.name, "tenant": job.tenant.path} for job in one.jobs],
        "gained_gpu_hours": _hours(proposal.gained),
        "cost_gpu_hours": _hours(proposal.cost),
    }


def _slices(units: Any) -> list[dict[str, Any]]:
    return [{"profile": name, "count": count} for name, count in units]


def _hours(seconds: Fraction) -> str:
    exact = seconds / SECONDS_AN_HOUR
    return str((Decimal(exact.numerator) / Decimal(exact.denominator)).quantize(PLACES))
