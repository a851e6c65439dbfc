"""How jobs fared on a node and its devices, over HTTP: translate, make one call, translate back."""

from typing import Any
from uuid import UUID

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from federation.engine.failures.rates import Rate
from federation.engine.failures.rules import FailureClass
from federation.queries.node_history import Avoidance, Happening, RunHere, node_history
from federation.queries.nodes import NodeSummary, Tally, node_summary
from foundation.plain_json import instant
from foundation.schema import page_shape
from foundation.shapes import Instant
from tenancy.api.views import ApiView

PLACES = 6


class FailureRateShown(serializers.Serializer[Any]):
    """The share of jobs with a failure that is blamed on their node. Each job counts once."""

    failures = serializers.IntegerField()
    jobs = serializers.IntegerField(help_text="That ended there.")
    share = serializers.FloatField(allow_null=True, help_text="From 0 to 1; null without a job.")
    low = serializers.FloatField(help_text="The lower end of the 95 % interval (Wilson's score interval).")
    high = serializers.FloatField(help_text="Its upper end.")


class NodeTallyShown(serializers.Serializer[Any]):
    """What ran on a node, or with one of its devices."""

    runs = serializers.IntegerField(help_text="Attempts that started.")
    gpu_hours = serializers.CharField(help_text="Of physical GPUs.")
    failures = serializers.DictField(
        child=serializers.IntegerField(), help_text="Attempts that failed on the node, by the gateway's failure class."
    )
    rate = FailureRateShown()
    is_above_others = serializers.BooleanField(
        help_text="Whether two jobs or more failed and `rate.low` is above `others.high`."
    )
    last_failed_at = Instant(allow_null=True)


class DeviceTallyShown(NodeTallyShown):
    """What ran with one device. A failed run with several devices counts for each of them."""

    device = serializers.CharField(help_text="As driver/pool/name.")


class NodeSummaryShown(serializers.Serializer[Any]):
    """How jobs fared on a node in the last 30 days."""

    node = serializers.CharField()
    is_present = serializers.BooleanField(help_text="False if the cluster does not have the node any more.")
    faults = serializers.ListField(
        child=serializers.CharField(), help_text="Its taints that report a failed device, as key=value:effect."
    )
    avoided_until = Instant(allow_null=True, help_text="Null unless jobs avoid it now.")
    since = Instant(help_text="What the gateway first saw before this time does not count.")
    total = NodeTallyShown()
    devices = DeviceTallyShown(
        many=True, help_text="The devices that claims name; empty if the cluster counts GPUs only."
    )
    runs_without_devices = serializers.IntegerField(help_text="Runs with GPUs of which the cluster did not say which.")
    others = FailureRateShown(help_text="Of all other nodes of the clusters of the same owner.")


class RunJobShown(serializers.Serializer[Any]):
    """The job of a run."""

    id = serializers.UUIDField()
    name = serializers.CharField()
    tenant = serializers.CharField()
    attempt_id = serializers.UUIDField()
    attempt = serializers.IntegerField(help_text="Its number.")


class CreditedShown(serializers.Serializer[Any]):
    """An amount."""

    amount = serializers.CharField()
    currency = serializers.CharField()


class NodeRunShown(serializers.Serializer[Any]):
    """A pod on the node, and how its attempt ended."""

    job = RunJobShown(allow_null=True, help_text="Null if you may not see its tenant.")
    flavor = serializers.CharField(help_text="Its name when the run was placed.")
    devices = serializers.ListField(child=serializers.CharField(), help_text="As driver/pool/name; empty if not known.")
    gpu_units = serializers.IntegerField()
    started_at = Instant(allow_null=True)
    finished_at = Instant(allow_null=True)
    is_estimated = serializers.BooleanField(
        help_text="Whether the cluster's times were not plausible, and were bounded."
    )
    state = serializers.CharField(help_text="Of the attempt.")
    end_reason = serializers.CharField()
    exit_code = serializers.IntegerField(allow_null=True)
    disruption = serializers.CharField(help_text="The component that evicted it; empty if none did.")
    reason = serializers.CharField(help_text="What the cluster said of the pod.")
    failure_class = serializers.ChoiceField(
        choices=["", *(one.value for one in FailureClass)], help_text="Empty unless it failed on this node."
    )
    text = serializers.CharField()
    failed_on = serializers.CharField(help_text="The other node that the attempt failed on; else empty.")
    lost_work = serializers.CharField(help_text="Why its work counts as lost by infrastructure; empty if it does not.")
    credited = CreditedShown(many=True, help_text="What is not charged of the run. Empty: all of it is charged.")
    is_settled = serializers.BooleanField()


