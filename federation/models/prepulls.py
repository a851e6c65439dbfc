"""Images that are kept on the nodes of clusters, and the pulls that bring them there."""

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from clusters.models import Cluster
from foundation.ids import new_id
from tenancy.models import NAME_PATTERN, Tenant

from .preparations import Phase as PhaseOfPreparation
from .preparations import Preparation, constraints_of

MOST_IMAGES = 20
LONGEST_IMAGE = 512
"""As of jobs."""
MOST_AT_ONCE = 10
"""The most pulls of one cluster that are under way at the same time, of all its policies together."""


class PrepullPolicy(models.Model):
    """Images that the nodes of a cluster, or those that offer a flavor, should have before jobs start there. They are pulled in the
    tenant's namespace, by its secret for their registry.
    """

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="prepull_policies")
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="prepull_policies")
    name = models.CharField(max_length=63)
    images = ArrayField(models.CharField(max_length=LONGEST_IMAGE), size=MOST_IMAGES)
    flavor = models.CharField(
        max_length=120, blank=True, help_text="Only the nodes that offer it; empty for all nodes."
    )
    pull_secret = models.CharField(max_length=63, blank=True)
    at_once = models.PositiveSmallIntegerField(default=2, help_text="The most pulls under way at the same time.")
    is_paused = models.BooleanField(default=False)
    created_by = models.CharField(max_length=300)
    created_at = models.DateTimeField(db_default=Now())
    changed_at = models.DateTimeField(db_default=Now())
    removed_at = models.DateTimeField(null=True, help_text="Its pulls are being stopped; then the row goes.")

    class Meta:
        verbose_name_plural = "prepull policies"
        constraints = [
            models.UniqueConstraint(
                fields=["cluster", "name"], condition=Q(removed_at=None), name="prepull_name_is_unique_on_its_cluster"
            ),
            models.CheckConstraint(condition=Q(name__regex=NAME_PATTERN), name="prepull_name_is_a_dns_label"),
            models.CheckConstraint(
                condition=Q(images__len__gte=1, images__len__lte=MOST_IMAGES), name="prepull_images_are_few"
            ),
            models.CheckConstraint(
                condition=Q(at_once__gte=1, at_once__lte=MOST_AT_ONCE), name="prepulls_at_once_are_few"
            ),
            models.CheckConstraint(condition=~Q(created_by=""), name="prepull_was_made_by_someone"),
        ]

    def __str__(self) -> str:
        return self.name


class Prepull(Preparation):
    """An image on a node: the pull that is under way, and how the last one ended.

    A pull takes one of its cluster's slots from when it is planned until its object is gone. So however many workers there are,
    no cluster has more pulls than slots.
    """

    Phase = PhaseOfPreparation

    id = models.BigAutoField(primary_key=True)
    policy = models.ForeignKey(PrepullPolicy, on_delete=models.CASCADE, related_name="prepulls")
    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="+")
    image = models.CharField(max_length=LONGEST_IMAGE)
    node = models.CharField(max_length=253)
    secrets = models.JSONField(default=dict, blank=True, help_text="The promised secret, by which it pulls.")
    pulls = models.PositiveIntegerField(default=0)
    pulled_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [
            *constraints_of("prepull", MOST_AT_ONCE),
            models.UniqueConstraint(fields=["policy", "image", "node"], name="image_is_pulled_once_to_a_node"),
            models.CheckConstraint(condition=Q(outcome__in=["", "pulled", "failed"]), name="prepull_outcome_is_known"),
            models.CheckConstraint(
                condition=~Q(outcome="pulled") | Q(failures=0, pulled_at__isnull=False),
                name="pulled_prepull_has_its_time",
            ),
            models.CheckConstraint(
                condition=Q(pulls=0, pulled_at=None) | Q(pulls__gte=1, pulled_at__isnull=False),
                name="prepulls_are_counted",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.image} on {self.node}"
