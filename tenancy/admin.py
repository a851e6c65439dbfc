"""The room in the operators' admin. Users and groups can be changed here, with audit entries; everything else is
read-only.
"""

from typing import Any

from django import forms
from django.contrib import admin
from django.contrib.auth.admin import GroupAdmin as DjangoGroupAdmin
from django.contrib.auth.models import Group
from django.contrib.auth.views import redirect_to_login
from django.core.exceptions import PermissionDenied
from django.db.models import Model
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse

from .models import ApiToken, AuditEntry, AuditLink, Membership, OneTimeLink, RoleBinding, Tenant, User
from .operations import is_superuser_still, record_audit
from .queries import Actor, actor_for, may_help

POWERS = {"is_staff", "is_superuser", "groups", "user_permissions"}
"""The fields of a user that only superusers change."""


def sign_in_first(request: HttpRequest, _extra: object = None) -> HttpResponse:
    """The admin has no separate sign-in, so that it cannot bypass the lockout of the normal sign-in."""
    if request.user.is_authenticated:
        raise PermissionDenied
    return redirect_to_login(request.GET.get("next", "/admin/"))


def to_the_account(request: HttpRequest, _extra: object = None) -> HttpResponse:  # noqa: ARG001 - the framework's signature
    """Users change their password only on their account's page."""
    return redirect("account")


admin.site.login = sign_in_first  # type: ignore[method-assign,assignment]
admin.site.password_change = to_the_account  # type: ignore[method-assign,assignment]
admin.site.site_header = admin.site.site_title = "Switchyard operators"


class OnlyToLookAt:
    """A read-only admin page."""

    show_full_result_count = False

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: object = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: object = None) -> bool:
        return False


class Audited:
    """Writes changes made here into the audit trail, in the same transaction: names of fields, never their values."""

    def has_delete_permission(self, request: HttpRequest, obj: object = None) -> bool:
        return False

    def log_addition(self, request: HttpRequest, obj: Model, message: Any) -> Any:
        _record(request, "create", obj, message)
        return super().log_addition(request, obj, message)  # type: ignore[misc]

    def log_change(self, request: HttpRequest, obj: Model, message: Any) -> Any:
        _record(request, "change", obj, message)
        return super().log_change(request, obj, message)  # type: ignore[misc]


def actor_of(request: HttpRequest) -> Actor:
    assert isinstance(request.user, User)
    return actor_for(request.user)


def _record(request: HttpRequest, verb: str, obj: Model, message: Any) -> None:
    kind = type(obj).__name__.lower()
    fields = [name for part in message if isinstance(part, dict) for name in part.get("changed", {}).get("fields", [])]
    record_audit(
        actor_of(request), f"{kind}.{verb}", object_kind=kind, object_id=str(obj.pk), detail={"fields": fields}
    )


class UserForm(forms.ModelForm):
    def clean_email(self) -> str:
        """Stored in lower case, so that a different case cannot create a second account."""
        return str(self.cleaned_data["email"]).lower()


@admin.register(User)
class UserAdmin(Audited, admin.ModelAdmin):
    """All users. Passwords are neither set nor shown here: a user sets one with a one-time link ("View on site" makes
    one).

    Only superusers set who is staff or superuser, and who is in which group, because groups carry roles; never for
    themselves. Other staff edit the users whom they may help (see `may_help`). They never change an email, with which
    an account signs in. Access ends on the person's own page ("View on site"), which keeps the last admin.
    """

    form = UserForm
    ordering = ["email"]
    list_display = ["email", "display_name", "is_active", "is_staff", "last_login"]
    list_filter = ["is_active", "is_staff", "is_superuser", "groups"]
    search_fields = ["email", "display_name"]
    filter_horizontal = ["groups", "user_permissions"]
    readonly_fields = ["is_active", "last_login", "created_at"]
    fieldsets = [
        (None, {"fields": ["email", "display_name"]}),
        ("Permissions", {"fields": ["is_active", "is_staff", "is_superuser", "groups", "user_permissions"]}),
        ("Dates", {"fields": ["last_login", "created_at"]}),
    ]

    def lookup_allowed(self, lookup: str, value: str, request: HttpRequest) -> bool:
        """Filtering a list by the beginning of the stored password would reveal its hash, letter by letter."""
        return not lookup.startswith("password") and super().lookup_allowed(lookup, value, request)

    def view_on_site(self, obj: User) -> str:
        return reverse("person", args=[obj.pk])

    def has_change_permission(self, request: HttpRequest, obj: User | None = None) -> bool:
        allowed = super().has_change_permission(request, obj)
        if obj is None or not allowed:
            return allowed
        return request.user.is_superuser or may_help(actor_of(request), obj)

    def get_fieldsets(self, request: HttpRequest, obj: User | None = None) -> Any:
        return super().get_fieldsets(request, obj) if obj else [(None, {"fields": ["email", "display_name"]})]

    def get_readonly_fields(self, request: HttpRequest, obj: User | None = None) -> list[str]:
        """Staff change only a user's name; for a new user they also set the email. Superusers cannot take their own powers
        away, so that the last one remains.
        """
        fixed = [] if request.user.is_superuser else sorted(POWERS)
        if obj is not None and not request.user.is_superuser:
            fixed.append("email")
        if obj is not None and obj.pk == request.user.pk:
            fixed += ["is_staff", "is_superuser"]
        return [*super().get_readonly_fields(request, obj), *dict.fromkeys(fixed)]

    def save_model(self, request: HttpRequest, obj: User, form: Any, change: bool) -> None:  # noqa: FBT001 - the framework's signature
        """Writes only the changed fields, so that it does not undo a concurrent change, such as a new password."""
        if change:
            if POWERS & set(form.changed_data) and not is_superuser_still(actor_of(request)):
                raise PermissionDenied("Another superuser has taken your powers meanwhile.")
            columns = {field.name for field in obj._meta.concrete_fields}
            obj.save(update_fields=[name for name in form.changed_data if name in columns])
        else:
            obj.set_unusable_password()
            obj.save()


