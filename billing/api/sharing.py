"""Idle capacity over HTTP: who bears it, what pools cost, and negative idle that people have to decide."""

import csv
import io
from collections.abc import Mapping
from typing import Any
from uuid import UUID

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers, status
from rest_framework.request import Request
from rest_framework.response import Response

from billing.engine.ledger import money
from billing.models import NegativeIdle, SharingPolicy
from billing.models.periods import REASON_LENGTH
from billing.operations.sharing import MOST_WEIGHT, MOST_WEIGHTS, NewPolicy, accept_negative_idle, set_policy
from billing.queries.sharing import visible_negative_idle, visible_policies
from billing.queries.sharing_report import PoolShown, SharingReport, sharing_report
from foundation.plain_json import instant
from foundation.problems import Invalid
from foundation.schema import page_shape
from foundation.shapes import Instant, StrictShape, Text, Whole
from tenancy.api.views import ApiView

from .month_report import MonthReportView
from .period import month_from
from .shapes import Money, MoneyShape
from .spreadsheet import inert

ORDERS = {"created": "id", "-created": "-id"}
SEEN = {"seen": "seen_at", "-seen": "-seen_at"}
STATE = OpenApiParameter("state", str, enum=NegativeIdle.State.values, description="Only rows in this state.")
BRIDGE = (
    "charged", "commitment", "credits", "infrastructure", "idle_shared", "idle_central", "overhead", "platform_shared",
    "platform_central", "commitment_unused", "total",
)  # fmt: skip
"""The parts of the total, in their order."""
COMMITMENT = "Used of commitments, less what the usage that they covered was charged."


class WeightShape(StrictShape):
    """A tenant's weight in a fixed split."""

    tenant = Text(max_length=1100, help_text="Path.")
    weight = Whole(min_value=1, max_value=MOST_WEIGHT)


class SharingPolicyCreate(StrictShape):
    """Who bears idle capacity and the platform, from a month on."""

    organisation = Text(max_length=63, help_text="Its path.")
    effective_from = Text(max_length=7, help_text="YYYY-MM: a month that is not closed.")
    idle = serializers.ChoiceField(SharingPolicy.Idle.values)
    platform = serializers.ChoiceField(
        SharingPolicy.Platform.values, required=False, help_text="By default proportional."
    )
    platform_cost = Money(required=False, allow_null=True, help_text="Of each month.")
    platform_weights = WeightShape(many=True, required=False, help_text="If the platform is `fixed`.")


class SharingPolicyShown(serializers.Serializer[Any]):
    """A policy. Of two for a month, the later one applies."""

    id = serializers.IntegerField()
    organisation = serializers.CharField()
    effective_from = serializers.CharField(help_text="YYYY-MM.")
    idle = serializers.ChoiceField(SharingPolicy.Idle.values)
    platform = serializers.ChoiceField(SharingPolicy.Platform.values)
    platform_cost = MoneyShape(allow_null=True)
    platform_weights = serializers.DictField(child=serializers.IntegerField(), help_text="By the tenant's id.")
    made_by = serializers.CharField()
    created_at = Instant()


class NegativeIdleShown(serializers.Serializer[Any]):
    """A pool's day for which jobs paid more than its nodes cost."""

    id = serializers.UUIDField()
    organisation = serializers.CharField()
    cluster = serializers.CharField()
    flavor = serializers.CharField()
    day = serializers.DateField()
    cost = MoneyShape()
    charged = MoneyShape()
    state = serializers.ChoiceField(NegativeIdle.State.values)
    note = serializers.CharField(allow_null=True)
    decided_by = serializers.CharField(allow_null=True)
    seen_at = Instant()


class NegativeIdleAcceptance(StrictShape):
    """Why the month may close with these numbers."""

    note = Text(max_length=REASON_LENGTH)


class TenantShareShown(serializers.Serializer[Any]):
    """What a tenant bears: `direct` before sharing, `total` after it and after credits. Twelve decimals."""

    tenant = serializers.CharField()
    currency = serializers.CharField()
    direct = serializers.CharField()
    idle = serializers.CharField()
    platform = serializers.CharField()
    credits = serializers.CharField(help_text="Not charged, because infrastructure lost the work; zero or negative.")
    commitment = serializers.CharField(help_text=COMMITMENT)
    total = serializers.CharField()


