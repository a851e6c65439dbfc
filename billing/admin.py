"""Prices and usage in the operators' admin, read-only. Prices are set through the API; the ledger never changes."""

from django.contrib import admin

from quotas.admin import OnlyToLookAt

from .models import Meter, Price, UsageSegment


@admin.register(Price)
class PriceAdmin(OnlyToLookAt, admin.ModelAdmin):
    list_display = ["rate", "unit_price", "currency", "valid", "created_at"]
    list_select_related = ["rate"]


@admin.register(Meter)
class MeterAdmin(OnlyToLookAt, admin.ModelAdmin):
    list_display = [
        "source_uid",
        "tenant_path",
        "cluster",
        "flavor",
        "gpu_units",
        "metered_from",
        "metered_until",
        "is_closed",
    ]
    list_filter = ["is_closed"]
    list_select_related = ["cluster"]
    search_fields = ["source_uid", "tenant_path"]


@admin.register(UsageSegment)
class UsageSegmentAdmin(OnlyToLookAt, admin.ModelAdmin):
    list_display = ["id", "meter", "period", "gpu_milliseconds", "cost", "currency", "is_estimated"]
    list_select_related = ["meter"]
