"""Paths of this room: `api_urlpatterns` below /api/v1/, `web_urlpatterns` below /."""

from django.urls import URLPattern, URLResolver, path

from .api import members, people, tenants
from .web import account, links, pages, roles, sign_in
from .web import people as people_pages
from .web import tenants as tenant_pages

api_urlpatterns: list[URLPattern | URLResolver] = [
    path("me", people.Me.as_view()),
    path("tenants", tenants.Tenants.as_view()),
    path("tenants/<uuid:tenant_id>", tenants.OneTenant.as_view()),
    path("tenants/<uuid:tenant_id>/role-bindings", tenants.RoleBindings.as_view()),
    path("tenants/<uuid:tenant_id>/role-bindings/<uuid:binding_id>", tenants.OneRoleBinding.as_view()),
    path("tenants/<uuid:tenant_id>/invitations", members.Invitations.as_view()),
    path("tenants/<uuid:tenant_id>/invitations/<uuid:invitation_id>", members.OneInvitation.as_view()),
    path("tenants/<uuid:tenant_id>/members/<uuid:person_id>", members.OneMember.as_view()),
    path("people", members.People.as_view()),
    path("people/<uuid:person_id>", members.OnePerson.as_view()),
    path("people/<uuid:person_id>/links", members.Links.as_view()),
    path("people/<uuid:person_id>/end-sessions", members.EndSessions.as_view()),
    path("people/<uuid:person_id>/deactivate", members.Deactivation.as_view()),
    path("people/<uuid:person_id>/activate", members.Activation.as_view()),
    path("tokens", people.Tokens.as_view()),
    path("tokens/<uuid:token_id>", people.OneToken.as_view()),
    path("audit", people.Audit.as_view()),
]
web_urlpatterns: list[URLPattern | URLResolver] = [
    path("login/", sign_in.sign_in, name="login"),
    path("logout/", sign_in.sign_out, name="logout"),
    path("tenants/", tenant_pages.tenants, name="tenants"),
    path("tenants/new/", tenant_pages.new_organisation, name="organisation-new"),
    path("tenants/<uuid:tenant_id>/", tenant_pages.tenant, name="tenant"),
    path("tenants/<uuid:tenant_id>/new/", tenant_pages.new_tenant, name="tenant-new"),
    path("tenants/<uuid:tenant_id>/edit/", tenant_pages.edit_tenant, name="tenant-edit"),
    path("tenants/<uuid:tenant_id>/remove/", tenant_pages.remove, name="tenant-remove"),
    path("tenants/<uuid:tenant_id>/roles/", roles.bind, name="role-bind"),
    path("tenants/<uuid:tenant_id>/roles/<uuid:binding_id>/", roles.binding, name="role-binding"),
    path("tenants/<uuid:tenant_id>/roles/<uuid:binding_id>/remove/", roles.unbind, name="role-unbind"),
    path("tenants/<uuid:tenant_id>/people/", people_pages.people, name="people"),
    path("tenants/<uuid:tenant_id>/people/<uuid:person_id>/remove/", people_pages.remove, name="member-remove"),
    path(
        "tenants/<uuid:tenant_id>/invitations/<uuid:invitation_id>/withdraw/",
        people_pages.withdraw,
        name="invitation-withdraw",
    ),
    path("people/<uuid:person_id>/", people_pages.person, name="person"),
    path("people/<uuid:person_id>/link/", people_pages.link_for_person, name="person-link"),
    path("people/<uuid:person_id>/end-sessions/", people_pages.end_sessions_of, name="person-end-sessions"),
    path("people/<uuid:person_id>/deactivate/", people_pages.deactivate, name="person-deactivate"),
    path("people/<uuid:person_id>/activate/", people_pages.activate, name="person-activate"),
    path("account/", account.account, name="account"),
    path("account/end-sessions/", account.end_own_sessions, name="account-end-sessions"),
    path("sign-in/link/", links.link, name="link"),
    path("tokens/", pages.tokens, name="tokens"),
    path("tokens/<uuid:token_id>/revoke/", pages.revoke, name="token-revoke"),
    path("audit/", pages.audit, name="audit"),
]
