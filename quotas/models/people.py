"""Limits on users and on submission."""

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from foundation.finite import finite
from foundation.ids import new_id
from quotas.engine.amounts import MAX_AMOUNT
from tenancy.models import Tenant


class UserLimit(models.Model):
    """How much of a resource each user may hold at a tenant and below it, in base units. It neither borrows nor lends."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="user_limits")
    resource = models.CharField(max_length=80)
    most = models.BigIntegerField()
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["tenant", "resource"], name="one_user_limit_per_tenant_and_resource"),
            models.CheckConstraint(condition=Q(most__gte=0, most__lte=MAX_AMOUNT), name="user_limit_is_in_range"),
            models.CheckConstraint(
                condition=Q(resource__regex=r"^(gpu|gpu:[A-Za-z0-9][A-Za-z0-9._-]*|cpu|memory|jobs)$"),
                name="user_limit_resource_is_known",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.tenant_id} {self.resource} {self.most} each"


class UserHolding(models.Model):
    """What a user holds under a limit on users: the sum of the user's pending holds at its tenant and below. Only triggers
    change it; the gateway only begins rows at 0.
    """

    limit = models.ForeignKey(UserLimit, on_delete=models.DO_NOTHING, related_name="holdings")
    user_id = models.UUIDField()
    held = models.BigIntegerField(default=0)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["limit", "user_id"], name="one_holding_per_limit_and_user"),
            models.CheckConstraint(condition=Q(held__gte=0), name="user_holding_is_not_negative"),
        ]

    def __str__(self) -> str:
        return f"{self.user_id} {self.held}"


MOST_WAITING = 10_000_000
MOST_PER_MINUTE = 1_000_000


class SubmissionLimit(models.Model):
    """How many jobs of a tenant and all below it may wait at the same time, and how many may be submitted in a minute.

    `tokens` is what was left of the latter at `tokens_at`: a job takes one, and an empty bucket is full after a minute.
    Only triggers change both.
    """

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    tenant = models.OneToOneField(Tenant, on_delete=models.PROTECT, related_name="submission_limit")
    most_waiting = models.PositiveIntegerField(null=True)
    jobs_per_minute = models.PositiveIntegerField(null=True)
    tokens = models.FloatField(default=0, editable=False)
    tokens_at = models.DateTimeField(db_default=Now(), editable=False)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        constraints = [
            finite("submission_limit_numbers_are_finite", "tokens"),
            models.CheckConstraint(
                condition=Q(most_waiting__isnull=False) | Q(jobs_per_minute__isnull=False),
                name="submission_limit_limits_something",
            ),
            models.CheckConstraint(
                condition=Q(jobs_per_minute__isnull=True)
                | Q(jobs_per_minute__gte=1, jobs_per_minute__lte=MOST_PER_MINUTE),
                name="submission_rate_is_in_range",
            ),
            models.CheckConstraint(
                condition=Q(most_waiting__isnull=True) | Q(most_waiting__lte=MOST_WAITING),
                name="submission_limit_of_waiting_jobs_is_in_range",
            ),
            models.CheckConstraint(condition=Q(tokens__gte=0), name="submission_tokens_are_not_negative"),
        ]

    def __str__(self) -> str:
        return f"{self.tenant_id} {self.most_waiting} waiting, {self.jobs_per_minute} a minute"
