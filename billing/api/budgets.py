"""Budgets over HTTP: translate, make one call, translate back."""

from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

from drf_spectacular.utils import OpenApiResponse, extend_schema
from rest_framework import serializers, status
from rest_framework.request import Request
from rest_framework.response import Response

from billing.engine.amounts import decimal_text as decimal_text
from billing.engine.budgets import Terms, expectation_message
from billing.models import Budget, BudgetAlert, BudgetForecastAlert, BudgetOverride
from billing.operations.budgets import USUAL_THRESHOLDS, WantedBudget, delete_budget, put_budget
from billing.operations.overrides import LONGEST_REASON, approve_override, request_override
from billing.queries.budget_exchange import ForeignCharge, foreign_charges, total_difference
from billing.queries.budgets import (
    PeriodState,
    alerts_of,
    budget_by_id,
    expectation_of,
    forecast_alerts_of,
    overrides_of,
    states_at,
    visible_budgets,
)
from foundation.clock import now
from foundation.plain_json import instant
from foundation.problems import Invalid
from foundation.schema import page_shape
from foundation.shapes import Instant, StrictShape, Text, Whole
from tenancy.api.views import ApiView

from .shapes import AMOUNT, Money, MoneyShape

ORDERS = {"created": "id", "-created": "-id"}
OVERRIDE_ORDERS = {"created": "id", "-created": "-id"}
DAY = timedelta(days=1)


class Day(serializers.DateField):
    """A day such as 2026-12-01."""

    def to_internal_value(self, value: Any) -> date:
        try:
            if isinstance(value, str) and len(value) == len("2026-12-01"):
                return date.fromisoformat(value)
        except ValueError:
            pass
        raise serializers.ValidationError("a day such as 2026-12-01", "bad_format")


class BudgetPut(StrictShape):
    """A budget to create or replace. Give `amount` for one of money, or `gpu_hours`."""

    tenant = Text(max_length=1100, help_text="Path, such as acme/research.")
    amount = Money(required=False, allow_null=True, default=None)
    gpu_hours = Text(
        required=False, allow_null=True, default=None, max_length=20, help_text='Of physical GPUs, such as "500".'
    )
    period = serializers.ChoiceField(Budget.Period.values)
    starts_on = Day(required=False, allow_null=True, default=None, help_text="The first day in UTC; for `dates` only.")
    ends_on = Day(required=False, allow_null=True, default=None, help_text="The last day in UTC; for `dates` only.")
    notify_at = serializers.ListField(
        child=Whole(min_value=1, max_value=1000),
        default=list(USUAL_THRESHOLDS),
        max_length=10,
        help_text="Percentages of the amount; an alert is recorded when spending reaches one.",
    )
    notify_forecast_at = serializers.ListField(
        child=Whole(min_value=1, max_value=1000),
        required=False,
        allow_null=True,
        default=None,
        max_length=10,
        help_text="The same of what is expected at the end of the period; absent: as it is, and [100] for a new budget.",
    )
    stops_admission = serializers.BooleanField(
        default=False, help_text="No job starts that could go beyond the amount."
    )


class AlertShown(serializers.Serializer[Any]):
    """A threshold that was reached in the shown period."""

    percent = serializers.IntegerField()
    spent = serializers.CharField()
    amount = serializers.CharField()
    at = Instant()


class ForecastAlertShown(serializers.Serializer[Any]):
    """A threshold that the shown period was expected to reach when the alert was recorded."""

    percent = serializers.IntegerField()
    spent = serializers.CharField()
    amount = serializers.CharField()
    expected = serializers.CharField(help_text="At the end of the period.")
    low = serializers.CharField(help_text="10th percentile.")
    high = serializers.CharField(help_text="90th percentile.")
    reached_on = serializers.DateField(help_text="When the threshold is expected to be reached.")
    text = serializers.CharField()
    at = Instant()


class ForeignShown(serializers.Serializer[Any]):
    """What the shown period was charged in another currency."""

    currency = serializers.CharField()
    charged = serializers.CharField(help_text="In that currency.")
    counted = serializers.CharField(help_text="As the budget counts it, at the rates that it kept.")
    worth = serializers.CharField(allow_null=True, help_text="At the rates that count now; null if one is missing.")


