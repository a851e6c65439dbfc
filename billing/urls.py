"""Paths of this room: `api_urlpatterns` below /api/v1/, `web_urlpatterns` below /."""

from django.urls import URLPattern, URLResolver, path

from .api.egress import EgressPricesView, EgressPriceView
from .api.exports import FocusSchemaView, FocusView
from .api.views import PricesView, UsageView
from .web import egress, prices, usage

api_urlpatterns: list[URLPattern | URLResolver] = [
    path("prices", PricesView.as_view(), name="api-prices"),
    path("egress-prices", EgressPricesView.as_view(), name="api-egress-prices"),
    path("egress-prices/<uuid:price_id>", EgressPriceView.as_view(), name="api-egress-price"),
    path("exports/focus", FocusView.as_view(), name="api-exports-focus"),
    path("exports/focus/schema", FocusSchemaView.as_view(), name="api-exports-focus-schema"),
    path("usage", UsageView.as_view(), name="api-usage"),
]
web_urlpatterns: list[URLPattern | URLResolver] = [
    path("usage/", usage.usage, name="usage"),
    path("prices/", prices.prices, name="prices"),
    path("prices/egress/", egress.egress, name="egress"),
    path("prices/egress/<uuid:price_id>/end/", egress.end, name="egress-end"),
]
