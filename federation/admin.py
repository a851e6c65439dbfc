"""Jobs and their attempts, read-only for operators: operations are the only writers."""

from typing import Any

from django.contrib import admin
from django.http import HttpRequest

from .models import Attempt, Job, JobEvent, PodRun, PriorityClass, RemoteObject


class ReadOnly(admin.ModelAdmin):
    """Lists and shows rows; does not add, change or delete them."""

    show_full_result_count = False
    list_per_page = 50

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False


@admin.register(Job)
class JobAdmin(ReadOnly):
    list_display = ["name", "id", "tenant", "state", "reason_code", "created_by", "created_at"]
    list_filter = ["state"]
    list_select_related = ["tenant", "created_by"]
    search_fields = ["id", "name"]
    ordering = ["-id"]


@admin.register(Attempt)
class AttemptAdmin(ReadOnly):
    list_display = ["id", "job", "number", "cluster", "state", "flavor", "reserved_at", "end_reason"]
    list_filter = ["state", "cluster"]
    list_select_related = ["job", "cluster"]
    search_fields = ["id", "job__id"]
    ordering = ["-id"]


@admin.register(RemoteObject)
class RemoteObjectAdmin(ReadOnly):
    list_display = ["name", "attempt", "position", "flavor", "uid", "outcome", "ended_at"]
    search_fields = ["name", "uid"]
    ordering = ["-id"]


@admin.register(PodRun)
class PodRunAdmin(ReadOnly):
    list_display = ["name", "attempt", "node", "phase", "started_at", "finished_at", "exit_code"]
    search_fields = ["name", "uid"]
    ordering = ["-id"]


@admin.register(PriorityClass)
class PriorityClassAdmin(ReadOnly):
    list_display = ["name", "value", "is_open", "is_default", "changed_at"]
    search_fields = ["name"]
    ordering = ["-value", "name"]


@admin.register(JobEvent)
class JobEventAdmin(ReadOnly):
    list_display = ["at", "job", "kind", "message"]
    search_fields = ["job__id"]
    ordering = ["-id"]
