"""Commitments over HTTP: what applies, plans of a file, and the report of a month."""

import csv
import io
from typing import Any

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from billing.engine.commitment_file import KINDS, MOST_CHARACTERS
from billing.engine.focus_commitments import hours
from billing.engine.ledger import money
from billing.models import CommitmentVersion
from billing.operations.commitments import Plan, apply_commitments, plan_commitments, values_of_row
from billing.queries.commitment_report import Borne, CommitmentMonth, CommitmentReport, commitment_report
from billing.queries.commitments import visible_commitments
from clusters.models import Cluster
from foundation.plain_json import instant
from foundation.schema import page_shape
from foundation.shapes import FileText, Instant, StrictShape, Text
from tenancy.api.views import ApiView

from .month_report import MonthReportView
from .spreadsheet import FORMATS, inert

ORDERS = {"created": "id", "-created": "-id"}
ACTIONS = ("create", "change", "withdraw")
AMOUNT = "Twelve decimals."


class CommitmentsPlanAsk(StrictShape):
    """A file to plan."""

    organisation = Text(max_length=63, help_text="Its path.")
    file = FileText(max_length=MOST_CHARACTERS, help_text="The YAML, as docs/reference/commitments.md describes it.")


class CommitmentsApply(CommitmentsPlanAsk):
    """A file to apply."""

    expect = Text(
        max_length=64, required=False, allow_null=True, default=None, help_text="The hash of a plan: apply only that."
    )


class PlanRateShown(serializers.Serializer[Any]):
    """What an hour of a unit of a flavor costs under a savings plan."""

    flavor = serializers.CharField()
    capacity_type = serializers.CharField()
    rate = serializers.CharField(help_text="Six decimals.")


class CommitmentValues(serializers.Serializer[Any]):
    """A commitment as a file has it. A savings plan has `hourly` and `rates`; flavor and capacity type are empty, units 0."""

    name = serializers.CharField()
    kind = serializers.ChoiceField(KINDS)
    clusters = serializers.ListField(child=serializers.CharField())
    flavor = serializers.CharField()
    capacity_type = serializers.CharField()
    units = serializers.IntegerField()
    start = Instant()
    until = Instant()
    currency = serializers.CharField()
    upfront = serializers.CharField(help_text="Paid at the start; six decimals.")
    recurring = serializers.CharField(help_text="Paid at the start and each month after it; six decimals.")
    withdrawn = serializers.BooleanField()
    hourly = serializers.CharField(help_text="What a savings plan spends an hour; six decimals, otherwise zero.")
    rates = PlanRateShown(many=True)


class CommitmentShown(CommitmentValues):
    """The version of a commitment that applies."""

    id = serializers.UUIDField()
    organisation = serializers.CharField()
    version = serializers.IntegerField()
    total = serializers.CharField(help_text="All that is paid over the term; six decimals.")
    made_by = serializers.CharField()
    created_at = Instant()


class CommitmentChangeShown(serializers.Serializer[Any]):
    """One change of a plan."""

    action = serializers.ChoiceField(ACTIONS)
    name = serializers.CharField()
    before = CommitmentValues(allow_null=True, help_text="Null if it is new.")
    after = CommitmentValues()


class BorneShown(serializers.Serializer[Any]):
    """What a tenant bears of commitments, and what the usage that they covered was charged at its price."""

    used = serializers.CharField(help_text=AMOUNT)
    covered = serializers.CharField(help_text=AMOUNT)


class CommitmentEffectShown(serializers.Serializer[Any]):
    """What a tenant would have borne, without and with the changes."""

    tenant = serializers.CharField()
    currency = serializers.CharField()
    before = BorneShown()
    after = BorneShown()


