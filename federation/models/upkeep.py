"""The schedule of a cluster besides its attempts."""

from django.db import models
from django.db.models.functions import Now

from clusters.models import Cluster


class ClusterUpkeep(models.Model):
    """When a cluster is next compared with our rows, and until when it counts as slow for each kind of visit.

    A row is made when it is first needed. All times are by the database's clock.
    """

    cluster = models.OneToOneField(Cluster, primary_key=True, on_delete=models.CASCADE, related_name="+")
    compare_due_at = models.DateTimeField(db_default=Now())
    compare_claimed_until = models.DateTimeField(
        null=True, help_text="So long whoever compares it now may take, unless its session ends before."
    )
    compared_at = models.DateTimeField(null=True, help_text="When it was last compared to the end.")
    slow_dispatch_until = models.DateTimeField(null=True, help_text="It kept a dispatcher waiting lately.")
    slow_compare_until = models.DateTimeField(null=True, help_text="It kept whoever compares it waiting lately.")

    class Meta:
        indexes = [models.Index(fields=["compare_due_at"], name="clusters_to_compare")]

    def __str__(self) -> str:
        return f"upkeep of {self.cluster_id}"
