"""Tenants' policies for the placement of their jobs."""

from functools import reduce
from operator import or_

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import F, Q
from django.db.models.functions import Now

from federation.engine.intake.spec import CAPACITY_TYPES
from foundation.finite import finite
from placement.values.consolidation import CONSOLIDATION
from placement.values.strategies import BOUNDS, STRATEGY_NAMES
from tenancy.models import Tenant

from .priority_classes import PriorityClass


def _names(most: int, length: int = 253) -> "ArrayField[list[str], list[str]]":
    return ArrayField(models.CharField(max_length=length), default=list, blank=True, size=most)


class PlacementPolicy(models.Model):
    """A tenant's policy for the placement of its jobs and of all tenants below it; an empty field sets no rule."""

    tenant = models.OneToOneField(Tenant, primary_key=True, on_delete=models.PROTECT, related_name="placement_policy")
    default_strategy = models.CharField(max_length=20, blank=True)
    default_priority_class = models.ForeignKey(
        PriorityClass, null=True, blank=True, on_delete=models.PROTECT, related_name="default_of"
    )
    consolidation = models.CharField(
        max_length=10,
        blank=True,
        default="",
        db_default="",
        help_text="Which running jobs may move so that others fit.",
    )
    strategies = _names(len(STRATEGY_NAMES), 20)
    clusters = _names(100)
    regions = _names(100)
    capacity_types = _names(len(CAPACITY_TYPES), 20)
    flavors = _names(100)
    changed_at = models.DateTimeField(db_default=Now())

    class Meta:
        verbose_name_plural = "placement policies"
        constraints = [
            models.CheckConstraint(
                condition=Q(default_strategy__in=["", *STRATEGY_NAMES]), name="policy_default_strategy_is_known"
            ),
            models.CheckConstraint(
                condition=Q(consolidation__in=["", *CONSOLIDATION]), name="policy_consolidation_is_known"
            ),
            models.CheckConstraint(
                condition=Q(strategies__contained_by=list(STRATEGY_NAMES)), name="policy_strategies_are_known"
            ),
            models.CheckConstraint(
                condition=Q(default_strategy="") | Q(strategies=[]) | Q(strategies__contains=[F("default_strategy")]),
                name="policy_default_strategy_is_allowed",
            ),
            models.CheckConstraint(
                condition=Q(capacity_types__contained_by=list(CAPACITY_TYPES)), name="policy_capacity_types_are_known"
            ),
            models.CheckConstraint(
                condition=Q(clusters__len__lte=100, regions__len__lte=100, flavors__len__lte=100),
                name="policy_lists_are_short",
            ),
        ]

    def __str__(self) -> str:
        return f"placement policy of {self.tenant_id}"


class PolicyWeight(models.Model):
    """The weight of one term of a strategy in a tenant's policy."""

    id = models.BigAutoField(primary_key=True)
    policy = models.ForeignKey(PlacementPolicy, on_delete=models.CASCADE, related_name="weights")
    strategy = models.CharField(max_length=20)
    term = models.CharField(max_length=20)
    value = models.DecimalField(max_digits=7, decimal_places=3)

    class Meta:
        constraints = [
            finite("policy_weight_numbers_are_finite", "value"),
            models.UniqueConstraint(fields=["policy", "strategy", "term"], name="one_weight_per_strategy_and_term"),
            models.CheckConstraint(condition=Q(strategy__in=STRATEGY_NAMES), name="weighed_strategy_is_known"),
            models.CheckConstraint(
                condition=reduce(
                    or_,
                    (Q(term=term, value__gte=least, value__lte=most) for term, (least, most) in BOUNDS.items()),
                ),
                name="weight_is_of_a_known_term_and_within_bounds",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.strategy} {self.term} {self.value}"
