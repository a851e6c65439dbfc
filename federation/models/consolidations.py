"""Plans to move running jobs so that a larger one fits."""

from django.db import models
from django.db.models import F, Q
from django.db.models.functions import Now

from clusters.models import Cluster
from foundation.finite import finite
from foundation.ids import new_id

from .jobs import Job

OUTCOMES = ["placed", "expired", "withdrawn"]


class Consolidation(models.Model):
    """A plan: running jobs move (`Move`) so that a waiting one gets this place. The place is kept for it until the plan ends,
    and for each of them the place that it had at that time.

    It ends once: the job was placed (`placed`), does not wait any more (`withdrawn`), or the deadline passed (`expired`). Only
    the end is ever written (`sql/consolidation.sql`).
    """

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    beneficiary = models.ForeignKey(Job, on_delete=models.PROTECT, related_name="consolidations")
    cluster = models.ForeignKey(Cluster, on_delete=models.PROTECT, related_name="+", db_index=False)
    size_milli = models.PositiveBigIntegerField(help_text="The size of the job, in thousandths of a GPU.")
    nodes = models.JSONField(help_text="The names of the nodes that are kept for it.")
    amounts = models.JSONField(help_text="What its hold will take; this quota is kept for it.")
    gain_gpu_seconds = models.FloatField(help_text="The work that it does earlier than without the moves.")
    cost_gpu_seconds = models.FloatField(help_text="What the moves cost, with earlier stops and moves of their jobs.")
    lost_gpu_seconds = models.FloatField(help_text="The work that is repeated.")
    share = models.FloatField(help_text="The part of the gain that the moves may cost.")
    otherwise_at = models.DateTimeField(null=True, help_text="When it was expected to start without them, if known.")
    is_exact = models.BooleanField(help_text="Whether no cheaper choice existed on that cluster.")
    created_at = models.DateTimeField(db_default=Now())
    deadline_at = models.DateTimeField(help_text="When the places are given up.")
    ended_at = models.DateTimeField(null=True)
    outcome = models.CharField(max_length=10, blank=True, default="", choices=[(one, one) for one in OUTCOMES])

    class Meta:
        constraints = [
            finite(
                "consolidation_numbers_are_finite", "gain_gpu_seconds", "cost_gpu_seconds", "lost_gpu_seconds", "share"
            ),
            models.UniqueConstraint(
                fields=["beneficiary"], condition=Q(ended_at__isnull=True), name="one_live_consolidation_per_job"
            ),
            models.UniqueConstraint(
                fields=["cluster"], condition=Q(ended_at__isnull=True), name="one_live_consolidation_per_cluster"
            ),
            models.CheckConstraint(
                condition=Q(ended_at__isnull=True, outcome="") | Q(ended_at__isnull=False, outcome__in=OUTCOMES),
                name="a_consolidation_ends_with_an_outcome",
            ),
            models.CheckConstraint(
                condition=Q(deadline_at__gt=F("created_at")), name="a_consolidation_has_a_deadline_ahead"
            ),
            models.CheckConstraint(
                condition=Q(lost_gpu_seconds__gte=0, cost_gpu_seconds__gte=F("lost_gpu_seconds")),
                name="a_consolidation_costs_what_is_repeated_or_more",
            ),
            models.CheckConstraint(
                condition=Q(cost_gpu_seconds__lte=F("share") * F("gain_gpu_seconds")),
                name="a_consolidation_costs_a_share_of_its_gain",
            ),
            models.CheckConstraint(
                condition=Q(nodes__contains=[], size_milli__gt=0), name="a_consolidation_lists_its_nodes"
            ),
        ]
        indexes = [models.Index(fields=["deadline_at"], name="consolidations_by_deadline")]

    def __str__(self) -> str:
        return f"moves for {self.beneficiary_id}"
