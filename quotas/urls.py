"""Paths of this room: `api_urlpatterns` below /api/v1/, `web_urlpatterns` below /."""

from django.urls import URLPattern, URLResolver, path

from .api.views import QuotasView, QuotaView
from .web import pages

api_urlpatterns: list[URLPattern | URLResolver] = [
    path("quotas", QuotasView.as_view(), name="api-quotas"),
    path("quotas/<uuid:limit_id>", QuotaView.as_view(), name="api-quota"),
]
web_urlpatterns: list[URLPattern | URLResolver] = [
    path("quotas/", pages.quotas, name="quotas"),
    path("quotas/set/", pages.edit, name="quota-edit"),
    path("quotas/<uuid:limit_id>/remove/", pages.remove, name="quota-remove"),
]
