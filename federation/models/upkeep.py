"""The schedule of a cluster besides its attempts."""

from django.db import models
from django.db.models.functions import Now

from clusters.models import Cluster


class ClusterUpkeep(models.Model):
    """When a cluster is next compared with our rows, until when it counts as slow for each kind of visit, and its rest.

    A row is made when it is first needed. All times are by the database's clock.
    """

    cluster = models.OneToOneField(Cluster, primary_key=True, on_delete=models.CASCADE, related_name="+")
    compare_due_at = models.DateTimeField(db_default=Now())
    compare_claimed_until = models.DateTimeField(
        null=True, help_text="The comparing process claims it until this time, or until its session ends."
    )
    compared_at = models.DateTimeField(null=True, help_text="When a comparison was last completed.")
    slow_dispatch_until = models.DateTimeField(
        null=True, help_text="It counts as slow for dispatch until this time, because it recently delayed a dispatcher."
    )
    slow_compare_until = models.DateTimeField(
        null=True, help_text="It counts as slow for comparison until this time, because it recently delayed one."
    )
    rests_until = models.DateTimeField(
        null=True, help_text="Dispatch leaves it alone until this time, because it answered no call of the last visit."
    )
    silent_visits = models.PositiveSmallIntegerField(
        db_default=0, default=0, help_text="The number of visits in a row in which it answered no call."
    )

    class Meta:
        indexes = [models.Index(fields=["compare_due_at"], name="clusters_to_compare")]

    def __str__(self) -> str:
        return f"upkeep of {self.cluster_id}"