class PoolDayShown(serializers.Serializer[Any]):
    """A pool's day: `charged` + `overhead` + `idle` = `cost`."""

    cluster = serializers.CharField()
    cluster_id = serializers.UUIDField()
    flavor = serializers.CharField()
    day = serializers.DateField()
    currency = serializers.CharField()
    cost = serializers.CharField()
    charged = serializers.CharField()
    overhead = serializers.CharField()
    idle = serializers.CharField()
    shared = serializers.CharField(help_text="The part of the idle cost that tenants bear.")
    assumed = serializers.CharField(help_text="The part of the cost that is of time without observation.")


class BridgeShown(serializers.Serializer[Any]):
    """From what jobs are charged to the total, in one currency."""

    currency = serializers.CharField()
    charged = serializers.CharField()
    commitment = serializers.CharField(help_text=COMMITMENT)
    credits = serializers.CharField(help_text="Not charged, because infrastructure lost the work; zero or negative.")
    infrastructure = serializers.CharField(help_text="The opposite of the credits: the organisation bears it.")
    idle_shared = serializers.CharField()
    idle_central = serializers.CharField()
    overhead = serializers.CharField()
    platform_shared = serializers.CharField()
    platform_central = serializers.CharField()
    commitment_unused = serializers.CharField(help_text="What no tenant used of commitments.")
    total = serializers.CharField()


class SharingShown(serializers.Serializer[Any]):
    """The month of an organisation. `pools` and `bridges` are empty for users who do not see all of it."""

    organisation = serializers.CharField()
    month = serializers.CharField()
    is_final = serializers.BooleanField(help_text="Whether the month is closed with these numbers.")
    idle_policy = serializers.CharField()
    platform_policy = serializers.CharField()
    tenants = TenantShareShown(many=True)
    pools = PoolDayShown(many=True)
    bridges = BridgeShown(many=True)


class PoliciesView(ApiView):
    """`/sharing-policies`."""

    paged = True

    @extend_schema(operation_id="sharing_policies_list", responses=page_shape(SharingPolicyShown))
    def get(self, request: Request) -> Response:
        """Lists the policies of the organisations that you see as a whole."""
        return self.page(visible_policies(self.actor), orders=ORDERS, render=show_policy)

    @extend_schema(
        operation_id="sharing_policies_create", request=SharingPolicyCreate, responses={201: SharingPolicyShown}
    )
    def post(self, request: Request) -> Response:
        """Sets who bears idle capacity and the platform, from a month on."""
        wanted = wanted_policy(self.read(SharingPolicyCreate))

        def produce() -> tuple[int, dict[str, Any]]:
            return status.HTTP_201_CREATED, show_policy(set_policy(self.actor, wanted))

        return self.created(request, None, "sharing-policies", produce)


def wanted_policy(fields: Mapping[str, Any]) -> NewPolicy:
    """The policy that a request of the shape `SharingPolicyCreate` describes. Raises Invalid."""
    cost = fields.get("platform_cost")
    weights = fields.get("platform_weights", [])
    if len(weights) > MOST_WEIGHTS:
        raise Invalid.field("platform_weights", "out_of_range", f"at most {MOST_WEIGHTS}")
    return NewPolicy(
        organisation=fields["organisation"],
        effective_from=month_from("effective_from", fields["effective_from"]),
        idle=fields["idle"],
        platform=fields.get("platform", SharingPolicy.Platform.PROPORTIONAL),
        platform_weights={one["tenant"]: one["weight"] for one in weights},
        **({"platform_cost": cost[0], "platform_currency": cost[1]} if cost else {}),
    )


class NegativeIdleView(ApiView):
    """`/negative-idle`."""

    paged = True
    filters = ("state",)

    @extend_schema(operation_id="negative_idle_list", parameters=[STATE], responses=page_shape(NegativeIdleShown))
    def get(self, request: Request) -> Response:
        """Lists days of pools with negative idle, of the organisations that you see as a whole. An open one blocks its month."""
        state = self.query.get("state", "")
        if state not in ("", *NegativeIdle.State.values):
            raise Invalid.field("state", "unknown_state", f"one of {', '.join(NegativeIdle.State.values)}")
        rows = visible_negative_idle(self.actor)
        return self.page(rows.filter(state=state) if state else rows, orders=SEEN, render=show_negative_idle)


