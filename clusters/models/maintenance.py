"""Planned maintenance of clusters."""

from django.db import models
from django.db.models import F, Q
from django.db.models.functions import Now

from foundation.ids import new_id

from .clusters import Cluster


class MaintenanceWindow(models.Model):
    """A period in which a cluster takes no work, or some nodes of it, or those that offer a flavor. Without `nodes` and
    `flavor`, it concerns the whole cluster.

    It begins and ends by its times alone, on the database's clock. The rows are history: one is only cancelled (trigger).
    """

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    cluster = models.ForeignKey(Cluster, on_delete=models.PROTECT, related_name="windows")
    starts_at = models.DateTimeField()
    ends_at = models.DateTimeField()
    nodes = models.JSONField(default=list, blank=True, help_text="Names of the nodes that it concerns.")
    flavor = models.CharField(max_length=120, blank=True, help_text="It concerns the nodes that offer this flavor.")
    reason = models.CharField(max_length=300)
    drain = models.BooleanField(default=False, help_text="Whether what still runs when it begins is stopped.")
    created_by = models.CharField(max_length=300)
    created_at = models.DateTimeField(db_default=Now())
    cancelled_at = models.DateTimeField(null=True)
    cancelled_by = models.CharField(max_length=300, blank=True)

    class Meta:
        constraints = [
            models.CheckConstraint(condition=Q(ends_at__gt=F("starts_at")), name="window_ends_after_it_starts"),
            models.CheckConstraint(condition=Q(nodes=[]) | Q(flavor=""), name="window_has_one_scope"),
            models.CheckConstraint(condition=~Q(reason=""), name="window_has_a_reason"),
            models.CheckConstraint(condition=~Q(created_by=""), name="window_was_made_by_someone"),
            models.CheckConstraint(
                condition=Q(cancelled_at__isnull=True, cancelled_by="")
                | Q(~Q(cancelled_by=""), cancelled_at__isnull=False, cancelled_at__lt=F("ends_at")),
                name="window_is_cancelled_by_someone_before_its_end",
            ),
        ]
        indexes = [models.Index(fields=["cluster", "ends_at"], name="windows_by_end")]

    def __str__(self) -> str:
        return self.reason