class CommitmentsPlanShown(serializers.Serializer[Any]):
    """What a file changes, and what that would have done in `month`, the last one that has ended."""

    hash = serializers.CharField(help_text="Names exactly these changes; for `expect`.")
    changes = CommitmentChangeShown(many=True)
    month = serializers.CharField(help_text="YYYY-MM.")
    amortised_before = serializers.CharField(help_text=AMOUNT)
    amortised_after = serializers.CharField(help_text=AMOUNT)
    unused_before = serializers.CharField(help_text=AMOUNT)
    unused_after = serializers.CharField(help_text=AMOUNT)
    effects = CommitmentEffectShown(many=True)


class CommitmentMonthShown(serializers.Serializer[Any]):
    """A commitment's month: `used` + `unused` = `amortised`."""

    name = serializers.CharField()
    kind = serializers.ChoiceField(KINDS)
    clusters = serializers.ListField(child=serializers.CharField())
    flavor = serializers.CharField()
    capacity_type = serializers.CharField()
    units = serializers.IntegerField()
    currency = serializers.CharField()
    unit_hours = serializers.CharField(allow_null=True, help_text=f"{AMOUNT} Null of a savings plan.")
    used_unit_hours = serializers.CharField(allow_null=True, help_text=f"{AMOUNT} Null of a savings plan.")
    amortised = serializers.CharField(help_text=AMOUNT)
    used = serializers.CharField(help_text=AMOUNT)
    unused = serializers.CharField(help_text=AMOUNT)
    hourly = serializers.CharField(help_text="What a savings plan spends an hour; six decimals, otherwise zero.")
    flavors = serializers.ListField(child=serializers.CharField(), help_text="That a savings plan covers.")


class CoverageShown(serializers.Serializer[Any]):
    """How much of the usage of a flavor commitments of capacity covered."""

    flavor = serializers.CharField()
    unit_hours = serializers.CharField(help_text=AMOUNT)
    covered_unit_hours = serializers.CharField(help_text=AMOUNT)


class CommittedTenantShown(BorneShown):
    """What one tenant bears; `net` is `used` less `covered`."""

    tenant = serializers.CharField()
    currency = serializers.CharField()
    net = serializers.CharField(help_text=AMOUNT)


class CommitmentsReportShown(serializers.Serializer[Any]):
    """The commitments of an organisation in a month of use."""

    organisation = serializers.CharField()
    month = serializers.CharField()
    is_closed = serializers.BooleanField()
    unsplit_days = serializers.IntegerField(help_text="Days that are not split into used and unused yet.")
    commitments = CommitmentMonthShown(many=True)
    coverage = CoverageShown(many=True)
    tenants = CommittedTenantShown(many=True)


class CommitmentsView(ApiView):
    """`/commitments`."""

    paged = True

    @extend_schema(operation_id="commitments_list", responses=page_shape(CommitmentShown))
    def get(self, request: Request) -> Response:
        """Lists the commitments of the organisations that you see as a whole, each with the version that applies."""
        return self.page(visible_commitments(self.actor).order_by(), orders=ORDERS, render=show_commitment)


class CommitmentsPlanView(ApiView):
    """`/commitments/plan`."""

    only_asks = True

    @extend_schema(operation_id="commitments_plan", request=CommitmentsPlanAsk, responses=CommitmentsPlanShown)
    def post(self, request: Request) -> Response:
        """Returns what a file would change, and what that would have done last month. Changes nothing."""
        asked = self.read(CommitmentsPlanAsk)
        return Response(show_plan(plan_commitments(self.actor, asked["organisation"], asked["file"])))


class CommitmentsApplyView(ApiView):
    """`/commitments/apply`."""

    @extend_schema(operation_id="commitments_apply", request=CommitmentsApply, responses=CommitmentsPlanShown)
    def post(self, request: Request) -> Response:
        """Makes commitments those of a file: all changes or none. What the file does not have is left as it is."""
        asked = self.read(CommitmentsApply)
        return Response(
            show_plan(apply_commitments(self.actor, asked["organisation"], asked["file"], asked["expect"] or ""))
        )


