"""Forecasts over HTTP: what a month or a budget's period is expected to cost, and how well that was expected before."""

import csv
import io
from collections.abc import Sequence
from datetime import date
from decimal import Decimal
from functools import partial
from typing import Any
from uuid import UUID

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.renderers import JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response

from billing.engine.backtest import BackTest
from billing.engine.forecast import LEAST_DAYS, Forecast, Parts, course
from billing.queries.budgets import budget_by_id
from billing.queries.forecasts import budget_forecast, tenant_forecast
from foundation.plain_json import instant
from foundation.problems import Conflict, Invalid
from foundation.shapes import Instant
from tenancy.api.views import ApiView

from .budgets import decimal_text
from .spreadsheet import CSVRenderer, inert, respond, wanted_format

COLUMNS = ("day", "total", "low", "high", "running", "expected", "unit")
TENANT = OpenApiParameter("tenant", str, required=True, description="Path, such as acme/research.")


class PartsShown(serializers.Serializer[Any]):
    """Parts of a forecast; they add up to `total` exactly."""

    posted = serializers.CharField(help_text="Metered in the period so far, with corrections.")
    running = serializers.CharField(help_text="What running work costs until its deadline, at most.")
    expected = serializers.CharField(help_text="New work, as it is usual on the days to come.")
    total = serializers.CharField()


class MemberShown(PartsShown):
    """The part of a tenant below, or of the tenant itself."""

    tenant = serializers.CharField()


class DayShown(serializers.Serializer[Any]):
    """A day from today on; `total`, `low` and `high` are the period's sum at its end."""

    day = serializers.DateField()
    running = serializers.CharField()
    expected = serializers.CharField()
    total = serializers.CharField()
    low = serializers.CharField()
    high = serializers.CharField()


class ScoreShown(serializers.Serializer[Any]):
    """How far a method was off in the back-test."""

    method = serializers.CharField()
    error = serializers.FloatField(help_text="Mean of the absolute errors of the sums of `horizon` days.")
    part = serializers.FloatField(allow_null=True, help_text="Of what these days cost.")
    is_chosen = serializers.BooleanField()


class BackTestShown(serializers.Serializer[Any]):
    """Every method, from `origins` past days over `horizon` days each. The first is the seasonal naive forecast."""

    origins = serializers.IntegerField()
    horizon = serializers.IntegerField()
    methods = ScoreShown(many=True)
    as_chosen_then = serializers.FloatField(
        allow_null=True, help_text="The error of choosing each time by what was known then."
    )
    naive_then = serializers.FloatField(allow_null=True, help_text="The naive error on the same days.")


class OutlookShown(PartsShown):
    """A forecast. Without a back-test there is too little history: `expected` is 0, and there is no range."""

    unit = serializers.CharField(help_text="A currency, or `GPU-hours`.")
    period_start = Instant()
    period_end = Instant()
    as_of = Instant()
    low = serializers.CharField(allow_null=True, help_text="10th percentile.")
    high = serializers.CharField(allow_null=True, help_text="90th percentile.")
    days_of_history = serializers.IntegerField()
    note = serializers.CharField(allow_null=True)
    days = DayShown(many=True)
    back_test = BackTestShown(allow_null=True)


class PostedInShown(serializers.Serializer[Any]):
    """What is posted at prices in a currency."""

    currency = serializers.CharField()
    posted = serializers.CharField(help_text="In that currency.")
    worth = serializers.CharField(help_text="In `unit`, at the rate of each day.")


class ForecastShown(OutlookShown):
    """The forecast of a tenant's month."""

    tenant = serializers.CharField()
    members = MemberShown(many=True, help_text="They add up to the whole, part by part.")
    posted_in = PostedInShown(
        many=True, help_text="By currency of the price, if one is not `unit`; their worth adds up to `posted`."
    )


class BudgetForecastShown(OutlookShown):
    """The forecast of a budget's current period."""

    budget = serializers.UUIDField()
    amount = serializers.CharField()
    reached_on = serializers.DateField(allow_null=True, help_text="When the amount is expected to be reached.")


