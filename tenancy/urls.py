"""Paths of this room: `api_urlpatterns` below /api/v1/, `web_urlpatterns` below /."""

from django.urls import URLPattern, URLResolver, path

from .api import people, tenants
from .web import pages, sign_in

api_urlpatterns: list[URLPattern | URLResolver] = [
    path("me", people.Me.as_view()),
    path("tenants", tenants.Tenants.as_view()),
    path("tenants/<uuid:tenant_id>", tenants.OneTenant.as_view()),
    path("tenants/<uuid:tenant_id>/role-bindings", tenants.RoleBindings.as_view()),
    path("tenants/<uuid:tenant_id>/role-bindings/<uuid:binding_id>", tenants.OneRoleBinding.as_view()),
    path("tokens", people.Tokens.as_view()),
    path("tokens/<uuid:token_id>", people.OneToken.as_view()),
    path("audit", people.Audit.as_view()),
]
web_urlpatterns: list[URLPattern | URLResolver] = [
    path("login/", sign_in.sign_in, name="login"),
    path("logout/", sign_in.sign_out, name="logout"),
    path("tenants/", pages.tenants, name="tenants"),
    path("tenants/<uuid:tenant_id>/", pages.tenant, name="tenant"),
    path("tokens/", pages.tokens, name="tokens"),
    path("tokens/<uuid:token_id>/revoke/", pages.revoke, name="token-revoke"),
    path("audit/", pages.audit, name="audit"),
]
