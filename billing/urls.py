"""Paths of this room: `api_urlpatterns` below /api/v1/, `web_urlpatterns` below /."""

from django.urls import URLPattern, URLResolver, path

from .api.views import PricesView, UsageView
from .web import prices, usage

api_urlpatterns: list[URLPattern | URLResolver] = [
    path("prices", PricesView.as_view(), name="api-prices"),
    path("usage", UsageView.as_view(), name="api-usage"),
]
web_urlpatterns: list[URLPattern | URLResolver] = [
    path("usage/", usage.usage, name="usage"),
    path("prices/", prices.prices, name="prices"),
]
