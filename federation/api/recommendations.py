"""Recommendations over HTTP: translate, make one call, translate back."""

import csv
import io
from decimal import Decimal
from typing import Any

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from billing.api.period import period_of
from billing.api.spreadsheet import CSVRenderer, inert, respond, wanted_format
from federation.engine.advice import Kind, Recommendation
from federation.queries.recommendations import Recommendations, Total, recommendations
from foundation.clock import now
from foundation.media import JSONRenderer
from foundation.plain_json import instant
from foundation.shapes import Instant
from tenancy.api.views import ApiView

KINDS = " or ".join(kind.value for kind in Kind)
JOBS_SHOWN = 20
COLUMNS = (
    "kind", "tenant", "name", "job_count", "first_job", "amount", "currency", "allocated_gpu_hours", "measured_gpu_hours",
    "utilised_gpu_hours", "confidence",
)  # fmt: skip


class RecommendedJob(serializers.Serializer[Any]):
    """A job that is evidence."""

    id = serializers.UUIDField()
    amount = serializers.CharField(allow_null=True)
    allocated_gpu_hours = serializers.CharField()


class RecommendationItem(serializers.Serializer[Any]):
    """A finding in one currency. Decimals are texts."""

    kind = serializers.CharField(help_text=KINDS)
    tenant = serializers.CharField()
    name = serializers.CharField(help_text="Of its jobs.")
    job_count = serializers.IntegerField()
    jobs = RecommendedJob(many=True, help_text=f"The first {JOBS_SHOWN}, the oldest first.")
    amount = serializers.CharField(allow_null=True, help_text="What the time cost; null without a price.")
    currency = serializers.CharField(allow_null=True)
    allocated_gpu_hours = serializers.CharField()
    measured_gpu_hours = serializers.CharField(allow_null=True, help_text="Null if it depends on no measurement.")
    utilised_gpu_hours = serializers.CharField(allow_null=True)
    confidence = serializers.CharField(allow_null=True, help_text="measured / allocated, from 0 to 1.")


class RecommendationTotal(serializers.Serializer[Any]):
    """All findings of a kind in a currency, shown or not."""

    kind = serializers.CharField(help_text=KINDS)
    currency = serializers.CharField(allow_null=True)
    count = serializers.IntegerField()
    amount = serializers.CharField(allow_null=True)
    left_out = serializers.IntegerField(help_text="Findings with smaller amounts that `items` does not have.")


class RecommendationsShown(serializers.Serializer[Any]):
    """The recommendations of a period."""

    tenant = serializers.CharField(help_text="Empty: all that you may see.")
    start = Instant()
    until = Instant()
    items = RecommendationItem(many=True)
    totals = RecommendationTotal(many=True)


class RecommendationsView(ApiView):
    """`/recommendations/report`."""

    filters = ("tenant", "from", "to", "month", "format")
    renderer_classes = [JSONRenderer, CSVRenderer]

    @extend_schema(
        operation_id="recommendations_report",
        responses={(200, "application/json"): RecommendationsShown, (200, "text/csv"): OpenApiTypes.STR},
    )
    def get(self, request: Request) -> Response:
        """Returns jobs that hardly used their GPUs, and names of jobs that fail late again and again, by default of this month.

        `from` and `to` are days in UTC, `to` excluded. `Accept: text/csv` or `format=csv` gives a spreadsheet.
        """
        wanted = wanted_format(request, self.query)
        start, until = period_of(self.query, now())
        found = recommendations(self.actor, self.query.get("tenant", ""), start, until)
        file = f"recommendations-{start:%Y%m%d}-{until:%Y%m%d}.csv"
        return respond(request, wanted, lambda: show_recommendations(found), lambda: recommendations_csv(found), file)


def show_recommendations(found: Recommendations) -> dict[str, Any]:
    """As the API shows them."""
    return {
        "tenant": found.tenant_path,
        "start": instant(found.start),
        "until": instant(found.until),
        "items": [_item(one) for one in found.items],
        "totals": [_total(one) for one in found.totals],
    }


def recommendations_csv(found: Recommendations) -> str:
    """One row for each, with its first job. What is not known is empty."""
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow(COLUMNS)
    for one in found.items:
        item = _item(one) | {"first_job": str(one.jobs[0].job), "tenant": inert(one.tenant), "name": inert(one.name)}
        writer.writerow(["" if item[name] is None else item[name] for name in COLUMNS])
    return text.getvalue()


def _item(one: Recommendation) -> dict[str, Any]:
    return {
        "kind": one.kind.value,
        "tenant": one.tenant,
        "name": one.name,
        "job_count": len(one.jobs),
        "jobs": [
            {"id": str(job.job), "amount": _text(job.amount), "allocated_gpu_hours": _text(job.allocated)}
            for job in one.jobs[:JOBS_SHOWN]
        ],
        "amount": _text(one.amount),
        "currency": one.currency or None,
        "allocated_gpu_hours": _text(one.allocated),
        "measured_gpu_hours": _text(one.measured),
        "utilised_gpu_hours": _text(one.used),
        "confidence": _text(one.confidence),
    }


def _total(one: Total) -> dict[str, Any]:
    return {
        "kind": one.kind.value,
        "currency": one.currency or None,
        "count": one.count,
        "amount": _text(one.amount),
        "left_out": one.left_out,
    }


def _text(value: Decimal | None) -> str | None:
    return None if value is None else f"{value:f}"
