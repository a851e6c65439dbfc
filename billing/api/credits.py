"""Lost work over HTTP: what it costs, and the policies that say which of it is not charged."""

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers, status
from rest_framework.request import Request
from rest_framework.response import Response

from billing.engine.credits import LossCause
from billing.engine.months import month_before
from billing.models import CreditPolicy
from billing.operations.credits import NewCreditPolicy, preview_credit_policy, set_credit_policy
from billing.queries.credits import LostLine, LostWorkReport, lost_work_report, visible_credit_policies
from foundation.clock import now
from foundation.plain_json import instant
from foundation.problems import Invalid
from foundation.schema import page_shape
from foundation.shapes import Instant, StrictShape, Text
from tenancy.api.views import ApiView

from .period import month_from, period_of

ORDERS = {"created": "id", "-created": "-id"}
CAUSES = [cause.value for cause in LossCause]


class CreditPolicyCreate(StrictShape):
    """The causes whose lost work is not charged, from a month on."""

    organisation = Text(max_length=63, help_text="Its path.")
    effective_from = Text(max_length=7, help_text="YYYY-MM: a month that is not closed.")
    causes = serializers.ListField(
        child=serializers.ChoiceField(CAUSES), max_length=len(CAUSES), help_text="Empty: all lost work is charged."
    )


class CreditPolicyPreview(StrictShape):
    """The causes of a policy that is not set yet, and the month to try it on."""

    organisation = Text(max_length=63, help_text="Its path.")
    causes = serializers.ListField(
        child=serializers.ChoiceField(CAUSES), max_length=len(CAUSES), help_text="Empty: all lost work is charged."
    )
    month = Text(
        max_length=7,
        required=False,
        help_text="YYYY-MM: one that has begun, also a closed one. Default: the last month.",
    )


class CreditPolicyShown(serializers.Serializer[Any]):
    """A policy. Of two for a month, the later one applies."""

    id = serializers.IntegerField()
    organisation = serializers.CharField()
    effective_from = serializers.CharField(help_text="YYYY-MM.")
    causes = serializers.ListField(child=serializers.ChoiceField(CAUSES))
    made_by = serializers.CharField()
    created_at = Instant()


class LostLineShown(serializers.Serializer[Any]):
    """What the lost work of a tenant costs for one cause. Amounts have twelve decimals."""

    tenant = serializers.CharField()
    cause = serializers.ChoiceField(CAUSES)
    currency = serializers.CharField(help_text="Empty without a price.")
    runs = serializers.IntegerField()
    gpu_hours = serializers.CharField(help_text="Of physical GPUs.")
    cost = serializers.CharField(help_text="By the prices and their corrections.")
    credits = serializers.CharField(help_text="The part that is not charged; zero or negative.")


class LostWorkShown(serializers.Serializer[Any]):
    """The lost work of an organisation's month, of the tenants that you see."""

    organisation = serializers.CharField()
    month = serializers.CharField()
    causes = serializers.ListField(child=serializers.ChoiceField(CAUSES), help_text="Those that are not charged.")
    items = LostLineShown(many=True)


class CreditPreviewLineShown(LostLineShown):
    """A line of lost work, and what of it the policy would not charge."""

    credits_by_policy = serializers.CharField(help_text="As `credits`, if the policy applied to the whole month.")


class CreditPreviewTotalShown(serializers.Serializer[Any]):
    """The credits of a month in one currency, as it is and by the policy."""

    currency = serializers.CharField()
    credits = serializers.CharField()
    credits_by_policy = serializers.CharField()
    difference = serializers.CharField(help_text="Negative: less would be charged.")


class CreditPreviewShown(serializers.Serializer[Any]):
    """What a policy would have credited in a month. Nothing was changed."""

    organisation = serializers.CharField()
    month = serializers.CharField()
    causes = serializers.ListField(child=serializers.ChoiceField(CAUSES), help_text="Those of the policy.")
    items = CreditPreviewLineShown(many=True)
    totals = CreditPreviewTotalShown(many=True)