class BudgetShown(serializers.Serializer[Any]):
    """A budget and its figures in one period: the current one, or the only one of a budget with dates."""

    id = serializers.UUIDField()
    tenant = serializers.CharField()
    amount = MoneyShape(allow_null=True)
    gpu_hours = serializers.CharField(allow_null=True)
    period = serializers.ChoiceField(Budget.Period.values)
    starts_on = serializers.DateField(allow_null=True)
    ends_on = serializers.DateField(allow_null=True)
    notify_at = serializers.ListField(child=serializers.IntegerField())
    notify_forecast_at = serializers.ListField(child=serializers.IntegerField())
    stops_admission = serializers.BooleanField()
    period_start = Instant()
    period_end = Instant()
    granted = serializers.CharField(help_text="What approved overrides add now.")
    spent = serializers.CharField(
        help_text="What was metered, with corrections of the ledger; a credit can bring it below zero."
    )
    held = serializers.CharField(help_text="What running work may still use.")
    left = serializers.CharField()
    foreign = ForeignShown(many=True)
    exchange_difference = serializers.CharField(
        allow_null=True,
        help_text="How much more would be spent at the rates that count now; null without other currencies.",
    )
    state = serializers.ChoiceField(["open", "nearly_used", "used_up", "over"])
    alerts = AlertShown(many=True)
    forecast_alerts = ForecastAlertShown(many=True)
    updated_at = Instant()


class OverrideCreate(StrictShape):
    """More than the amount, in the current period."""

    amount = Text(max_length=20, help_text="In the budget's currency, or GPU-hours.")
    reason = Text(max_length=LONGEST_REASON)
    expires_at = Instant(help_text="At the latest the period's end.")


class OverrideShown(serializers.Serializer[Any]):
    """An override; without `approved_at` it is only requested."""

    id = serializers.UUIDField()
    amount = serializers.CharField()
    reason = serializers.CharField()
    period_start = Instant()
    expires_at = Instant()
    requested_by = serializers.CharField()
    requested_at = Instant()
    approved_by = serializers.CharField(allow_null=True)
    approved_at = Instant(allow_null=True)


class BudgetsView(ApiView):
    """`/budgets`."""

    filters = ("tenant",)
    paged = True

    @extend_schema(operation_id="budgets_list", responses=page_shape(BudgetShown))
    def get(self, request: Request) -> Response:
        """Lists the budgets that you may see, with what is spent, held and left."""
        budgets = visible_budgets(self.actor, tenant_path=self.query.get("tenant", ""))
        return self.page(budgets, orders=ORDERS, render=_Figures(list(budgets)).show)

    @extend_schema(operation_id="budgets_put", request=BudgetPut, responses={200: BudgetShown, 201: BudgetShown})
    def put(self, request: Request) -> Response:
        """Creates the budget of a tenant for money or GPU-hours and a kind of period, or replaces it."""
        budget, is_new = put_budget(self.actor, _wanted(self.read(BudgetPut)))
        return Response(_Figures([budget]).show(budget), status=201 if is_new else 200)


class BudgetView(ApiView):
    """`/budgets/{id}`."""

    @extend_schema(operation_id="budgets_read", responses=BudgetShown)
    def get(self, request: Request, budget_id: UUID) -> Response:
        """Returns a budget."""
        budget = budget_by_id(self.actor, budget_id)
        return Response(_Figures([budget]).show(budget))

    @extend_schema(operation_id="budgets_delete", responses={204: OpenApiResponse(description="Removed.")})
    def delete(self, request: Request, budget_id: UUID) -> Response:
        """Removes a budget; it no longer applies to its tenant."""
        delete_budget(self.actor, budget_id)
        return Response(status=status.HTTP_204_NO_CONTENT)


class OverridesView(ApiView):
    """`/budgets/{id}/overrides`."""

    paged = True

    @extend_schema(operation_id="budget_overrides_list", responses=page_shape(OverrideShown))
    def get(self, request: Request, budget_id: UUID) -> Response:
        """Lists the overrides of a budget, requested and approved."""
        overrides = overrides_of(budget_by_id(self.actor, budget_id))
        return self.page(overrides, orders=OVERRIDE_ORDERS, render=show_override)

    @extend_schema(operation_id="budget_overrides_request", request=OverrideCreate, responses={201: OverrideShown})
    def post(self, request: Request, budget_id: UUID) -> Response:
        """Requests more in the current period. Another user must approve it."""
        body = self.read(OverrideCreate)
        amount = _number("amount", body["amount"])

        def produce() -> tuple[int, dict[str, Any]]:
            override = request_override(
                self.actor, budget_id, amount=amount, reason=body["reason"], expires_at=body["expires_at"]
            )
            return status.HTTP_201_CREATED, show_override(override)

        return self.created(request, None, f"budgets/{budget_id}/overrides", produce)


class ApprovalView(ApiView):
    """`/budgets/{id}/overrides/{id}/approve`."""

    @extend_schema(operation_id="budget_overrides_approve", request=None, responses=OverrideShown)
    def post(self, request: Request, budget_id: UUID, override_id: UUID) -> Response:
        """Approves an override that another user requested."""
        return Response(show_override(approve_override(self.actor, budget_id, override_id)))