class NodeAvoidanceShown(serializers.Serializer[Any]):
    """That jobs began to avoid the node, or use it again."""

    id = serializers.UUIDField(help_text="As in `/clusters/{id}/avoided-nodes`.")
    begins = serializers.BooleanField()
    reason = serializers.CharField(help_text="Why jobs avoid it.")
    until_at = Instant()
    by = serializers.CharField(help_text="Who let jobs use it again; empty if its time was up.")


class HappeningShown(serializers.Serializer[Any]):
    """An entry of a node's history: a run or a period's beginning or end."""

    at = Instant(
        help_text="By the gateway's clock: when it first saw the run, or when jobs began or ceased to avoid the node."
    )
    run = NodeRunShown(allow_null=True)
    avoidance = NodeAvoidanceShown(allow_null=True)


class NodeView(ApiView):
    """`/clusters/{id}/nodes/{node}`."""

    @extend_schema(operation_id="nodes_read", responses=NodeSummaryShown)
    def get(self, request: Request, cluster_id: UUID, node: str) -> Response:
        """Returns how jobs fared on a node and on each of its devices in the last 30 days. You must manage the cluster."""
        return Response(_summary(node_summary(self.actor, cluster_id, node)))


class NodeHistoryView(ApiView):
    """`/clusters/{id}/nodes/{node}/history`."""

    filters = ("device",)
    paged = True

    @extend_schema(operation_id="nodes_history", responses=page_shape(HappeningShown))
    def get(self, request: Request, cluster_id: UUID, node: str) -> Response:
        """Lists what ran on a node and the periods in which jobs avoided it, newest first; `limit` counts runs. You must manage the
        cluster.
        """
        device = self.query.get("device", "")
        scope = f"{self.request.path}?device={device}|{self.actor.user_id}"
        found = node_history(self.actor, cluster_id, node, self.query, scope, device)
        return Response({"items": [_happening(one) for one in found.items], "next": found.following})


def _summary(one: NodeSummary) -> dict[str, Any]:
    return {
        "node": one.name,
        "is_present": one.present is not None,
        "faults": list(one.faults),
        "avoided_until": instant(one.avoided.until_at) if one.avoided else None,
        "since": instant(one.since),
        "total": _tally(one.whole, one.others),
        "devices": [{"device": each.device, **_tally(each, one.others)} for each in one.devices],
        "runs_without_devices": one.runs_without_devices,
        "others": _rate(one.others),
    }


def _tally(one: Tally, others: Rate) -> dict[str, Any]:
    return {
        "runs": one.runs,
        "gpu_hours": f"{one.gpu_hours:.6f}",
        "failures": dict(one.failures),
        "rate": _rate(one.rate),
        "is_above_others": one.rate.is_above(others),
        "last_failed_at": instant(one.last_failed_at),
    }


def _rate(one: Rate) -> dict[str, Any]:
    return {
        "failures": one.failures,
        "jobs": one.jobs,
        "share": None if one.share is None else round(one.share, PLACES),
        "low": round(one.low, PLACES),
        "high": round(one.high, PLACES),
    }


def _happening(one: Happening) -> dict[str, Any]:
    return {
        "at": instant(one.at),
        "run": _run(one.run) if one.run else None,
        "avoidance": _avoidance(one.avoidance) if one.avoidance else None,
    }


def _run(one: RunHere) -> dict[str, Any]:
    job = one.job
    known = None
    if job is not None:
        known = {
            "id": str(job.id), "name": job.name, "tenant": job.tenant, "attempt_id": str(job.attempt_id), "attempt": job.attempt,
        }  # fmt: skip
    return {
        "job": known,
        "flavor": one.flavor,
        "devices": list(one.devices),
        "gpu_units": one.gpu_units,
        "started_at": instant(one.started_at),
        "finished_at": instant(one.finished_at),
        "is_estimated": one.is_estimated,
        "state": one.state,
        "end_reason": one.end_reason,
        "exit_code": one.exit_code,
        "disruption": one.disruption,
        "reason": one.reason,
        "failure_class": one.failure_class,
        "text": one.text,
        "failed_on": one.failed_on,
        "lost_work": one.lost_work,
        "credited": [{"amount": f"{amount:.6f}", "currency": currency} for currency, amount in one.not_charged.items()],
        "is_settled": one.is_settled,
    }


def _avoidance(one: Avoidance) -> dict[str, Any]:
    return {
        "id": str(one.id), "begins": one.begins, "reason": one.reason, "until_at": instant(one.until_at), "by": one.by,
    }  # fmt: skip