class NegativeIdleAcceptanceView(ApiView):
    """`/negative-idle/{id}/accept`."""

    @extend_schema(operation_id="negative_idle_accept", request=NegativeIdleAcceptance, responses=NegativeIdleShown)
    def post(self, request: Request, row_id: UUID) -> Response:
        """Accepts it: the month closes with these numbers, and the difference stays central."""
        fields = self.read(NegativeIdleAcceptance)
        return Response(show_negative_idle(accept_negative_idle(self.actor, row_id, fields["note"])))


class SharingView(MonthReportView):
    """`/idle`."""

    @extend_schema(
        operation_id="idle_report",
        responses={(200, "application/json"): SharingShown, (200, "text/csv"): OpenApiTypes.STR},
    )
    def get(self, request: Request) -> Response:
        """Returns what an organisation's pools cost in a month, and what tenants bear before and after sharing.

        `format=csv` has a row for each pool and day.
        """
        asked = self.asked(request)
        report = sharing_report(self.actor, asked.organisation, asked.start.date())
        file = f"idle-{asked.start:%Y-%m}{'' if report.is_final else '-so-far'}.csv"
        return self.answer(request, asked, lambda: show_sharing(report), lambda: pools_csv(report), file)


def pools_csv(report: SharingReport) -> str:
    """The pools' days as CSV."""
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow(PoolDayShown().fields)
    writer.writerows(
        [
            [inert(value) if name in {"cluster", "flavor"} else value for name, value in show_pool(one).items()]
            for one in report.pools
        ]
    )
    return text.getvalue()


def show_policy(row: SharingPolicy) -> dict[str, Any]:
    """A policy as the API shows it."""
    cost = {"amount": f"{row.platform_cost:f}", "currency": row.platform_currency} if row.platform_cost else None
    return {
        "id": row.id,
        "organisation": row.organisation.path,
        "effective_from": f"{row.effective_from:%Y-%m}",
        "idle": row.idle,
        "platform": row.platform,
        "platform_cost": cost,
        "platform_weights": row.platform_weights,
        "made_by": row.made_by_name,
        "created_at": instant(row.created_at),
    }


def show_negative_idle(row: NegativeIdle) -> dict[str, Any]:
    """A row as the API shows it."""
    return {
        "id": str(row.id),
        "organisation": row.period.organisation.path,
        "cluster": row.cluster.name,
        "flavor": row.flavor,
        "day": f"{row.day}",
        "cost": {"amount": f"{row.cost:f}", "currency": row.currency},
        "charged": {"amount": f"{row.charged:f}", "currency": row.currency},
        "state": row.state,
        "note": row.note or None,
        "decided_by": row.decided_by_name or None,
        "seen_at": instant(row.seen_at),
    }


def show_sharing(report: SharingReport) -> dict[str, Any]:
    """A report as the API shows it."""
    return {
        "organisation": report.organisation,
        "month": f"{report.month:%Y-%m}",
        "is_final": report.is_final,
        "idle_policy": report.policy.idle,
        "platform_policy": report.policy.platform,
        "tenants": [
            {
                "tenant": one.tenant,
                "currency": one.currency,
                **_moneys(one, "direct", "idle", "platform", "credits", "commitment", "total"),
            }
            for one in report.tenants
        ],
        "pools": [show_pool(one) for one in report.pools],
        "bridges": [{"currency": one.currency, **_moneys(one, *BRIDGE)} for one in report.bridges],
    }


def show_pool(one: PoolShown) -> dict[str, Any]:
    """A pool's day, in the order of its columns."""
    return {
        "cluster": one.cluster,
        "cluster_id": str(one.key.cluster_id),
        "flavor": one.key.flavor,
        "day": f"{one.key.day}",
        "currency": one.key.currency,
        **_moneys(one.balance, "cost", "charged", "overhead", "idle"),
        "shared": f"{money(one.shared):f}",
        **_moneys(one.balance, "assumed"),
    }


def _moneys(one: Any, *names: str) -> dict[str, str]:
    return {name: f"{money(getattr(one, name)):f}" for name in names}
