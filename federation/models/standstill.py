"""Periods in which nothing is placed or dispatched: after a restore, the gateway must first find out what runs.

`DatabaseHistory` shows that there was one: a restored database, or one that another server took over, has another history.
"""

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from clusters.models import Cluster

DISPATCH_IS_OPEN = """NOT EXISTS (SELECT FROM federation_standstill WHERE ended_at IS NULL)
   AND NOT EXISTS (SELECT FROM federation_databasehistory WHERE accepted <> federation_database_history())"""
"""Part of each statement that lets something be placed or started: also before anyone noticed that the history changed."""


class DatabaseHistory(models.Model):
    """The history that the gateway last accepted, in a single row that it writes itself when it first starts.

    A history names the server's data, its timeline, the database and this table (`federation_database_history`), so each
    restore of a dump, recovery to a point in time, and promotion has another.
    """

    id = models.PositiveSmallIntegerField(primary_key=True, db_default=1, default=1)
    accepted = models.TextField()
    accepted_at = models.DateTimeField(db_default=Now())

    class Meta:
        constraints = [models.CheckConstraint(condition=Q(id=1), name="one_history_is_accepted")]

    def __str__(self) -> str:
        return self.accepted


class Standstill(models.Model):
    """A standstill's period and reason. While one is open, no attempt is made, claimed or committed (SQL in locks and
    transitions).
    """

    id = models.BigAutoField(primary_key=True)
    began_at = models.DateTimeField(db_default=Now())
    reason = models.TextField()
    needs_operator = models.BooleanField(
        default=True,
        db_default=True,
        help_text="Whether only an operator ends it: an operator began it, or something was found.",
    )
    compare_from = models.DateTimeField(
        db_default=Now(), help_text="Comparisons that began earlier do not count: calls of before may still arrive."
    )
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
    adopted = models.PositiveIntegerField(
        default=0, db_default=0, help_text="Attempts that were taken in or caught up, in all comparisons."
    )
    vanished = models.PositiveIntegerField(
        default=0, db_default=0, help_text="Objects of live attempts that may have run and are gone."
    )
    history = models.TextField(
        default="", db_default="", blank=True, help_text="The database's history when the cluster was listed."
    )

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["standstill", "cluster"], name="a_cluster_is_compared_once_in_a_standstill")
        ]

    def __str__(self) -> str:
        return f"{self.cluster_id}: {self.strangers}"
