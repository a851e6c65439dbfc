"""Paths of this room: `api_urlpatterns` below /api/v1/, `web_urlpatterns` below /."""

from django.urls import URLPattern, URLResolver, path

from .api.budgets import ApprovalView, BudgetsView, BudgetView, OverridesView
from .api.corrections import CorrectionsView
from .api.egress import EgressPricesView, EgressPriceView
from .api.exports import FocusSchemaView, FocusView
from .api.periods import (
    PeriodCloseView,
    PeriodReopeningApprovalView,
    PeriodReopeningView,
    PeriodsView,
    PeriodView,
)
from .api.views import PricesView, UsageView
from .web import budgets, egress, months, prices, usage

api_urlpatterns: list[URLPattern | URLResolver] = [
    path("budgets", BudgetsView.as_view(), name="api-budgets"),
    path("budgets/<uuid:budget_id>", BudgetView.as_view(), name="api-budget"),
    path("budgets/<uuid:budget_id>/overrides", OverridesView.as_view(), name="api-budget-overrides"),
    path(
        "budgets/<uuid:budget_id>/overrides/<uuid:override_id>/approve",
        ApprovalView.as_view(),
        name="api-budget-override-approve",
    ),
    path("prices", PricesView.as_view(), name="api-prices"),
    path("prices/<uuid:price_id>/corrections", CorrectionsView.as_view(), name="api-price-corrections"),
    path("egress-prices", EgressPricesView.as_view(), name="api-egress-prices"),
    path("egress-prices/<uuid:price_id>", EgressPriceView.as_view(), name="api-egress-price"),
    path("exports/focus", FocusView.as_view(), name="api-exports-focus"),
    path("exports/focus/schema", FocusSchemaView.as_view(), name="api-exports-focus-schema"),
    path("periods", PeriodsView.as_view(), name="api-periods"),
    path("periods/<uuid:period_id>", PeriodView.as_view(), name="api-period"),
    path("periods/<uuid:period_id>/close", PeriodCloseView.as_view(), name="api-period-close"),
    path("periods/<uuid:period_id>/reopening", PeriodReopeningView.as_view(), name="api-period-reopening"),
    path(
        "periods/<uuid:period_id>/reopening/approve",
        PeriodReopeningApprovalView.as_view(),
        name="api-period-reopening-approval",
    ),
    path("usage", UsageView.as_view(), name="api-usage"),
]
web_urlpatterns: list[URLPattern | URLResolver] = [
    path("budgets/", budgets.budgets, name="budgets"),
    path("budgets/set/", budgets.edit, name="budget-edit"),
    path("budgets/<uuid:budget_id>/", budgets.budget, name="budget"),
    path("budgets/<uuid:budget_id>/remove/", budgets.remove, name="budget-remove"),
    path("budgets/<uuid:budget_id>/overrides/<uuid:override_id>/approve/", budgets.approve, name="budget-approve"),
    path("months/", months.months, name="months"),
    path("months/<uuid:period_id>/", months.month, name="month"),
    path("months/<uuid:period_id>/close/", months.close, name="month-close"),
    path("months/<uuid:period_id>/approve/", months.approve, name="month-approve"),
    path("usage/", usage.usage, name="usage"),
    path("prices/", prices.prices, name="prices"),
    path("prices/egress/", egress.egress, name="egress"),
    path("prices/egress/<uuid:price_id>/end/", egress.end, name="egress-end"),
]
