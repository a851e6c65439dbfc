"""What clusters report of images, and how long they take to pull them."""

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import F, Q
from django.db.models.functions import Now

from .clusters import Cluster


class ClusterImage(models.Model):
    """An image that nodes of a cluster have, of those that the gateway follows. Images that no node has have no row."""

    id = models.BigAutoField(primary_key=True)
    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="+")
    name = models.CharField(max_length=600, help_text="The normal name (`engine.images`).")
    size_mib = models.PositiveIntegerField(help_text="As its nodes report it.")
    nodes = models.PositiveIntegerField(help_text="The number of nodes that have it.")
    by_flavor = models.JSONField(help_text="The number of nodes that have it, by the flavor that they offer.")
    on_nodes = ArrayField(
        models.CharField(max_length=253), null=True, help_text="The nodes' names, for images that nodes should have."
    )
    changed_at = models.DateTimeField(db_default=Now())

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["cluster", "name"], name="image_is_counted_once_on_its_cluster"),
            models.CheckConstraint(condition=~Q(name=""), name="image_has_a_name"),
            models.CheckConstraint(condition=Q(nodes__gte=1), name="image_is_on_some_node"),
            models.CheckConstraint(condition=Q(size_mib__lte=1024 * 1024), name="image_is_at_most_a_tebibyte"),
            models.CheckConstraint(
                condition=Q(on_nodes=None) | Q(on_nodes__len=F("nodes")), name="image_names_all_nodes_that_have_it"
            ),
        ]
        indexes = [models.Index(fields=["name"], name="clusters_that_have_an_image")]

    def __str__(self) -> str:
        return self.name


class PullTimes(models.Model):
    """The durations of the newest pulls on a cluster of images of one class of size (`engine.pulls`)."""

    id = models.BigAutoField(primary_key=True)
    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="+")
    size_class = models.PositiveSmallIntegerField()
    recent_seconds = ArrayField(models.PositiveIntegerField(), help_text="Durations of the newest pulls, newest first.")
    pulls = models.PositiveBigIntegerField(help_text="The total number of pulls.")
    last_at = models.DateTimeField(db_default=Now())

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["cluster", "size_class"], name="pulls_are_kept_by_cluster_and_size"),
            models.CheckConstraint(condition=Q(size_class__lte=5), name="pulls_are_of_a_known_size"),
            models.CheckConstraint(
                condition=Q(recent_seconds__len__gte=1, recent_seconds__len__lte=15),
                name="pulls_kept_are_few",
            ),
            models.CheckConstraint(condition=Q(pulls__gte=F("recent_seconds__len")), name="pulls_count_what_is_kept"),
        ]

    def __str__(self) -> str:
        return f"{self.pulls} pulls"
