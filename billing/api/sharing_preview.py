"""What a sharing policy would have changed in a month, over HTTP."""

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from billing.engine.ledger import money
from billing.engine.months import month_before
from billing.operations.sharing import preview_policy
from billing.queries.sharing_report import SharingReport
from foundation.clock import now
from foundation.shapes import Text
from tenancy.api.views import ApiView

from .period import month_from
from .sharing import SharingPolicyCreate, wanted_policy


class SharingPolicyPreview(SharingPolicyCreate):
    """A policy that is not set yet, and the month to try it on."""

    month = Text(
        max_length=7,
        required=False,
        help_text="YYYY-MM: one that has begun, also a closed one. Default: the last month.",
    )


class SharingPreviewLineShown(serializers.Serializer[Any]):
    """What a tenant bears of a month in one currency. Amounts have twelve decimals."""

    tenant = serializers.CharField()
    currency = serializers.CharField()
    total = serializers.CharField(help_text="As it is.")
    total_by_policy = serializers.CharField()
    difference = serializers.CharField(help_text="Positive: the tenant would bear more.")


class SharingPreviewShown(serializers.Serializer[Any]):
    """What a policy would have changed in a month. Nothing was changed."""

    organisation = serializers.CharField()
    month = serializers.CharField()
    tenants = SharingPreviewLineShown(many=True)


class SharingPreviewView(ApiView):
    """`/sharing-policies/preview`."""

    @extend_schema(operation_id="sharing_policies_preview", request=SharingPolicyPreview, responses=SharingPreviewShown)
    def post(self, request: Request) -> Response:
        """Returns what each tenant bears of a month, and would bear if the policy applied to it. Changes nothing."""
        fields = self.read(SharingPolicyPreview)
        month = month_from("month", fields["month"]) if "month" in fields else month_before(now().date())
        return Response(show_preview(*preview_policy(self.actor, wanted_policy(fields), month)))


def show_preview(before: SharingReport, after: SharingReport) -> dict[str, Any]:
    """A month as it is and as it would be by a policy, as the API shows it."""
    totals = [{(one.tenant, one.currency): one.total for one in report.tenants} for report in (before, after)]
    lines = []
    for tenant, currency in sorted({*totals[0], *totals[1]}):
        was, would = (each.get((tenant, currency), 0) for each in totals)
        amounts = {"total": was, "total_by_policy": would, "difference": would - was}
        shown = {name: f"{money(amount):f}" for name, amount in amounts.items()}
        lines.append({"tenant": tenant, "currency": currency, **shown})
    return {"organisation": before.organisation, "month": f"{before.month:%Y-%m}", "tenants": lines}
