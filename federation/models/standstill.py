"""Periods in which nothing is placed or dispatched: after a restore, the gateway must first find out what runs."""

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from clusters.models import Cluster


class Standstill(models.Model):
    """A standstill's period and reason. While one is open, no attempt is made, claimed or committed (SQL in locks and
    transitions).
    """

    id = models.BigAutoField(primary_key=True)
    began_at = models.DateTimeField(db_default=Now())
    reason = models.TextField()
    ended_at = models.DateTimeField(null=True)
    ended_by = models.TextField(blank=True, help_text="Who resumed dispatch, and their note.")

    class Meta:
        constraints = [
            models.UniqueConstraint(
                models.Value(1), condition=Q(ended_at__isnull=True), name="one_standstill_at_a_time"
            ),
            models.CheckConstraint(
                condition=Q(ended_at__isnull=True, ended_by="") | (Q(ended_at__isnull=False) & ~Q(ended_by="")),
                name="a_standstill_is_ended_by_somebody",
            ),
        ]

    def __str__(self) -> str:
        return self.reason


class ComparedCluster(models.Model):
    """What the last comparison of a cluster in a standstill has left for operators."""

    id = models.BigAutoField(primary_key=True)
    standstill = models.ForeignKey(Standstill, on_delete=models.CASCADE, related_name="compared")
    cluster = models.ForeignKey(Cluster, on_delete=models.PROTECT, related_name="+")
    compared_at = models.DateTimeField(db_default=Now())
    strangers = models.PositiveIntegerField(
        help_text="The gateway's objects that may run and belong to no known attempt."
    )

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["standstill", "cluster"], name="a_cluster_is_compared_once_in_a_standstill")
        ]

    def __str__(self) -> str:
        return f"{self.cluster_id}: {self.strangers}"
