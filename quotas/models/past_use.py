"""What tenants used in the past, and what is kept idle for them."""

from django.db import models
from django.db.models import F, Q
from django.db.models.functions import Now

from foundation.finite import finite
from foundation.ids import new_id
from tenancy.models import Tenant

from .holds import whole_amounts


class PastUse(models.Model):
    """How much of a resource a tenant itself held in the past: the mean, at `at`, with a weight that halves with every
    half-life.

    Ended holds count from their beginning to their end, pending ones not yet. Between two ends it fades in closed form,
    so nothing rewrites it. Only triggers write it; a proof recomputes it from the holds.
    """

    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="+")
    resource = models.CharField(max_length=10)
    level = models.FloatField(help_text="In base units.")
    at = models.DateTimeField()

    class Meta:
        verbose_name_plural = "past use"
        constraints = [
            finite("past_use_numbers_are_finite", "level"),
            models.UniqueConstraint(fields=["tenant", "resource"], name="one_past_use_per_tenant_and_resource"),
            models.CheckConstraint(condition=Q(resource__in=["gpu", "cpu", "memory"]), name="past_use_resource_counts"),
            models.CheckConstraint(condition=Q(level__gte=0), name="past_use_is_not_negative"),
        ]

    def __str__(self) -> str:
        return f"{self.tenant_id} {self.resource} {self.level}"


class PastHalfLife(models.Model):
    """The half-life with which past use is counted: one row. A change counts the past use again from all holds."""

    id = models.PositiveSmallIntegerField(primary_key=True, default=1)
    half_life_seconds = models.PositiveIntegerField()

    class Meta:
        verbose_name_plural = "half-life of past use"
        constraints = [
            models.CheckConstraint(condition=Q(id=1), name="there_is_one_half_life"),
            models.CheckConstraint(
                condition=Q(half_life_seconds__gte=60, half_life_seconds__lte=366 * 86_400),
                name="half_life_is_in_range",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.half_life_seconds} s"


class KeptIdle(models.Model):
    """What is kept idle for a tenant, for an opaque holder: it counts as used by the tenant, but is not held.

    It counts from `created_at` to `ended_at`, and never beyond `until_at`. Another amount is another row. Only the end is
    ever written; a trigger chooses its time and adds it to the past use (`sql/past_use.sql`).
    """

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    holder_id = models.UUIDField()
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="+")
    amounts = models.JSONField()
    created_at = models.DateTimeField(db_default=Now())
    until_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True)

    class Meta:
        verbose_name_plural = "kept idle"
        constraints = [
            models.UniqueConstraint(
                fields=["holder_id"], condition=Q(ended_at__isnull=True), name="one_open_kept_idle_per_holder"
            ),
            models.CheckConstraint(condition=Q(ended_at__gte=F("created_at")), name="kept_idle_ends_after_it_began"),
            models.CheckConstraint(condition=whole_amounts(), name="kept_idle_amounts_are_whole"),
        ]
        indexes = [models.Index(fields=["holder_id"], name="kept_idle_by_holder")]

    def __str__(self) -> str:
        return f"{self.tenant_id} {self.amounts}"