class CommitmentsReportView(MonthReportView):
    """`/commitments/report`."""

    @extend_schema(
        operation_id="commitments_report",
        parameters=[
            OpenApiParameter("organisation", str, required=True, description="Its path."),
            OpenApiParameter("month", str, description="YYYY-MM, of use; by default the current one."),
            OpenApiParameter("format", str, enum=FORMATS),
        ],
        responses={(200, "application/json"): CommitmentsReportShown, (200, "text/csv"): OpenApiTypes.STR},
    )
    def get(self, request: Request) -> Response:
        """Returns how much of an organisation's commitments was used in a month, what they covered, and who bears it.

        `format=csv` has a row for each commitment.
        """
        asked = self.asked(request)
        report = commitment_report(self.actor, asked.organisation, asked.start.date())
        file = f"commitments-{asked.start:%Y-%m}.csv"
        return self.answer(request, asked, lambda: show_report(report), lambda: report_csv(report), file)


def report_csv(report: CommitmentReport) -> str:
    """The commitments as CSV."""
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow(CommitmentMonthShown().fields)
    for one in report.commitments:
        shown = show_month(one)
        texts = [" ".join(value) if isinstance(value, list) else str(value or "") for value in shown.values()]
        writer.writerow([inert(text_) for text_ in texts])
    return text.getvalue()


def show_commitment(row: CommitmentVersion) -> dict[str, Any]:
    """A version as the API shows it."""
    names = Cluster.everything.filter(id__in=row.clusters).order_by("name", "id").values_list("name", flat=True)
    return {
        **values_of_row(row, list(names)),
        "id": str(row.commitment_id),
        "organisation": row.commitment.organisation.path,
        "version": row.number,
        "total": f"{row.total:.6f}",
        "made_by": row.made_by_name,
        "created_at": instant(row.created_at),
    }


def show_plan(plan: Plan) -> dict[str, Any]:
    """A plan as the API shows it."""
    return {
        "hash": plan.digest,
        "changes": [
            {"action": one.action, "name": one.name, "before": one.before, "after": one.after} for one in plan.changes
        ],
        "month": f"{plan.month:%Y-%m}",
        "amortised_before": _money(plan.amortised[0]),
        "amortised_after": _money(plan.amortised[1]),
        "unused_before": _money(plan.unused[0]),
        "unused_after": _money(plan.unused[1]),
        "effects": [
            {"tenant": one.tenant, "currency": one.currency, "before": _borne(one.before), "after": _borne(one.after)}
            for one in plan.effects
        ],
    }


def show_month(one: CommitmentMonth) -> dict[str, Any]:
    """A commitment's month, in the order of its columns."""
    return {
        "name": one.name, "kind": one.kind, "clusters": list(one.clusters), "flavor": one.flavor,
        "capacity_type": one.capacity_type, "units": one.units, "currency": one.currency,
        "unit_hours": None if one.is_plan else f"{hours(one.quantity):.12f}",
        "used_unit_hours": None if one.is_plan else f"{hours(one.used_quantity):.12f}",
        "amortised": _money(one.amortised), "used": _money(one.used), "unused": _money(one.unused),
        "hourly": f"{one.hourly:.6f}", "flavors": list(one.flavors),
    }  # fmt: skip


def show_report(report: CommitmentReport) -> dict[str, Any]:
    """A report as the API shows it."""
    return {
        "organisation": report.organisation,
        "month": f"{report.month:%Y-%m}",
        "is_closed": report.is_closed,
        "unsplit_days": report.unsplit,
        "commitments": [show_month(one) for one in report.commitments],
        "coverage": [
            {
                "flavor": one.flavor,
                "unit_hours": f"{hours(one.quantity):.12f}",
                "covered_unit_hours": f"{hours(one.covered):.12f}",
            }
            for one in report.coverage
        ],
        "tenants": [
            {"tenant": tenant, "currency": currency, **_borne(its), "net": _money(its.net)}
            for (tenant, currency), its in report.tenants.items()
        ],
    }


def _borne(one: Borne) -> dict[str, str]:
    return {"used": _money(one.used), "covered": _money(one.covered)}


def _money(amount: int) -> str:
    return f"{money(amount):f}"
