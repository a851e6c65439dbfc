"""The report of unit costs over HTTP: translate, make one call, translate back."""

import csv
import io
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from billing.api.period import period_of
from billing.api.spreadsheet import CSVRenderer, inert, respond, wanted_format
from federation.engine.unit_costs import Bridge, UnitCostRow
from federation.queries.unit_costs import LABEL, JobFilters, UnitCostReport, label_filter, unit_cost_report
from foundation.clock import now
from foundation.media import JSONRenderer
from foundation.plain_json import instant
from foundation.shapes import Instant
from tenancy.api.views import ApiView

COUNTS = ("jobs", "succeeded", "failed", "cancelled")
NUMBERS = (
    "cost", "unsuccessful_cost", "unsuccessful_share", "cost_per_job", "cost_per_successful_job", "gpu_hours",
    "unsuccessful_gpu_hours", "unpriced_gpu_hours", "gpu_hours_per_job", "gpu_hours_per_successful_job",
)  # fmt: skip
BRIDGE = ("cost", "outside", "inside", "others", "usage_cost")
NO_SUCCESS = "Null if no job succeeded."


class UnitCostNumbers(serializers.Serializer[Any]):
    """Jobs that ended, and what they cost with all their attempts. Decimals are texts."""

    currency = serializers.CharField()
    jobs = serializers.IntegerField(help_text="That ended. A job counts in each currency that it costs something in.")
    succeeded = serializers.IntegerField()
    failed = serializers.IntegerField()
    cancelled = serializers.IntegerField()
    cost = serializers.CharField()
    unsuccessful_cost = serializers.CharField(help_text="Of jobs that failed or were cancelled.")
    unsuccessful_share = serializers.CharField(allow_null=True, help_text="From 0 to 1. Null if the cost is zero.")
    cost_per_job = serializers.CharField(allow_null=True, help_text="Null without any job.")
    cost_per_successful_job = serializers.CharField(allow_null=True, help_text=NO_SUCCESS)
    gpu_hours = serializers.CharField(help_text="Of physical GPUs, as usage reports have them.")
    unsuccessful_gpu_hours = serializers.CharField()
    unpriced_gpu_hours = serializers.CharField(help_text="Included in the GPU-hours, and in no cost.")
    gpu_hours_per_job = serializers.CharField(allow_null=True)
    gpu_hours_per_successful_job = serializers.CharField(allow_null=True, help_text=NO_SUCCESS)


class UnitCostItem(UnitCostNumbers):
    """A row. Of the keys, it has those of its groups."""

    tenant = serializers.CharField(required=False)
    user = serializers.CharField(required=False)
    user_id = serializers.UUIDField(required=False)
    job_name = serializers.CharField(required=False)
    day = serializers.DateField(required=False, help_text="The day on which the jobs ended.")
    month = serializers.CharField(required=False)
    labels = serializers.DictField(
        child=serializers.CharField(allow_null=True), required=False, help_text="Null: jobs without that label."
    )


class UnitCostBridge(serializers.Serializer[Any]):
    """`cost` = `outside` + `inside`; `usage_cost` = `inside` + `others`."""

    currency = serializers.CharField()
    cost = serializers.CharField()
    outside = serializers.CharField(help_text="What these jobs cost on days before and after the range.")
    inside = serializers.CharField()
    others = serializers.CharField(help_text="Cost in the range of jobs that ended on other days, or have not ended.")
    usage_cost = serializers.CharField(help_text="As `/usage` has it.")


class UnitCostsShown(serializers.Serializer[Any]):
    """The report."""

    tenant = serializers.CharField(help_text="Empty: all that you may see.")
    start = Instant()
    until = Instant()
    group_by = serializers.ListField(child=serializers.CharField())
    items = UnitCostItem(many=True)
    totals = UnitCostNumbers(many=True, help_text="One for each currency.")
    bridge = UnitCostBridge(many=True, help_text="To the cost in `/usage`, for each currency. Empty with a filter.")
    unsettled_jobs = serializers.IntegerField(help_text="Jobs whose usage is not recorded to its end yet.")


class UnitCostsView(ApiView):
    """`/unit-costs`."""

    filters = ("tenant", "user", "label", "job_name", "from", "to", "month", "group_by", "format")
    renderer_classes = [JSONRenderer, CSVRenderer]

    @extend_schema(
        operation_id="unit_cost_report",
        responses={(200, "application/json"): UnitCostsShown, (200, "text/csv"): OpenApiTypes.STR},
    )
    def get(self, request: Request) -> Response:
        """Returns what the jobs that ended in the range cost each, with all their attempts, by default of this month.

        `from` and `to` are days in UTC, `to` excluded; `group_by` lists tenant, user, job_name, day, month, label:KEY.
        Filters: `user` (email), `label` (key:value), `job_name`. `Accept: text/csv` or `format=csv` gives a spreadsheet.
        """
        wanted = wanted_format(request, self.query)
        span = period_of(self.query, now())
        words = [word for word in self.query.get("group_by", "").split(",") if word]
        report = unit_cost_report(self.actor, self.query.get("tenant", ""), span, words, _filters(self.query))
        file = f"unit-costs-{span[0]:%Y%m%d}-{span[1]:%Y%m%d}.csv"
        return respond(request, wanted, lambda: show_unit_costs(report), lambda: unit_costs_csv(report), file)


def show_unit_costs(report: UnitCostReport) -> dict[str, Any]:
    """The report as the API shows it."""
    return {
        "tenant": report.tenant_path,
        "start": instant(report.start),
        "until": instant(report.until),
        "group_by": list(report.group_by),
        "items": [{**_keys(row), **_numbers(row)} for row in report.rows],
        "totals": [_numbers(row) for row in report.totals],
        "bridge": [_bridge(one) for one in report.bridges],
        "unsettled_jobs": report.unsettled_jobs,
    }


def unit_costs_csv(report: UnitCostReport) -> str:
    """The rows as CSV: the keys, the numbers, the currency. What is not known is empty. There is no row of totals."""
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow([*report.columns, *COUNTS, *NUMBERS, "currency"])
    for row in report.rows:
        numbers = _numbers(row)
        keys = [inert(row.keys[name] or "") for name in report.columns]
        writer.writerow(
            [*keys, *("" if numbers[name] is None else numbers[name] for name in (*COUNTS, *NUMBERS, "currency"))]
        )
    return text.getvalue()


def _filters(query: Mapping[str, str]) -> JobFilters:
    label = label_filter(query["label"]) if "label" in query else None
    return JobFilters(query.get("user", ""), query.get("job_name", ""), label)


def _keys(row: UnitCostRow) -> dict[str, Any]:
    labels = {name.removeprefix(LABEL): value for name, value in row.keys.items() if name.startswith(LABEL)}
    keys: dict[str, Any] = {name: value for name, value in row.keys.items() if not name.startswith(LABEL)}
    return {**keys, "labels": labels} if labels else keys


def _numbers(row: UnitCostRow) -> dict[str, Any]:
    values = {name: getattr(row, name) for name in NUMBERS}
    shown = {name: f"{value:f}" if isinstance(value, Decimal) else value for name, value in values.items()}
    return {"currency": row.currency, **{name: getattr(row, name) for name in COUNTS}, **shown}


def _bridge(one: Bridge) -> dict[str, str]:
    return {"currency": one.currency, **{name: f"{getattr(one, name):f}" for name in BRIDGE}}
