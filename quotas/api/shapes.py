"""Request and response bodies of quota."""

from typing import Any

from rest_framework import serializers

from foundation.plain_json import instant
from foundation.shapes import Instant, StrictShape, Text
from quotas.engine.amounts import BadAmount, format_amount, is_resource, parse_amount
from quotas.engine.borrowing import Standing
from quotas.models import QuotaLimit


class QuotaPut(StrictShape):
    """A limit to create or replace. Amounts are Kubernetes quantities."""

    tenant = Text(max_length=1100, help_text="Path, such as acme/research.")
    resource = Text(max_length=80, help_text="gpu, gpu:MODEL, cpu or memory.")
    clusters = serializers.ListField(
        child=Text(max_length=63), default=list, max_length=100, help_text="Names; empty: whole fleet."
    )
    nominal = Text(max_length=40, help_text="Such as 8, 0.5, 64 or 256Gi.")
    borrowing_limit = Text(
        max_length=40,
        allow_null=True,
        default="0",
        help_text="What it may hold above nominal, if the limit above has it. Null: no bound; without: 0.",
    )
    lending_limit = Text(
        max_length=40,
        allow_null=True,
        default=None,
        help_text="What others may hold of nominal while it is not held here. Null: all. The rest is guaranteed.",
    )

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Amounts in base units."""
        if not is_resource(attrs["resource"]):
            raise serializers.ValidationError({"resource": "one of gpu, gpu:MODEL, cpu, memory"}, "unknown_resource")
        for field in ("nominal", "borrowing_limit", "lending_limit"):
            try:
                attrs[field] = None if attrs[field] is None else parse_amount(attrs["resource"], attrs[field])
            except BadAmount as error:
                raise serializers.ValidationError({field: str(error)}, error.code) from None
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
    held = serializers.CharField(help_text="What work holds here, and what limits below keep guaranteed.")
    borrowed = serializers.CharField(help_text="What is held above nominal, of the limit above.")
    lent = serializers.CharField(help_text="The part of nominal that is not free because other tenants hold it.")
    guaranteed = serializers.CharField(help_text="The part of nominal that is never lent.")
    guaranteed_unused = serializers.CharField(help_text="What of that is not held now.")
    free = serializers.CharField(
        help_text="What can still be taken here, under this limit and those that it borrows from."
    )
    updated_at = Instant()


def show_limit(limit: QuotaLimit, standing: Standing) -> dict[str, Any]:
    """A limit as the API shows it."""

    def shown(amount: int | None) -> str | None:
        return None if amount is None else format_amount(limit.resource, amount)

    return {
        "id": str(limit.id),
        "tenant": limit.tenant.path,
        "resource": limit.resource,
        "clusters": limit.clusters,
        "nominal": shown(limit.nominal),
        "borrowing_limit": shown(limit.borrowing_limit),
        "lending_limit": shown(limit.lending_limit),
        "held": shown(limit.held),
        **{name: shown(amount) for name, amount in standing._asdict().items()},
        "updated_at": instant(limit.updated_at),
    }