class CreditPoliciesView(ApiView):
    """`/credit-policies`."""

    paged = True

    @extend_schema(operation_id="credit_policies_list", responses=page_shape(CreditPolicyShown))
    def get(self, request: Request) -> Response:
        """Lists the policies of the organisations that you see as a whole."""
        return self.page(visible_credit_policies(self.actor), orders=ORDERS, render=show_credit_policy)

    @extend_schema(
        operation_id="credit_policies_create", request=CreditPolicyCreate, responses={201: CreditPolicyShown}
    )
    def post(self, request: Request) -> Response:
        """Sets which lost work is not charged, from a month on."""
        fields = self.read(CreditPolicyCreate)
        month = month_from("effective_from", fields["effective_from"])
        wanted = NewCreditPolicy(fields["organisation"], month, fields["causes"])

        def produce() -> tuple[int, dict[str, Any]]:
            return status.HTTP_201_CREATED, show_credit_policy(set_credit_policy(self.actor, wanted))

        return self.created(request, None, "credit-policies", produce)


class CreditPreviewView(ApiView):
    """`/credit-policies/preview`."""

    @extend_schema(operation_id="credit_policies_preview", request=CreditPolicyPreview, responses=CreditPreviewShown)
    def post(self, request: Request) -> Response:
        """Returns what a policy with these causes would have credited in a month, beside what was credited. Changes nothing."""
        fields = self.read(CreditPolicyPreview)
        month = month_from("month", fields["month"]) if "month" in fields else month_before(now().date())
        wanted = NewCreditPolicy(fields["organisation"], month, fields["causes"])
        return Response(show_preview(*preview_credit_policy(self.actor, wanted, month)))


class LostWorkView(ApiView):
    """`/lost-work`."""

    filters = ("organisation", "month")

    @extend_schema(operation_id="lost_work", responses=LostWorkShown)
    def get(self, request: Request) -> Response:
        """Returns what the work that infrastructure lost in a month costs, by tenant and cause, and what of it is not charged."""
        if not self.query.get("organisation"):
            raise Invalid.field("organisation", "required", "give the path of an organisation")
        given = {"month": self.query["month"]} if "month" in self.query else {}
        start, _ = period_of(given, now())
        return Response(show_lost_work(lost_work_report(self.actor, self.query["organisation"], start.date())))


def show_credit_policy(row: CreditPolicy) -> dict[str, Any]:
    """A policy as the API shows it."""
    return {
        "id": row.id,
        "organisation": row.organisation.path,
        "effective_from": f"{row.effective_from:%Y-%m}",
        "causes": row.causes,
        "made_by": row.made_by_name,
        "created_at": instant(row.created_at),
    }


def show_lost_work(report: LostWorkReport) -> dict[str, Any]:
    """A report as the API shows it."""
    return {
        "organisation": report.organisation,
        "month": f"{report.month:%Y-%m}",
        "causes": list(report.causes),
        "items": [_line(one) for one in report.lines],
    }


def show_preview(before: LostWorkReport, after: LostWorkReport) -> dict[str, Any]:
    """A month as it is and as it would be by a policy, as the API shows it."""
    now_, then = before.credits_by_currency(), after.credits_by_currency()
    return show_lost_work(after) | {
        "items": [
            {**_line(one), "credits_by_policy": f"{other.credits:.12f}"}
            for one, other in zip(before.lines, after.lines, strict=True)
        ],
        "totals": [
            {
                "currency": currency, "credits": f"{now_[currency]:.12f}", "credits_by_policy": f"{then[currency]:.12f}",
                "difference": f"{then[currency] - now_[currency]:.12f}",
            }
            for currency in sorted(now_)
        ],
    }  # fmt: skip


def _line(line: LostLine) -> dict[str, Any]:
    return {
        "tenant": line.tenant, "cause": line.cause, "currency": line.currency, "runs": line.runs,
        "gpu_hours": f"{line.gpu_hours:.6f}", "cost": f"{line.cost:.12f}", "credits": f"{line.credits:.12f}",
    }  # fmt: skip
