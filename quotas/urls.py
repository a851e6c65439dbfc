"""Paths of this room: `api_urlpatterns` below /api/v1/, `web_urlpatterns` below /."""

from django.urls import URLPattern, URLResolver, path

from .api.people import SubmissionLimitsView, SubmissionLimitView, UserLimitsView, UserLimitView
from .api.views import QuotasView, QuotaView
from .web import pages, people

api_urlpatterns: list[URLPattern | URLResolver] = [
    path("quotas", QuotasView.as_view(), name="api-quotas"),
    path("quotas/<uuid:limit_id>", QuotaView.as_view(), name="api-quota"),
    path("user-limits", UserLimitsView.as_view(), name="api-user-limits"),
    path("user-limits/<uuid:limit_id>", UserLimitView.as_view(), name="api-user-limit"),
    path("submission-limits", SubmissionLimitsView.as_view(), name="api-submission-limits"),
    path("submission-limits/<uuid:limit_id>", SubmissionLimitView.as_view(), name="api-submission-limit"),
]
web_urlpatterns: list[URLPattern | URLResolver] = [
    path("quotas/", pages.quotas, name="quotas"),
    path("quotas/set/", pages.edit, name="quota-edit"),
    path("quotas/<uuid:limit_id>/remove/", pages.remove, name="quota-remove"),
    path("quotas/users/set/", people.edit_user_limit, name="user-limit-edit"),
    path("quotas/users/<uuid:limit_id>/remove/", people.remove_user_limit, name="user-limit-remove"),
    path("quotas/submission/set/", people.edit_submission_limit, name="submission-limit-edit"),
    path("quotas/submission/<uuid:limit_id>/remove/", people.remove_submission_limit, name="submission-limit-remove"),
]
