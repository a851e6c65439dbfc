"""What the fleet consisted of, at any time since its history began: kept when nodes and clusters have left.

Triggers on nodes, and on the time since which a cluster is silent, write both tables; the gateway's processes only read them.
"""

from django.contrib.postgres.constraints import ExclusionConstraint
from django.contrib.postgres.fields import BigIntegerRangeField, DateTimeRangeField, RangeOperators
from django.db import models
from django.db.models import F, Func, Q, Value

from .clusters import Cluster


def _only(field: str) -> Func:
    """A whole number as a range of one, so that GiST can compare it for equality without an extension."""
    return Func(F(field), F(field), Value("[]"), function="int8range", output_field=BigIntegerRangeField())


class NodeOffer(models.Model):
    """A node's offer of one flavor, of which spans say when it was how large. Append-only."""

    id = models.BigAutoField(primary_key=True)
    cluster = models.ForeignKey(Cluster, on_delete=models.PROTECT, related_name="+")
    node = models.CharField(max_length=253)
    flavor = models.CharField(max_length=120)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["cluster", "node", "flavor"], name="one_offer_a_node_and_flavor")
        ]

    def __str__(self) -> str:
        return f"{self.flavor} of {self.node}"


class NodeSpan(models.Model):
    """What a node offered of a flavor during `period`, which is open while it does. After insertion it only ends (trigger).

    A node with several flavors has a span of each, and its cores and memory are split between them by their units.
    """

    id = models.BigAutoField(primary_key=True)
    offer = models.ForeignKey(NodeOffer, on_delete=models.PROTECT, related_name="spans", db_index=False)
    period = DateTimeRangeField(help_text="Half-open, UTC, whole milliseconds of the database's clock.")
    uid = models.CharField(max_length=64, help_text="The node's: another node may have its name later.")
    capacity_type = models.CharField(max_length=20)
    gpu_model = models.CharField(max_length=63, blank=True)
    sharing = models.CharField(max_length=40)
    units = models.PositiveIntegerField(help_text="GPUs, MIG slices or shares; 0 of a CPU-only flavor.")
    cpu_millicores = models.BigIntegerField()
    memory_mib = models.BigIntegerField()
    is_available = models.BooleanField(help_text="Whether it was ready and schedulable.")
    is_assumed = models.BooleanField(
        help_text="Whether its cluster did not answer meanwhile, or nothing was recorded yet."
    )

    class Meta:
        constraints = [
            ExclusionConstraint(
                name="spans_of_a_node_never_overlap",
                expressions=[(_only("offer_id"), RangeOperators.OVERLAPS), ("period", RangeOperators.OVERLAPS)],
            ),
            models.UniqueConstraint(
                fields=["offer"], condition=Q(period__upper_inf=True), name="one_open_span_a_node_and_flavor"
            ),
            models.CheckConstraint(
                condition=Q(
                    period__isempty=False, period__lower_inc=True, period__lower_inf=False, period__upper_inc=False
                ),
                name="span_is_half_open",
            ),
            models.CheckConstraint(condition=Q(cpu_millicores__gte=0, memory_mib__gte=0), name="span_is_not_negative"),
        ]

    def __str__(self) -> str:
        return f"{self.units} in {self.period}"
