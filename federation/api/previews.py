"""/quotas/preview and /tree/preview: what a change of the quota tree does to the next round, without making it."""

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from federation.operations.previews import Affected, AffectedJob, Foreseen, preview_limit, preview_tree
from foundation.plain_json import instant
from foundation.shapes import Instant
from quotas.api.shapes import QuotaPut, wanted_limit
from tenancy.api.views import ApiView

from .tree import TreePlanAsk


class AffectedJobShape(serializers.Serializer[Any]):
    """A job that the change affects."""

    job = serializers.UUIDField()
    name = serializers.CharField()
    tenant = serializers.CharField()
    cluster = serializers.CharField(
        allow_null=True, help_text="Where it starts or runs. Null if it waits, and for a cluster that you may not see."
    )
    code = serializers.CharField(allow_null=True, help_text="Why it waits or is stopped; null if it starts.")
    message = serializers.CharField(allow_null=True)
    at = Instant(allow_null=True, help_text="When it is stopped, at the earliest.")
    for_job = serializers.UUIDField(
        allow_null=True, help_text="The job that gets its place. Null also if you may not see that."
    )
    lost_seconds = serializers.IntegerField(allow_null=True, help_text="Work that it repeats if it is stopped.")
    cost_gpu_seconds = serializers.FloatField(allow_null=True, help_text="What that costs, as the choice counts it.")
    anyway = serializers.BooleanField(help_text="Whether it is stopped without the change too.")


class AffectedShape(serializers.Serializer[Any]):
    """The jobs of one kind, in the order in which the round decides."""

    count = serializers.IntegerField(help_text="All of them.")
    hidden = serializers.IntegerField(help_text="How many of them are of tenants that you may not see.")
    jobs = AffectedJobShape(many=True, help_text="At most 100 of the others.")


class PreviewShape(serializers.Serializer[Any]):
    """What a change does to the next round."""

    as_of = Instant()
    dispatch_open = serializers.BooleanField(help_text="False in a standstill: nothing starts or stops before its end.")
    considered = serializers.IntegerField(help_text="The number of waiting jobs that the round considers.")
    starts = AffectedShape(help_text="Jobs that start with the change only.")
    waits = AffectedShape(help_text="Jobs that would start without the change, and wait.")
    other_reasons = AffectedShape(help_text="Jobs that wait either way, and with the change for another reason.")
    stops = AffectedShape(help_text="Running jobs that are stopped.")
    spared = AffectedShape(help_text="Running jobs that are stopped without the change only.")


class QuotaPreview(ApiView):
    """`/quotas/preview`."""

    only_asks = True

    @extend_schema(operation_id="quotas_preview", request=QuotaPut, responses=PreviewShape)
    def post(self, request: Request) -> Response:
        """Returns what a limit would do to the next round. Changes nothing; refuses what setting the limit would refuse."""
        return Response(_shown(preview_limit(self.actor, wanted_limit(self.read(QuotaPut)))))


class TreePreview(ApiView):
    """`/tree/preview`."""

    only_asks = True

    @extend_schema(operation_id="tree_preview", request=TreePlanAsk, responses=PreviewShape)
    def post(self, request: Request) -> Response:
        """Returns what a file would do to the next round. Changes nothing; refuses what applying the file would refuse."""
        asked = self.read(TreePlanAsk)
        return Response(_shown(preview_tree(self.actor, asked["file"], prune=asked["prune"])))


def _shown(found: Foreseen) -> dict[str, Any]:
    return {
        "as_of": instant(found.as_of),
        "dispatch_open": found.is_dispatch_open,
        "considered": found.considered,
        "starts": _affected(found.starts),
        "waits": _affected(found.waits),
        "other_reasons": _affected(found.otherwise),
        "stops": _affected(found.stops),
        "spared": _affected(found.spared),
    }


def _affected(found: Affected) -> dict[str, Any]:
    return {"count": found.count, "hidden": found.hidden, "jobs": [_job(one) for one in found.jobs]}


def _job(one: AffectedJob) -> dict[str, Any]:
    is_stopped = one.at is not None
    return {
        "job": str(one.job_id),
        "name": one.name,
        "tenant": one.tenant_path,
        "cluster": one.cluster or None,
        "code": one.code or None,
        "message": one.message or None,
        "at": instant(one.at),
        "for_job": None if one.beneficiary is None else str(one.beneficiary),
        "lost_seconds": one.lost_seconds if is_stopped else None,
        "cost_gpu_seconds": round(one.cost_gpu_seconds, 3) if is_stopped else None,
        "anyway": one.is_anyway,
    }
