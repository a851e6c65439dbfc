"""/jobs/{id}/preemptions: why a job was stopped for another one, or who was stopped for it."""

from typing import Any
from uuid import UUID

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from federation.models.preemptions import OUTCOMES
from federation.queries.preemptions import CandidateLine, PreemptionView, preemptions_of, views_of
from foundation.plain_json import instant
from foundation.schema import page_shape
from foundation.shapes import Instant
from tenancy.api.views import ApiView

ORDERS = {"-created": "-id", "created": "id"}


class JobNameShape(serializers.Serializer[Any]):
    job = serializers.UUIDField()
    name = serializers.CharField(allow_null=True, help_text="Null if you may not see the job.")
    tenant = serializers.CharField(allow_null=True)
    priority = serializers.IntegerField()


class LoanShape(serializers.Serializer[Any]):
    """The limit by which a job used borrowed quota."""

    tenant = serializers.CharField(allow_null=True, help_text="Whose limit. Null if you may not see the job.")
    resource = serializers.CharField()
    clusters = serializers.ListField(child=serializers.CharField())
    held = serializers.CharField(help_text="By jobs that were not being stopped.")
    nominal = serializers.CharField(help_text="What of that was its own.")
    is_overdue = serializers.BooleanField(help_text="Whether the job ran longer than its estimate.")
    weight = serializers.FloatField(help_text="What part of the cost counted in the choice.")


class LoweredLimitShape(serializers.Serializer[Any]):
    """A limit that was lowered below what was held there."""

    limit = serializers.UUIDField()
    tenant = serializers.CharField()
    resource = serializers.CharField()
    clusters = serializers.ListField(child=serializers.CharField())
    held = serializers.CharField(help_text="At the decision.")
    most = serializers.CharField(help_text="What may be held, borrowed quota included.")
    lowered_by = serializers.CharField()


class CandidateShape(JobNameShape):
    """A running job that was stopped, or could have been."""

    gpus = serializers.FloatField(help_text="Its size; without GPUs, sixteen cores count as one.")
    lost_seconds = serializers.IntegerField(help_text="Of work since its last checkpoint, at that time.")
    times_preempted = serializers.IntegerField(help_text="How often it was stopped for others before.")
    cost_gpu_seconds = serializers.FloatField(help_text="What it costs to stop it.")
    loan = LoanShape(allow_null=True, help_text="If it could be stopped because it borrowed; else null.")


class VictimShape(CandidateShape):
    """A job that was stopped."""

    kept_nodes = serializers.ListField(
        child=serializers.CharField(),
        help_text="Of an elastic job: the nodes that are kept for it until it is placed, at most until `deadline_at`, to go on with fewer pods. Empty: none, or "
        "you may not see the job.",
    )


class PlaceShape(serializers.Serializer[Any]):
    """Another cluster where it would have fitted."""

    cluster = serializers.CharField()
    victims = serializers.IntegerField()
    cost_gpu_seconds = serializers.FloatField()


class PreemptionShape(serializers.Serializer[Any]):
    id = serializers.UUIDField()
    role = serializers.ChoiceField(
        choices=["victim", "beneficiary"], help_text="Whether this job was stopped, or others were stopped for it."
    )
    beneficiary = JobNameShape(allow_null=True, help_text="Null if jobs were stopped because of `limits`.")
    limits = LoweredLimitShape(
        many=True, help_text="The lowered limits on the path of its tenant for which it was stopped; else empty."
    )
    cluster = serializers.CharField(allow_null=True, help_text="Where the place is. Null without a beneficiary.")
    nodes = serializers.ListField(child=serializers.CharField(), help_text="Kept for the beneficiary until `ended_at`.")
    cost_gpu_seconds = serializers.FloatField()
    is_exact = serializers.BooleanField(help_text="Whether no cheaper choice existed on that cluster.")
    victims = VictimShape(many=True)
    considered = CandidateShape(
        many=True, help_text="Up to 20 others that could have been stopped, the cheapest first."
    )
    alternatives = PlaceShape(many=True)
    created_at = Instant()
    deadline_at = Instant(allow_null=True, help_text="Null without a beneficiary: nothing is kept.")
    ended_at = Instant(allow_null=True)
    outcome = serializers.ChoiceField(
        choices=OUTCOMES,
        allow_null=True,
        help_text="`placed`: the beneficiary got a place; `withdrawn`: it does not wait any more; `expired`: the deadline "
        "passed; `reduced`: lowered limits, nothing was kept. Null while it lasts.",
    )


class Preemptions(ApiView):
    paged = True

    @extend_schema(operation_id="jobs_preemptions_list", responses=page_shape(PreemptionShape))
    def get(self, request: Request, job_id: UUID) -> Response:
        """Lists the decisions in which the job was stopped for another one or for a lowered limit, or others were stopped
        for it, newest first. Jobs that you may not see have no names.
        """
        page = self.page(preemptions_of(self.actor, job_id), orders=ORDERS, render=lambda row: row)
        page.data["items"] = [_shown(one) for one in views_of(self.actor, job_id, page.data["items"])]
        return page


def _shown(view: PreemptionView) -> dict[str, Any]:
    return {
        "id": str(view.id),
        "role": "victim" if view.is_victim else "beneficiary",
        "beneficiary": _beneficiary(view),
        "limits": [dict(one) for one in view.limits],
        "cluster": view.cluster or None,
        "nodes": list(view.nodes),
        "cost_gpu_seconds": view.cost_gpu_seconds,
        "is_exact": view.is_exact,
        "victims": [{**_candidate(one), "kept_nodes": list(one.kept_nodes)} for one in view.victims],
        "considered": [_candidate(one) for one in view.considered],
        "alternatives": [dict(one) for one in view.alternatives],
        "created_at": instant(view.created_at),
        "deadline_at": None if view.beneficiary_id is None else instant(view.deadline_at),
        "ended_at": instant(view.ended_at),
        "outcome": view.outcome or None,
    }


def _beneficiary(view: PreemptionView) -> dict[str, Any] | None:
    if view.beneficiary_id is None:
        return None
    return {
        "job": str(view.beneficiary_id),
        "name": view.beneficiary or None,
        "tenant": view.beneficiary_tenant or None,
        "priority": view.beneficiary_priority,
    }


def _candidate(one: CandidateLine) -> dict[str, Any]:
    return {
        "job": str(one.job_id),
        "name": one.name or None,
        "tenant": one.tenant or None,
        "priority": one.priority,
        "gpus": one.gpus,
        "lost_seconds": one.lost_seconds,
        "times_preempted": one.times_preempted,
        "cost_gpu_seconds": one.cost_gpu_seconds,
        "loan": None if one.loan is None else dict(one.loan),
    }
