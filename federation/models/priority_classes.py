"""Priority classes: what a job's priority may be, and who may ask for it."""

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from federation.engine.intake.priority_classes import (
    MOST_SHIELD_SECONDS,
    MOST_VALUE,
    PREEMPTS,
    ROLE_NAMES,
    USUAL_SHIELD_SECONDS,
)
from foundation.ids import new_id
from tenancy.models import NAME_PATTERN, Tenant


class PriorityClass(models.Model):
    """A name for a priority. A job keeps the value that its class had when it was submitted.

    Exactly one class is the installation's default; the name never changes, and a class that jobs were submitted with
    is not removed (`sql/priority_classes.sql`).
    """

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    name = models.CharField(max_length=63)
    value = models.IntegerField(help_text="The larger number goes first.")
    description = models.CharField(max_length=500, blank=True, default="")
    is_open = models.BooleanField(default=False, help_text="Whether everyone who may submit a job may use it.")
    is_default = models.BooleanField(default=False)
    preempts = models.CharField(
        max_length=5,
        choices=[(one, one) for one in PREEMPTS],
        default="never",
        db_default="never",
        help_text="`lower`: its waiting jobs may replace running ones of lower priority in their organisation.",
    )
    shield_seconds = models.PositiveIntegerField(
        default=USUAL_SHIELD_SECONDS,
        db_default=USUAL_SHIELD_SECONDS,
        help_text="How long its jobs run at least before others may replace them.",
    )
    changed_at = models.DateTimeField(db_default=Now())
    most_running: int | None
    """Its limits and what its jobs hold of them, as `with_limits` reads them: numbers of jobs, and thousandths of a GPU."""
    running: int | None
    most_gpus: int | None
    gpus: int | None

    class Meta:
        verbose_name_plural = "priority classes"
        constraints = [
            models.UniqueConstraint(fields=["name"], name="priority_class_name_is_unique"),
            models.UniqueConstraint(
                models.Value(1), condition=Q(is_default=True), name="one_priority_class_is_the_default"
            ),
            models.CheckConstraint(condition=Q(name__regex=NAME_PATTERN), name="priority_class_name_is_a_dns_label"),
            models.CheckConstraint(
                condition=Q(value__gte=-MOST_VALUE, value__lte=MOST_VALUE), name="priority_class_value_is_in_range"
            ),
            models.CheckConstraint(condition=Q(preempts__in=PREEMPTS), name="priority_class_preempts_is_known"),
            models.CheckConstraint(
                condition=Q(shield_seconds__gte=0, shield_seconds__lte=MOST_SHIELD_SECONDS),
                name="priority_class_shield_is_in_range",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.name} ({self.value})"


class PriorityClassGrant(models.Model):
    """Who else may use a class that is not open: holders of a role, users of a tenant and all below it, or both."""

    id = models.BigAutoField(primary_key=True)
    priority_class = models.ForeignKey(PriorityClass, on_delete=models.CASCADE, related_name="grants")
    role = models.CharField(max_length=20, blank=True, default="", help_text="Empty: any role that may submit jobs.")
    tenant = models.ForeignKey(
        Tenant,
        null=True,
        on_delete=models.PROTECT,
        related_name="priority_class_grants",
        help_text="Empty: every tenant.",
    )

    class Meta:
        verbose_name_plural = "grants of priority classes"
        constraints = [
            models.UniqueConstraint(
                fields=["priority_class", "role", "tenant"],
                name="a_priority_class_is_granted_once",
                nulls_distinct=False,
            ),
            models.CheckConstraint(condition=Q(role__in=["", *ROLE_NAMES]), name="granted_role_is_known"),
            models.CheckConstraint(
                condition=~Q(role="") | Q(tenant__isnull=False), name="grant_names_a_role_or_a_tenant"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.priority_class_id} to {self.role or 'all'} at {self.tenant_id or 'every tenant'}"
