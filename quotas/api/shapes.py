"""Request and response bodies of quota."""

from typing import Any

from rest_framework import serializers

from foundation.plain_json import instant
from foundation.shapes import Instant, StrictShape, Text
from quotas.engine.amounts import BadAmount, format_amount, is_resource, parse_amount
from quotas.models import QuotaLimit


class QuotaPut(StrictShape):
    """A limit to create or replace. Amounts are Kubernetes quantities."""

    tenant = Text(max_length=1100, help_text="Path, such as acme/research.")
    resource = Text(max_length=80, help_text="gpu, gpu:MODEL, cpu or memory.")
    clusters = serializers.ListField(
        child=Text(max_length=63), default=list, max_length=100, help_text="Names; empty: whole fleet."
    )
    nominal = Text(max_length=40, help_text="Such as 8, 0.5, 64 or 256Gi.")
    borrowing_limit = Text(allow_null=True, default=None, help_text="Must be null for now.")
    lending_limit = Text(allow_null=True, default=None, help_text="Must be null for now.")

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Amounts in base units; borrowing is refused rather than stored without effect."""
        for field in ("borrowing_limit", "lending_limit"):
            if attrs.pop(field) is not None:
                raise serializers.ValidationError({field: "tenants cannot borrow yet; leave it null"}, "not_available")
        if not is_resource(attrs["resource"]):
            raise serializers.ValidationError({"resource": "one of gpu, gpu:MODEL, cpu, memory"}, "unknown_resource")
        try:
            attrs["nominal"] = parse_amount(attrs["resource"], attrs["nominal"])
        except BadAmount as error:
            raise serializers.ValidationError({"nominal": str(error)}, error.code) from None
        return attrs


class QuotaShown(serializers.Serializer[Any]):
    """A limit and what is held against it."""

    id = serializers.UUIDField()
    tenant = serializers.CharField()
    resource = serializers.CharField()
    clusters = serializers.ListField(child=serializers.CharField())
    nominal = serializers.CharField()
    borrowing_limit = serializers.CharField(allow_null=True)
    lending_limit = serializers.CharField(allow_null=True)
    held = serializers.CharField()
    free = serializers.CharField()
    updated_at = Instant()


def show_limit(limit: QuotaLimit) -> dict[str, Any]:
    """A limit as the API shows it."""
    return {
        "id": str(limit.id),
        "tenant": limit.tenant.path,
        "resource": limit.resource,
        "clusters": limit.clusters,
        "nominal": format_amount(limit.resource, limit.nominal),
        "borrowing_limit": None,
        "lending_limit": None,
        "held": format_amount(limit.resource, limit.held),
        "free": format_amount(limit.resource, limit.cap - limit.held),
        "updated_at": instant(limit.updated_at),
    }
