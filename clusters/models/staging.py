"""How datasets come to storages of clusters, and the replicas that are there."""

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from clusters.engine.datasets import MOST_BYTES
from clusters.engine.staging import PATH_PATTERN, SHA256_PATTERN
from clusters.engine.storages import DOTS_PATTERN, MOST_PATH
from foundation.finite import finite
from foundation.ids import new_id

from .clusters import Cluster, Dataset
from .storages import Storage


def _is_plain_path(name: str) -> Q:
    return Q(**{f"{name}__regex": PATH_PATTERN}) & ~Q(**{f"{name}__regex": DOTS_PATTERN})


class StagingPlan(models.Model):
    """From where on a cluster a dataset is copied, and to where: two storages of that cluster and a path in each. There is one
    for a dataset and a cluster. It copies nothing itself.
    """

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    dataset = models.ForeignKey(Dataset, on_delete=models.CASCADE, related_name="staging_plans", db_index=False)
    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="staging_plans")
    source = models.ForeignKey(Storage, on_delete=models.CASCADE, related_name="+")
    source_path = models.CharField(max_length=MOST_PATH)
    target = models.ForeignKey(Storage, on_delete=models.CASCADE, related_name="+")
    target_path = models.CharField(max_length=MOST_PATH)
    sha256 = models.CharField(max_length=64, blank=True, help_text="What the copy must have; empty: anything.")
    created_by = models.CharField(max_length=300)
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["dataset", "cluster"], name="a_dataset_comes_to_a_cluster_one_way"),
            models.UniqueConstraint(fields=["id", "cluster"], name="staging_plan_has_one_cluster"),
            models.CheckConstraint(condition=_is_plain_path("source_path"), name="staged_source_is_a_plain_path"),
            models.CheckConstraint(condition=_is_plain_path("target_path"), name="staged_target_is_a_plain_path"),
            models.CheckConstraint(
                condition=Q(sha256="") | Q(sha256__regex=SHA256_PATTERN), name="staged_sha256_is_a_digest"
            ),
            models.CheckConstraint(condition=~Q(created_by=""), name="staging_plan_was_made_by_someone"),
        ]

    def __str__(self) -> str:
        return f"{self.dataset_id} to {self.cluster_id}"


class DatasetReplica(models.Model):
    """A copy of a dataset on a storage of a cluster that a stage-in of ours made and that ended well. `egress_cost` is what moving
    it cost by the egress prices then, posted once to the dataset's tenant; null if it is unknown.
    """

    id = models.BigAutoField(primary_key=True)
    plan = models.OneToOneField(StagingPlan, on_delete=models.CASCADE, related_name="replica")
    dataset = models.ForeignKey(Dataset, on_delete=models.CASCADE, related_name="replicas", db_index=False)
    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="+")
    storage = models.ForeignKey(Storage, on_delete=models.CASCADE, related_name="+")
    path = models.CharField(max_length=MOST_PATH)
    size_bytes = models.BigIntegerField(null=True, help_text="As its copy reported; null: it reported nothing.")
    sha256 = models.CharField(max_length=64, blank=True)
    staged_at = models.DateTimeField(db_default=Now())
    egress_cost = models.DecimalField(max_digits=24, decimal_places=6, null=True)
    egress_currency = models.CharField(max_length=3, blank=True)

    class Meta:
        constraints = [
            finite("dataset_replica_numbers_are_finite", "egress_cost"),
            models.UniqueConstraint(fields=["dataset", "cluster"], name="a_cluster_has_a_dataset_once"),
            models.CheckConstraint(condition=_is_plain_path("path"), name="replica_path_is_plain"),
            models.CheckConstraint(
                condition=Q(sha256="") | Q(sha256__regex=SHA256_PATTERN), name="replica_sha256_is_a_digest"
            ),
            models.CheckConstraint(
                condition=Q(size_bytes=None) | Q(size_bytes__gte=1, size_bytes__lte=MOST_BYTES),
                name="replica_size_is_within_bounds",
            ),
            models.CheckConstraint(
                condition=Q(egress_cost=None, egress_currency="") | Q(~Q(egress_currency=""), egress_cost__gte=0),
                name="replica_egress_has_a_currency",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.dataset_id} on {self.cluster_id}"
