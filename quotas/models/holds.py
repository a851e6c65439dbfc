"""Holds against limits, what is reserved for a period, and the journal that changes the counters."""

from django.db import models
from django.db.models import F, Func, Q, Value
from django.db.models.functions import Now
from django.db.models.lookups import Exact

from foundation.ids import new_id
from tenancy.models import Tenant

from .limits import QuotaLimit

WHOLE_AMOUNTS = (
    '$.keyvalue() ? (!(@.key like_regex "^(gpu|gpu:[A-Za-z0-9][A-Za-z0-9._-]*|cpu|memory|jobs)$") || @.value.type() != "number"'
    " || @.value < 0 || @.value > 1000000000000000 || @.value != @.value.floor())"
)
"""A JSON path that finds every entry of a hold's amounts that is not a whole number of base units of a
known resource.
"""


def whole_amounts() -> Q:
    """A condition on `amounts`: an object of whole numbers of base units."""
    return Exact(Func(F("amounts"), function="jsonb_typeof", output_field=models.TextField()), "object") & ~Q(
        Func(
            F("amounts"),
            Value(WHOLE_AMOUNTS),
            template="jsonb_path_exists(%(expressions)s::jsonpath)",
            output_field=models.BooleanField(),
        )
    )


class ReservedQuota(models.Model):
    """Quota that a tenant reserved on a cluster from `starts_at` until `until_at`, for an opaque purpose.

    `amounts` are by resource in base units. At every time, what is reserved stays within the nominal amounts of the limits on
    the tenant's path; a trigger adds it up when a row begins. Only the end changes, and only to an earlier time.
    """

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="reserved_quota")
    cluster_name = models.CharField(max_length=63)
    amounts = models.JSONField()
    starts_at = models.DateTimeField()
    until_at = models.DateTimeField()
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        verbose_name_plural = "reserved quota"
        constraints = [
            models.UniqueConstraint(fields=["id", "starts_at", "until_at"], name="reserved_quota_times_are_referenced"),
            models.CheckConstraint(
                condition=Q(until_at__gte=F("starts_at")), name="reserved_quota_ends_after_it_starts"
            ),
            models.CheckConstraint(condition=whole_amounts(), name="reserved_quota_amounts_are_whole"),
        ]
        indexes = [models.Index(fields=["until_at"], name="reserved_quota_by_end")]

    def __str__(self) -> str:
        return f"{self.tenant_id} {self.starts_at} {self.until_at}"


class Hold(models.Model):
    """Capacity reserved for an opaque holder (an attempt). It ends exactly once: posted if the holder ran, voided if
    not.

    `amounts` is the full request by resource in base units, including resources that no limit counts yet. `user_id` is
    whose work it is, for limits on users, and `class_name` the class of the work, for limits of classes; both are opaque. `within` is the reserved quota that it is part of.
    """

    class State(models.TextChoices):
        PENDING = "pending"
        POSTED = "posted"
        VOIDED = "voided"

    holder_id = models.UUIDField(primary_key=True)
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="holds")
    user_id = models.UUIDField(null=True)
    class_name = models.CharField(max_length=63, blank=True, default="", db_default="")
    within = models.ForeignKey(ReservedQuota, on_delete=models.PROTECT, null=True, related_name="holds", db_index=False)
    cluster_name = models.CharField(max_length=63)
    amounts = models.JSONField()
    state = models.CharField(max_length=10, choices=State.choices, default=State.PENDING)
    created_at = models.DateTimeField(db_default=Now())
    ended_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=Q(state="pending", ended_at__isnull=True)
                | Q(state__in=["posted", "voided"], ended_at__isnull=False),
                name="hold_ends_with_a_time",
            ),
            models.CheckConstraint(condition=Q(ended_at__gte=F("created_at")), name="hold_ends_after_it_began"),
            models.CheckConstraint(condition=whole_amounts(), name="hold_amounts_are_whole"),
        ]
        indexes = [
            models.Index(fields=["tenant"], condition=Q(state="pending"), name="pending_holds_by_tenant"),
            models.Index(fields=["within"], condition=Q(within__isnull=False), name="holds_within_reserved_quota"),
        ]

    def __str__(self) -> str:
        return f"{self.state} hold of {self.holder_id}"


class HoldMovement(models.Model):
    """One journal line: `amount` taken (+) or returned (-) at one limit. Append-only; its trigger changes `held`.

    A pending hold has one line that is not returned for each resource and scope: at the limit that was the nearest one
    above its tenant. The limits above that one count the claim of the limit below. When its tenant moves in the tree, a trigger
    writes lines of the kind `move`: what it took at limits above the old place leaves them and comes to those above the new one.
    """

    class Kind(models.TextChoices):
        TAKE = "take"
        END = "end"
        MOVE = "move"

    id = models.BigAutoField(primary_key=True)
    hold = models.ForeignKey(Hold, on_delete=models.PROTECT, related_name="movements", db_index=False)
    limit = models.ForeignKey(QuotaLimit, on_delete=models.PROTECT, related_name="movements")
    kind = models.CharField(max_length=4, choices=Kind.choices)
    nth = models.PositiveSmallIntegerField(
        default=0, db_default=0, help_text="Of the lines of a kind of a hold at a limit: more than 0 only if it moved."
    )
    amount = models.BigIntegerField()
    at = models.DateTimeField(db_default=Now())

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["hold", "limit", "kind", "nth"], name="each_hold_is_taken_and_ended_once_per_limit"
            ),
            models.CheckConstraint(
                condition=Q(kind="take", amount__gt=0, nth=0)
                | Q(kind="end", amount__lt=0, nth=0)
                | (Q(kind="move", nth__gt=0) & ~Q(amount=0)),
                name="takes_add_and_ends_subtract",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.amount}"
