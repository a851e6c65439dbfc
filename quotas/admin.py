"""Quota in the operators' admin, read-only. Limits are set through the API; holds and their journal never change."""

from django.contrib import admin
from django.http import HttpRequest

from .models import ClassLimit, Hold, HoldMovement, QuotaLimit


class OnlyToLookAt:
    """A read-only admin page."""

    show_full_result_count = False

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: object = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: object = None) -> bool:
        return False


@admin.register(QuotaLimit)
class QuotaLimitAdmin(OnlyToLookAt, admin.ModelAdmin):
    list_display = [
        "tenant",
        "resource",
        "clusters",
        "nominal",
        "borrowing_limit",
        "lending_limit",
        "reclaims",
        "cap",
        "held",
        "reclaim_after",
        "reclaim_at",
        "removed_at",
    ]
    list_filter = ["resource"]
    list_select_related = ["tenant"]
    search_fields = ["tenant__path"]


@admin.register(ClassLimit)
class ClassLimitAdmin(OnlyToLookAt, admin.ModelAdmin):
    list_display = ["class_name", "tenant", "resource", "most", "held", "updated_at"]
    list_select_related = ["tenant"]


@admin.register(Hold)
class HoldAdmin(OnlyToLookAt, admin.ModelAdmin):
    list_display = ["holder_id", "tenant", "class_name", "cluster_name", "amounts", "state", "created_at", "ended_at"]
    list_filter = ["state"]
    list_select_related = ["tenant"]
    search_fields = ["tenant__path"]


@admin.register(HoldMovement)
class HoldMovementAdmin(OnlyToLookAt, admin.ModelAdmin):
    list_display = ["id", "hold", "limit", "kind", "amount", "at"]
    list_filter = ["kind"]
    list_select_related = ["hold", "limit"]