class ForecastView(ApiView):
    """`/forecast`."""

    filters = ("tenant", "format")
    renderer_classes = [JSONRenderer, CSVRenderer]

    @extend_schema(
        operation_id="forecast_read",
        parameters=[TENANT],
        responses={(200, "application/json"): ForecastShown, (200, "text/csv"): OpenApiTypes.STR},
    )
    def get(self, request: Request) -> Response:
        """Returns what a tenant and all below it are expected to cost in the current month.

        `format=csv` has a row for each day of the month, past ones too.
        """
        wanted = wanted_format(request, self.query)
        path = self.query.get("tenant", "")
        if not path:
            raise Invalid.field("tenant", "required", "name a tenant such as acme/research")
        found = tenant_forecast(self.actor, path)
        name = f"{found.path.replace('/', '-')}-{found.span[0]:%Y-%m}"
        shown = {
            "tenant": found.path,
            **show_outlook(found.outlook, found.currency, found.span, found.at),
            "members": [{"tenant": name, **_parts(parts)} for name, parts in found.outlook.members.items()],
            "posted_in": [
                {"currency": one.currency, "posted": decimal_text(one.posted), "worth": decimal_text(one.worth)}
                for one in found.posted_in
            ],
        }
        text = partial(days_csv, found.outlook, found.past, found.currency)
        return respond(request, wanted, lambda: shown, text, f"forecast-{name}.csv")


class BudgetForecastView(ApiView):
    """`/budgets/{id}/forecast`."""

    filters = ("format",)
    renderer_classes = [JSONRenderer, CSVRenderer]

    @extend_schema(
        operation_id="budgets_forecast",
        responses={(200, "application/json"): BudgetForecastShown, (200, "text/csv"): OpenApiTypes.STR},
    )
    def get(self, request: Request, budget_id: UUID) -> Response:
        """Returns what the current period of a budget is expected to reach.

        `format=csv` has a row for each day of the period, past ones too.
        """
        wanted = wanted_format(request, self.query)
        found = budget_forecast(budget_by_id(self.actor, budget_id))
        if found.outlook is None:
            raise Conflict("Today is not within the dates of this budget.", code="not_in_period")
        unit, limit = found.state.terms.currency or "GPU-hours", found.state.limit
        name = f"budget-{budget_id}-{found.state.span[0]:%Y-%m-%d}"
        day: date | None = found.outlook.reaches(limit)
        shown = {
            "budget": str(budget_id),
            "amount": decimal_text(limit),
            "reached_on": None if day is None else f"{day}",
            **show_outlook(found.outlook, unit, found.state.span, found.at),
        }
        text = partial(days_csv, found.outlook, found.past, unit)
        return respond(request, wanted, lambda: shown, text, f"forecast-{name}.csv")


def days_csv(outlook: Forecast, past: Sequence[tuple[date, Decimal]], unit: str) -> str:
    """The days of the period as CSV: the sum at the end of each, and from today on its range and what the day adds."""
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow(COLUMNS)
    for one in course(outlook, past):
        added = (None, None) if one.ahead is None else (one.ahead.running, one.ahead.expected)
        amounts = ["" if amount is None else decimal_text(amount) for amount in (one.total, one.low, one.high, *added)]
        writer.writerow([one.day, *amounts, inert(unit)])
    return text.getvalue()


def show_outlook(outlook: Forecast, unit: str, span: tuple[Any, Any], at: Any) -> dict[str, Any]:
    """A forecast as the API shows it."""
    return {
        **_parts(outlook.parts),
        "unit": unit,
        "period_start": instant(span[0]),
        "period_end": instant(span[1]),
        "as_of": instant(at),
        "low": decimal_text(outlook.low) if outlook.has_history else None,
        "high": decimal_text(outlook.high) if outlook.has_history else None,
        "days_of_history": outlook.days_of_history,
        "note": None if outlook.has_history else too_little(outlook),
        "days": [
            {
                "day": f"{one.day}",
                **{name: decimal_text(getattr(one, name)) for name in ("running", "expected", "total", "low", "high")},
            }
            for one in outlook.days
        ],
        "back_test": None if outlook.tested is None else _back_test(outlook.tested),
    }


def too_little(outlook: Forecast) -> str:
    """What a forecast without history says."""
    return (
        f"There are {outlook.days_of_history} days of history, and {LEAST_DAYS} are needed to expect new work."
        " The total is what is posted and what runs until its deadline."
    )


def _parts(parts: Parts) -> dict[str, str]:
    figures: dict[str, Decimal] = {
        "posted": parts.posted, "running": parts.running, "expected": parts.expected, "total": parts.total,
    }  # fmt: skip
    return {name: decimal_text(amount) for name, amount in figures.items()}


def _back_test(tested: BackTest) -> dict[str, Any]:
    return {
        "origins": tested.origins,
        "horizon": tested.horizon,
        "methods": [
            {
                "method": one.method.name,
                "error": one.error,
                "part": one.part,
                "is_chosen": one.method == tested.chosen,
            }
            for one in tested.scores
        ],
        "as_chosen_then": tested.as_chosen_then,
        "naive_then": tested.naive_then,
    }