class _Figures:
    """The figures of several budgets, loaded together."""

    def __init__(self, budgets: list[Budget]) -> None:
        self._states = states_at(budgets, now())
        periods = [(id_, state.span[0]) for id_, state in self._states.items()]
        self._alerts = alerts_of(periods)
        self._expected = forecast_alerts_of(periods)
        self._foreign = foreign_charges(self._states.values())

    def show(self, budget: Budget) -> dict[str, Any]:
        """A budget as the API shows it."""
        alerts, expected = self._alerts.get(budget.id, []), self._expected.get(budget.id, [])
        return {
            **show_budget(budget, self._states[budget.id], alerts, expected),
            **show_foreign(self._foreign.get(budget.id, ())),
        }


def show_budgets(budgets: Sequence[Budget]) -> list[dict[str, Any]]:
    """The budgets as the API shows them."""
    figures = _Figures(list(budgets))
    return [figures.show(one) for one in budgets]


def show_budget(
    budget: Budget, state: PeriodState, alerts: list[BudgetAlert], expected: list[BudgetForecastAlert]
) -> dict[str, Any]:
    """A budget with its figures in a period."""
    is_money = state.terms.measure == "money"
    return {
        "id": str(budget.id),
        "tenant": budget.tenant.path,
        "amount": {"amount": decimal_text(state.amount), "currency": budget.currency} if is_money else None,
        "gpu_hours": None if is_money else decimal_text(state.amount),
        "period": budget.period,
        **_days(state.terms),
        "notify_at": budget.notify_at,
        "notify_forecast_at": budget.notify_forecast_at,
        "stops_admission": budget.stops_admission,
        "period_start": instant(state.span[0]),
        "period_end": instant(state.span[1]),
        "granted": decimal_text(state.granted),
        "spent": decimal_text(state.spent),
        "held": decimal_text(state.held),
        "left": decimal_text(state.left),
        "state": state.state,
        "alerts": [
            {
                "percent": one.percent,
                "spent": decimal_text(one.spent),
                "amount": decimal_text(one.amount),
                "at": instant(one.at),
            }
            for one in alerts
        ],
        "forecast_alerts": [
            {
                **{name: decimal_text(getattr(one, name)) for name in ("spent", "amount", "expected", "low", "high")},
                "percent": one.percent,
                "reached_on": f"{one.reached_on}",
                "text": expectation_message(state.terms, state.span, expectation_of(one)),
                "at": instant(one.at),
            }
            for one in expected
        ],
        "updated_at": instant(budget.updated_at),
    }


def show_foreign(charges: Sequence[ForeignCharge]) -> dict[str, Any]:
    """What a period was charged in other currencies."""
    difference = total_difference(charges)
    return {
        "foreign": [
            {
                "currency": one.currency,
                "charged": decimal_text(one.charged),
                "counted": decimal_text(one.counted),
                "worth": None if one.worth is None else decimal_text(one.worth),
            }
            for one in charges
        ],
        "exchange_difference": None if difference is None else decimal_text(difference),
    }


def show_override(override: BudgetOverride) -> dict[str, Any]:
    """An override as the API shows it."""
    return {
        "id": str(override.id),
        "amount": decimal_text(override.amount),
        "reason": override.reason,
        "period_start": instant(override.period.starts_at),
        "expires_at": instant(override.expires_at),
        "requested_by": override.requester_name,
        "requested_at": instant(override.requested_at),
        "approved_by": override.approver_name or None,
        "approved_at": instant(override.approved_at),
    }


def _days(terms: Terms) -> Mapping[str, str | None]:
    if terms.starts_at is None or terms.ends_at is None:
        return {"starts_on": None, "ends_on": None}
    return {"starts_on": f"{terms.starts_at:%Y-%m-%d}", "ends_on": f"{terms.ends_at - DAY:%Y-%m-%d}"}


def _wanted(body: Mapping[str, Any]) -> WantedBudget:
    money, hours = body["amount"], body["gpu_hours"]
    if (money is None) == (hours is None):
        code = "required" if money is None else "given_twice"
        raise Invalid.field("amount", code, "give either amount or gpu_hours")
    amount, currency = (_number("gpu_hours", hours), "") if money is None else money
    return WantedBudget(
        tenant_path=body["tenant"],
        measure="gpu_hours" if money is None else "money",
        amount=amount,
        currency=currency,
        period=body["period"],
        starts_at=_midnight(body["starts_on"]),
        ends_at=None if body["ends_on"] is None else _midnight(min(body["ends_on"], date.max - DAY) + DAY),
        notify_at=tuple(body["notify_at"]),
        notify_forecast_at=None if body["notify_forecast_at"] is None else tuple(body["notify_forecast_at"]),
        stops_admission=body["stops_admission"],
    )


def _midnight(day: date | None) -> datetime | None:
    return None if day is None else datetime.combine(day, time(), UTC)


def _number(name: str, text: str) -> Decimal:
    if not AMOUNT.fullmatch(text):
        raise Invalid.field(name, "bad_format", "a string such as 500 or 2.50, with up to 6 decimals")
    return Decimal(text)