admin.site.unregister(Group)


@admin.register(Group)
class GroupAdmin(Audited, DjangoGroupAdmin):
    """Groups carry roles, so a user who can edit one could give themselves more: only superusers can."""

    def has_add_permission(self, request: HttpRequest) -> bool:
        return bool(request.user.is_superuser)

    def has_change_permission(self, request: HttpRequest, obj: object = None) -> bool:
        return bool(request.user.is_superuser)


@admin.register(Tenant)
class TenantAdmin(OnlyToLookAt, admin.ModelAdmin):
    ordering = ["path"]
    list_display = ["path", "kind", "created_at"]
    list_filter = ["kind"]
    search_fields = ["path"]


@admin.register(RoleBinding)
class RoleBindingAdmin(OnlyToLookAt, admin.ModelAdmin):
    list_display = ["tenant", "role", "user", "group", "expires_at"]
    list_filter = ["role"]
    list_select_related = ["tenant", "user", "group"]
    search_fields = ["tenant__path", "user__email", "group__name"]


class WithoutDigest(OnlyToLookAt):
    """Together with `exclude`, this prevents users from learning a digest by filtering the list."""

    def lookup_allowed(self, lookup: str, value: str, request: HttpRequest) -> bool:
        return not lookup.startswith("digest") and super().lookup_allowed(lookup, value, request)  # type: ignore[misc]


@admin.register(ApiToken)
class ApiTokenAdmin(WithoutDigest, admin.ModelAdmin):
    exclude = ["digest"]
    list_display = ["prefix", "user", "name", "scopes", "created_at", "expires_at", "last_used_at", "revoked_at"]
    list_select_related = ["user"]
    search_fields = ["prefix", "name", "user__email"]


@admin.register(Membership)
class MembershipAdmin(OnlyToLookAt, admin.ModelAdmin):
    list_display = ["user", "organisation", "created_at"]
    list_select_related = ["user", "organisation"]
    search_fields = ["user__email", "organisation__path"]


@admin.register(OneTimeLink)
class OneTimeLinkAdmin(WithoutDigest, admin.ModelAdmin):
    exclude = ["digest"]
    list_display = [
        "prefix",
        "purpose",
        "user",
        "email",
        "tenant",
        "made_by",
        "created_at",
        "expires_at",
        "used_at",
        "ended_at",
    ]
    list_select_related = ["user", "tenant", "made_by"]
    list_filter = ["purpose"]
    search_fields = ["prefix", "email", "user__email"]


@admin.register(AuditEntry)
class AuditEntryAdmin(OnlyToLookAt, admin.ModelAdmin):
    ordering = ["-id"]
    list_display = ["at", "actor_name", "action", "outcome", "object_kind", "object_id", "source", "request_id"]
    list_filter = ["outcome", "object_kind"]
    search_fields = ["actor_name", "action", "object_id", "request_id", "source"]


@admin.register(AuditLink)
class AuditLinkAdmin(OnlyToLookAt, admin.ModelAdmin):
    ordering = ["-position"]
    list_display = ["position", "entry_id", "sha256"]

    @admin.display(description="SHA-256")
    def sha256(self, link: AuditLink) -> str:
        return bytes(link.hash).hex()
