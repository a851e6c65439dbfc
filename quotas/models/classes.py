"""Limits of classes of work."""

from django.db import models
from django.db.models import Q

from foundation.ids import new_id
from quotas.engine.amounts import MAX_AMOUNT
from tenancy.models import Tenant


class ClassLimit(models.Model):
    """How much of a resource all work of a class may hold at the same time, in base units: at a tenant and all below it, or without
    a tenant in the whole installation.

    `held` is the sum of the pending holds of that class there. Only triggers change it. It neither borrows nor lends.
    """

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    tenant = models.ForeignKey(Tenant, null=True, on_delete=models.PROTECT, related_name="class_limits")
    class_name = models.CharField(max_length=63)
    resource = models.CharField(max_length=80)
    most = models.BigIntegerField()
    held = models.BigIntegerField(default=0, editable=False)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["class_name", "resource", "tenant"],
                name="one_limit_per_class_and_resource",
                nulls_distinct=False,
            ),
            models.CheckConstraint(condition=~Q(class_name=""), name="class_limit_names_a_class"),
            models.CheckConstraint(condition=Q(most__gte=0, most__lte=MAX_AMOUNT), name="class_limit_is_in_range"),
            models.CheckConstraint(condition=Q(held__gte=0), name="class_limit_holds_not_less_than_nothing"),
            models.CheckConstraint(
                condition=Q(resource__regex=r"^(gpu|gpu:[A-Za-z0-9][A-Za-z0-9._-]*|cpu|memory|jobs)$"),
                name="class_limit_resource_is_known",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.tenant_id or ''} {self.class_name} {self.resource} {self.held} of {self.most}".strip()
