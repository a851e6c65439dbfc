"""Unusual spending over HTTP: days that stand out, the clusters and jobs behind one, and what people decide about it."""

from typing import Any
from uuid import UUID

from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from billing.models import SpendAnomaly
from billing.models.periods import REASON_LENGTH
from billing.operations.anomalies import decide_anomaly
from billing.queries.anomalies import anomaly_by_id, clusters_behind, jobs_behind, visible_anomalies
from foundation.plain_json import instant
from foundation.problems import Invalid
from foundation.schema import page_shape
from foundation.shapes import Instant, StrictShape, Text
from tenancy.api.views import ApiView

from .budgets import decimal_text

ORDERS = {"day": "day", "-day": "-day"}
STATES = list(SpendAnomaly.State.values)
OUTCOMES = ["explained", "dismissed"]
STATE = OpenApiParameter("state", str, enum=STATES, description="Only anomalies in this state.")


class AnomalyListed(serializers.Serializer[Any]):
    """A day on which a tenant spent unusually much on a flavor."""

    id = serializers.UUIDField()
    tenant = serializers.CharField(help_text="The path that it had when the day was found.")
    cluster = serializers.CharField(
        allow_null=True, help_text="Null: all clusters together. Findings of earlier versions name a single cluster."
    )
    flavor = serializers.CharField()
    day = serializers.DateField()
    currency = serializers.CharField()
    cost = serializers.CharField()
    usual = serializers.CharField(help_text="The median that it was compared with.")
    spread = serializers.CharField(help_text="The median absolute deviation of the weekday.")
    state = serializers.ChoiceField(STATES)
    reason = serializers.CharField(allow_null=True)
    decided_by = serializers.CharField(allow_null=True, help_text="Null if the routine closed it.")
    decided_at = Instant(allow_null=True)
    found_at = Instant()


class ClusterBehindShown(serializers.Serializer[Any]):
    """What a cluster cost on that day and on the same weekday of the week before."""

    cluster = serializers.CharField()
    cost = serializers.CharField()
    week_before = serializers.CharField()


class JobBehindShown(serializers.Serializer[Any]):
    """A job of that day on one cluster, with what it cost there before corrections."""

    job = serializers.UUIDField()
    name = serializers.CharField()
    user = serializers.CharField()
    cluster = serializers.CharField()
    cost = serializers.CharField()


class AnomalyShown(AnomalyListed):
    """An anomaly with the clusters and the most expensive jobs behind it."""

    clusters = ClusterBehindShown(many=True)
    jobs = JobBehindShown(many=True)


class AnomalyDecision(StrictShape):
    """What it was."""

    outcome = serializers.ChoiceField(
        OUTCOMES, help_text="`explained` is spending with a cause, `dismissed` is none of interest."
    )
    reason = Text(max_length=REASON_LENGTH)


class AnomaliesView(ApiView):
    """`/anomalies`."""

    filters = ("tenant", "state")
    paged = True

    @extend_schema(operation_id="anomalies_list", parameters=[STATE], responses=page_shape(AnomalyListed))
    def get(self, request: Request) -> Response:
        """Lists the days that stand out among those of the tenants that you see."""
        state = self.query.get("state", "")
        if state and state not in STATES:
            raise Invalid.field("state", "unknown_state", f"one of {', '.join(STATES)}")
        rows = visible_anomalies(self.actor, tenant_path=self.query.get("tenant", ""), state=state)
        return self.page(rows, orders=ORDERS, render=show_listed)


class AnomalyView(ApiView):
    """`/anomalies/{id}`."""

    @extend_schema(operation_id="anomalies_read", responses=AnomalyShown)
    def get(self, request: Request, anomaly_id: UUID) -> Response:
        """Returns an anomaly with the clusters and jobs behind it."""
        return Response(show_anomaly(anomaly_by_id(self.actor, anomaly_id)))


class AnomalyDecisionView(ApiView):
    """`/anomalies/{id}/decide`."""

    @extend_schema(operation_id="anomalies_decide", request=AnomalyDecision, responses=AnomalyShown)
    def post(self, request: Request, anomaly_id: UUID) -> Response:
        """Explains or dismisses an open anomaly, for good."""
        fields = self.read(AnomalyDecision)
        return Response(show_anomaly(decide_anomaly(self.actor, anomaly_id, fields["outcome"], fields["reason"])))


def show_listed(row: SpendAnomaly) -> dict[str, Any]:
    """An anomaly in a list."""
    return {
        "id": str(row.id),
        "tenant": row.tenant_path,
        "cluster": None if row.cluster is None else row.cluster.name,
        "flavor": row.flavor,
        "day": f"{row.day}",
        "currency": row.currency,
        **{name: decimal_text(getattr(row, name)) for name in ("cost", "usual", "spread")},
        "state": row.state,
        "reason": row.reason or None,
        "decided_by": row.decided_by_name or None,
        "decided_at": instant(row.decided_at),
        "found_at": instant(row.found_at),
    }


def show_anomaly(row: SpendAnomaly) -> dict[str, Any]:
    """An anomaly with its clusters and jobs."""
    clusters = clusters_behind(row)
    jobs = [
        {
            "job": str(one.workload_id),
            "name": one.name,
            "user": one.user,
            "cluster": one.cluster,
            "cost": decimal_text(one.cost),
        }
        for one in jobs_behind(row, clusters)
    ]
    places = [
        {"cluster": one.name, "cost": decimal_text(one.cost), "week_before": decimal_text(one.week_before)}
        for one in clusters
    ]
    return {**show_listed(row), "clusters": places, "jobs": jobs}
