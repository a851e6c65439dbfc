"""Request and response bodies of quota."""

from collections.abc import Mapping, Sequence
from typing import Any

from rest_framework import serializers

from foundation.plain_json import instant
from foundation.shapes import Instant, StrictShape, Text
from quotas.engine.amounts import KINDS, BadAmount, format_amount, is_resource, parse_amount
from quotas.engine.borrowing import Standing
from quotas.engine.holds import Borrowing
from quotas.models import (
    MOST_PER_MINUTE,
    MOST_RECLAIM_SECONDS,
    MOST_WAITING,
    ClassLimit,
    QuotaLimit,
    SubmissionLimit,
    UserLimit,
)
from quotas.operations import WantedLimit


class UserLimitPut(StrictShape):
    """A limit on each user, to create or replace. Amounts are Kubernetes quantities."""

    tenant = Text(max_length=1100, help_text="Path, such as acme/research.")
    resource = Text(max_length=80, help_text="gpu, gpu:MODEL, cpu, memory or jobs.")
    most = Text(max_length=40, help_text="What each user may hold there and below, such as 8 or 256Gi.")

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """The amount in base units."""
        return _in_base_units(attrs, ("most",))


class UserLimitShown(serializers.Serializer[Any]):
    """A limit on each user."""

    id = serializers.UUIDField()
    tenant = serializers.CharField()
    resource = serializers.CharField()
    most = serializers.CharField(help_text="What each user may hold there and below.")
    updated_at = Instant()


class ClassLimitPut(StrictShape):
    """A limit of a priority class at a tenant, to create or replace. Amounts are Kubernetes quantities."""

    tenant = Text(max_length=1100, help_text="Path, such as acme/research.")
    priority_class = Text(max_length=63, help_text="Name of the class.")
    resource = Text(max_length=80, help_text="gpu, gpu:MODEL, cpu, memory or jobs.")
    most = Text(max_length=40, help_text="What all jobs of the class may hold there and below, such as 8 or 256Gi.")

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """The amount in base units."""
        return _in_base_units(attrs, ("most",))


class ClassLimitShown(serializers.Serializer[Any]):
    """A limit of a priority class at a tenant, and what is held against it."""

    id = serializers.UUIDField()
    tenant = serializers.CharField()
    priority_class = serializers.CharField()
    resource = serializers.CharField()
    most = serializers.CharField(help_text="What all jobs of the class may hold there and below.")
    held = serializers.CharField(help_text="What they hold now. More than `most`, if the limit was lowered.")
    updated_at = Instant()


class SubmissionLimitPut(StrictShape):
    """A limit on submission, to create or replace."""

    tenant = Text(max_length=1100, help_text="Path, such as acme/research.")
    most_waiting = serializers.IntegerField(
        min_value=0,
        max_value=MOST_WAITING,
        allow_null=True,
        default=None,
        help_text="Jobs that may wait there and below. Null: no limit.",
    )
    jobs_per_minute = serializers.IntegerField(
        min_value=1,
        max_value=MOST_PER_MINUTE,
        allow_null=True,
        default=None,
        help_text="Jobs that may be submitted in a minute there and below. Null: no limit.",
    )


class SubmissionLimitShown(serializers.Serializer[Any]):
    """A limit on submission."""

    id = serializers.UUIDField()
    tenant = serializers.CharField()
    most_waiting = serializers.IntegerField(allow_null=True)
    jobs_per_minute = serializers.IntegerField(allow_null=True)
    updated_at = Instant()


