"""The room in the operators' admin. Users and groups are changed here, and audited; everything else is to look at."""

from typing import Any

from django.contrib import admin
from django.contrib.auth.admin import GroupAdmin as DjangoGroupAdmin
from django.contrib.auth.admin import UserAdmin as DjangoUserAdmin
from django.contrib.auth.models import Group
from django.contrib.auth.views import redirect_to_login
from django.core.exceptions import PermissionDenied
from django.db.models import Model
from django.http import HttpRequest, HttpResponse

from .models import ApiToken, AuditEntry, AuditLink, RoleBinding, Tenant, User
from .operations import record_audit
from .queries import actor_for


def sign_in_first(request: HttpRequest, _extra: object = None) -> HttpResponse:
    """The admin has no sign-in of its own, so that the lockout of the one we have cannot be gone around."""
    if request.user.is_authenticated:
        raise PermissionDenied
    return redirect_to_login(request.GET.get("next", "/admin/"))


admin.site.login = sign_in_first  # type: ignore[method-assign,assignment]
admin.site.site_header = admin.site.site_title = "Switchyard operators"


class OnlyToLookAt:
    """Shows rows and changes nothing."""

    show_full_result_count = False

    def has_add_permission(self, request: HttpRequest) -> bool:  # noqa: ARG002 - the framework's signature
        return False

    def has_change_permission(self, request: HttpRequest, obj: object = None) -> bool:  # noqa: ARG002 - likewise
        return False

    def has_delete_permission(self, request: HttpRequest, obj: object = None) -> bool:  # noqa: ARG002 - likewise
        return False


class Audited:
    """Writes what was changed here into the audit trail, in the same transaction: names of fields, never their values."""

    def has_delete_permission(self, request: HttpRequest, obj: object = None) -> bool:  # noqa: ARG002 - the framework's signature
        return False

    def log_addition(self, request: HttpRequest, obj: Model, message: Any) -> Any:
        _record(request, "create", obj, message)
        return super().log_addition(request, obj, message)  # type: ignore[misc]

    def log_change(self, request: HttpRequest, obj: Model, message: Any) -> Any:
        _record(request, "change", obj, message)
        return super().log_change(request, obj, message)  # type: ignore[misc]


def _record(request: HttpRequest, verb: str, obj: Model, message: Any) -> None:
    assert isinstance(request.user, User)
    kind = type(obj).__name__.lower()
    fields = [name for part in message if isinstance(part, dict) for name in part.get("changed", {}).get("fields", [])]
    record_audit(
        actor_for(request.user), f"{kind}.{verb}", object_kind=kind, object_id=str(obj.pk), detail={"fields": fields}
    )


@admin.register(User)
class UserAdmin(Audited, DjangoUserAdmin):  # type: ignore[type-arg]  # not generic at run time
    ordering = ["email"]
    list_display = ["email", "display_name", "is_active", "is_staff", "last_login"]
    list_filter = ["is_active", "is_staff", "is_superuser", "groups"]
    search_fields = ["email", "display_name"]
    readonly_fields = ["last_login", "created_at"]
    fieldsets = [
        (None, {"fields": ["email", "password", "display_name"]}),
        ("May", {"fields": ["is_active", "is_staff", "is_superuser", "groups", "user_permissions"]}),
        ("When", {"fields": ["last_login", "created_at"]}),
    ]
    add_fieldsets = [(None, {"fields": ["email", "display_name", "usable_password", "password1", "password2"]})]

    def get_readonly_fields(self, request: HttpRequest, obj: object = None) -> list[str]:
        """Only a superuser makes superusers or hands out single permissions."""
        fixed = [] if request.user.is_superuser else ["is_superuser", "user_permissions"]
        return [*super().get_readonly_fields(request, obj), *fixed]


admin.site.unregister(Group)


@admin.register(Group)
class GroupAdmin(Audited, DjangoGroupAdmin):
    pass


@admin.register(Tenant)
class TenantAdmin(OnlyToLookAt, admin.ModelAdmin):  # type: ignore[type-arg]  # not generic at run time
    ordering = ["path"]
    list_display = ["path", "kind", "created_at"]
    list_filter = ["kind"]
    search_fields = ["path"]


@admin.register(RoleBinding)
class RoleBindingAdmin(OnlyToLookAt, admin.ModelAdmin):  # type: ignore[type-arg]  # not generic at run time
    list_display = ["tenant", "role", "user", "group", "expires_at"]
    list_filter = ["role"]
    list_select_related = ["tenant", "user", "group"]
    search_fields = ["tenant__path", "user__email", "group__name"]


@admin.register(ApiToken)
class ApiTokenAdmin(OnlyToLookAt, admin.ModelAdmin):  # type: ignore[type-arg]  # not generic at run time
    exclude = ["digest"]
    list_display = ["prefix", "user", "name", "scopes", "created_at", "expires_at", "last_used_at", "revoked_at"]
    list_select_related = ["user"]
    search_fields = ["prefix", "name", "user__email"]


@admin.register(AuditEntry)
class AuditEntryAdmin(OnlyToLookAt, admin.ModelAdmin):  # type: ignore[type-arg]  # not generic at run time
    ordering = ["-id"]
    list_display = ["at", "actor_name", "action", "outcome", "object_kind", "object_id", "request_id"]
    list_filter = ["outcome", "object_kind"]
    search_fields = ["actor_name", "action", "object_id", "request_id"]


@admin.register(AuditLink)
class AuditLinkAdmin(OnlyToLookAt, admin.ModelAdmin):  # type: ignore[type-arg]  # not generic at run time
    ordering = ["-position"]
    list_display = ["position", "entry_id", "sha256"]

    @admin.display(description="SHA-256")
    def sha256(self, link: AuditLink) -> str:
        return bytes(link.hash).hex()
