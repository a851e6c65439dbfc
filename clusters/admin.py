"""Clusters in the operators' admin, read-only. Changes go through the API; credentials are never shown."""

from typing import Any

from django.contrib import admin
from django.http import HttpRequest

from .models import Cluster, ClusterEvent, Flavor, MaintenanceWindow, Node


class ReadOnly(admin.ModelAdmin):
    """A read-only admin page."""

    show_full_result_count = False

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False


@admin.register(Cluster)
class ClusterAdmin(ReadOnly):
    list_display = ["name", "owner", "state", "region", "provider", "kubernetes_version", "last_seen_at", "removed_at"]
    list_filter = ["health", "wish", "driver", "provider"]
    list_select_related = ["owner"]
    search_fields = ["name", "server", "identity", "owner__path"]

    def get_queryset(self, request: HttpRequest) -> Any:
        """Includes removed clusters: jobs that ran there still refer to them."""
        return Cluster.everything.all()


@admin.register(Flavor)
class FlavorAdmin(ReadOnly):
    list_display = ["name", "cluster", "vendor", "gpu_model", "gpu_memory_mib", "sharing", "capacity_type"]
    list_filter = ["vendor", "capacity_type"]
    list_select_related = ["cluster"]
    search_fields = ["name", "gpu_model", "cluster__name"]


@admin.register(Node)
class NodeAdmin(ReadOnly):
    list_display = ["name", "cluster", "devices", "used_devices", "is_ready", "is_schedulable", "observed_at"]
    list_filter = ["is_ready", "is_schedulable"]
    list_select_related = ["cluster"]
    search_fields = ["name", "cluster__name"]


@admin.register(MaintenanceWindow)
class MaintenanceWindowAdmin(ReadOnly):
    list_display = ["cluster", "starts_at", "ends_at", "flavor", "drain", "reason", "created_by", "cancelled_at"]
    list_filter = ["drain"]
    list_select_related = ["cluster"]
    search_fields = ["cluster__name", "reason", "created_by"]


@admin.register(ClusterEvent)
class ClusterEventAdmin(ReadOnly):
    list_display = ["at", "cluster", "kind", "message"]
    list_filter = ["kind"]
    list_select_related = ["cluster"]
    search_fields = ["cluster__name", "message"]
