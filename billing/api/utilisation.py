"""The report of utilisation over HTTP: translate, make one call, translate back."""

import csv
import io
from decimal import Decimal
from typing import Any

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from billing.queries.utilisation import UtilisationReport, UtilisationRow, utilisation_report
from foundation.clock import now
from foundation.media import JSONRenderer
from foundation.plain_json import instant
from foundation.shapes import Instant
from tenancy.api.views import ApiView

from .period import period_of
from .spreadsheet import CSVRenderer, inert, respond, wanted_format

NUMBERS = (
    "allocated_gpu_hours", "measured_gpu_hours", "unmeasured_gpu_hours", "utilised_gpu_hours", "utilisation", "sm_active",
    "tensor_active", "peak_memory_mib", "peak_memory_ratio", "cost", "measured_cost", "waste",
    "cost_per_allocated_gpu_hour", "cost_per_utilised_gpu_hour",
)  # fmt: skip
ONLY_IF = "Null if nothing was measured."


class UtilisationNumbers(serializers.Serializer[Any]):
    """What was allocated and what was used. Decimals are texts."""

    currency = serializers.CharField(allow_null=True, help_text="Null: time without a price.")
    allocated_gpu_hours = serializers.CharField(help_text="Of physical GPUs, as usage reports have them.")
    measured_gpu_hours = serializers.CharField()
    unmeasured_gpu_hours = serializers.CharField(help_text="Allocated, and not reported by a Prometheus.")
    utilised_gpu_hours = serializers.CharField()
    utilisation = serializers.CharField(allow_null=True, help_text="utilised / measured; from 0 to 1. " + ONLY_IF)
    sm_active = serializers.CharField(allow_null=True, help_text="From 0 to 1. Null if not reported.")
    tensor_active = serializers.CharField(allow_null=True, help_text="From 0 to 1. Null if not reported.")
    peak_memory_mib = serializers.IntegerField(allow_null=True, help_text="The most that one GPU or slice used.")
    peak_memory_ratio = serializers.CharField(allow_null=True, help_text="Of the memory of its model.")
    cost = serializers.CharField(allow_null=True, help_text="As charged first: without corrections and credits.")
    measured_cost = serializers.CharField(allow_null=True, help_text="The part of measured time.")
    waste = serializers.CharField(allow_null=True, help_text="The part of measured time in which GPUs were unused.")
    cost_per_allocated_gpu_hour = serializers.CharField(allow_null=True)
    cost_per_utilised_gpu_hour = serializers.CharField(allow_null=True, help_text="Of measured time.")


class UtilisationItem(UtilisationNumbers):
    """A row. Of the keys, it has those of its groups."""

    tenant = serializers.CharField(required=False)
    cluster = serializers.CharField(required=False)
    cluster_id = serializers.UUIDField(required=False)
    flavor = serializers.CharField(required=False)
    user = serializers.CharField(required=False)
    user_id = serializers.UUIDField(required=False)
    job = serializers.UUIDField(required=False)
    job_name = serializers.CharField(required=False)
    day = serializers.DateField(required=False)
    month = serializers.CharField(required=False)


class UtilisationShown(serializers.Serializer[Any]):
    """The report."""

    tenant = serializers.CharField(help_text="Empty: all that you may see.")
    start = Instant()
    until = Instant()
    group_by = serializers.ListField(child=serializers.CharField())
    items = UtilisationItem(many=True)
    totals = UtilisationNumbers(many=True, help_text="One for each currency.")


class UtilisationView(ApiView):
    """`/utilisation`."""

    filters = ("tenant", "from", "to", "month", "group_by", "format")
    renderer_classes = [JSONRenderer, CSVRenderer]

    @extend_schema(
        operation_id="utilisation_report",
        responses={(200, "application/json"): UtilisationShown, (200, "text/csv"): OpenApiTypes.STR},
    )
    def get(self, request: Request) -> Response:
        """Returns what was allocated, measured and used of GPUs, and what unused time cost, by default of this month.

        `from` and `to` are days in UTC, `to` excluded; `group_by` lists tenant, cluster, flavor, user, job, day, month.
        `Accept: text/csv` or `format=csv` gives a spreadsheet. No charge depends on it.
        """
        wanted = wanted_format(request, self.query)
        start, until = period_of(self.query, now())
        words = [word for word in self.query.get("group_by", "").split(",") if word]
        report = utilisation_report(self.actor, self.query.get("tenant", ""), start, until, words)
        file = f"utilisation-{start:%Y%m%d}-{until:%Y%m%d}.csv"
        return respond(request, wanted, lambda: show_utilisation(report), lambda: utilisation_csv(report), file)


def show_utilisation(report: UtilisationReport) -> dict[str, Any]:
    """The report as the API shows it."""
    return {
        "tenant": report.tenant_path,
        "start": instant(report.start),
        "until": instant(report.until),
        "group_by": list(report.group_by),
        "items": [{**row.keys, **_numbers(row)} for row in report.rows],
        "totals": [_numbers(row) for row in report.totals],
    }


def utilisation_csv(report: UtilisationReport) -> str:
    """The rows as CSV: the keys, the numbers, the currency. What is not known is empty. There is no row of totals."""
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow([*report.columns, *NUMBERS, "currency"])
    for row in report.rows:
        numbers = _numbers(row)
        keys = [inert(row.keys[name]) for name in report.columns]
        writer.writerow([*keys, *("" if numbers[name] is None else numbers[name] for name in (*NUMBERS, "currency"))])
    return text.getvalue()


def _numbers(row: UtilisationRow) -> dict[str, Any]:
    values = {name: getattr(row, name) for name in NUMBERS}
    shown = {name: f"{value:f}" if isinstance(value, Decimal) else value for name, value in values.items()}
    return {"currency": row.currency or None, **shown}