class QuotaPut(StrictShape):
    """A limit to create or replace. Amounts are Kubernetes quantities."""

    tenant = Text(max_length=1100, help_text="Path, such as acme/research.")
    resource = Text(max_length=80, help_text="gpu, gpu:MODEL, cpu, memory or jobs.")
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
    reclaims = serializers.BooleanField(
        default=False, help_text="Whether jobs within nominal stop jobs of other tenants that borrow from it."
    )
    reclaim_after = serializers.IntegerField(
        min_value=0,
        max_value=MOST_RECLAIM_SECONDS,
        allow_null=True,
        default=None,
        help_text="Seconds after which jobs are stopped until no more is held than the limit allows. Null: they run to "
        "their end.",
    )

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Amounts in base units."""
        return _in_base_units(attrs, ("nominal", "borrowing_limit", "lending_limit"))


def wanted_limit(asked: Mapping[str, Any]) -> WantedLimit:
    """The limit that a `QuotaPut` asks for."""
    return WantedLimit(
        asked["tenant"],
        asked["resource"],
        nominal=asked["nominal"],
        clusters=asked["clusters"],
        borrowing=Borrowing(asked["borrowing_limit"], asked["lending_limit"], asked["reclaims"]),
        reclaim_after=asked["reclaim_after"],
    )


class QuotaShown(serializers.Serializer[Any]):
    """A limit and what is held against it."""

    id = serializers.UUIDField()
    tenant = serializers.CharField()
    resource = serializers.CharField()
    clusters = serializers.ListField(child=serializers.CharField())
    nominal = serializers.CharField()
    borrowing_limit = serializers.CharField(allow_null=True)
    lending_limit = serializers.CharField(allow_null=True)
    reclaims = serializers.BooleanField(help_text="Whether jobs within nominal stop jobs that borrow from it.")
    held = serializers.CharField(help_text="What work holds here, and what limits below keep guaranteed.")
    borrowed = serializers.CharField(help_text="What is held above nominal, of the limit above.")
    lent = serializers.CharField(help_text="The part of nominal that is not free because other tenants hold it.")
    guaranteed = serializers.CharField(help_text="The part of nominal that is never lent.")
    guaranteed_unused = serializers.CharField(help_text="What of that is not held now.")
    free = serializers.CharField(
        help_text="What can still be taken here, under this limit and those that it borrows from."
    )
    reserved = serializers.CharField(
        help_text="What is kept now for reservations whose jobs do not hold it. Only they, and jobs that it is lent to, take it."
    )
    reserved_most = serializers.CharField(help_text="The most that is kept so at any time from now on.")
    surplus = serializers.CharField(help_text="What is held beyond the limit, because it was lowered.")
    reclaim_after = serializers.IntegerField(
        allow_null=True, help_text="Seconds after which a surplus is taken back. Null: never."
    )
    reclaim_at = Instant(allow_null=True, help_text="When that begins. Null without a surplus to take back.")
    lowered_by = serializers.CharField(
        allow_null=True, help_text="Who lowered the limit, or set the delay, last. Null without a surplus to take back."
    )
    updated_at = Instant()


def _in_base_units(attrs: dict[str, Any], names: Sequence[str]) -> dict[str, Any]:
    if not is_resource(attrs["resource"]):
        raise serializers.ValidationError({"resource": KINDS}, "unknown_resource")
    for field in names:
        try:
            attrs[field] = None if attrs[field] is None else parse_amount(attrs["resource"], attrs[field])
        except BadAmount as error:
            raise serializers.ValidationError({field: str(error)}, error.code) from None
    return attrs


def show_user_limit(limit: UserLimit) -> dict[str, Any]:
    """A limit on each user as the API shows it."""
    return {
        "id": str(limit.id),
        "tenant": limit.tenant.path,
        "resource": limit.resource,
        "most": format_amount(limit.resource, limit.most),
        "updated_at": instant(limit.updated_at),
    }


def show_class_limit(limit: ClassLimit) -> dict[str, Any]:
    """A limit of a class at a tenant as the API shows it."""
    assert limit.tenant is not None
    return {
        "id": str(limit.id),
        "tenant": limit.tenant.path,
        "priority_class": limit.class_name,
        "resource": limit.resource,
        "most": format_amount(limit.resource, limit.most),
        "held": format_amount(limit.resource, limit.held),
        "updated_at": instant(limit.updated_at),
    }


def show_submission_limit(limit: SubmissionLimit) -> dict[str, Any]:
    """A limit on submission as the API shows it."""
    return {
        "id": str(limit.id),
        "tenant": limit.tenant.path,
        "most_waiting": limit.most_waiting,
        "jobs_per_minute": limit.jobs_per_minute,
        "updated_at": instant(limit.updated_at),
    }


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
        "reclaims": limit.reclaims,
        "held": shown(limit.held),
        **{name: shown(amount) for name, amount in standing._asdict().items()},
        "surplus": shown(limit.surplus),
        "reclaim_after": limit.reclaim_after,
        "reclaim_at": instant(limit.reclaim_at),
        "lowered_by": limit.lowered_by if limit.reclaim_at else None,
        "updated_at": instant(limit.updated_at),
    }
