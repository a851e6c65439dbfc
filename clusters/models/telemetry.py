"""Where the gateway reads what the GPUs of a cluster did."""

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from clusters.engine.egress import MAX_URL_LENGTH
from foundation.ids import new_id

from .clusters import Cluster


class ClusterPrometheus(models.Model):
    """The Prometheus of a cluster. Its bearer token, if it has one, is sealed; its value is never shown again."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    cluster = models.OneToOneField(Cluster, on_delete=models.CASCADE, related_name="prometheus")
    url = models.CharField(max_length=MAX_URL_LENGTH)
    key_id = models.CharField(max_length=40, blank=True, default="", db_default="")
    sealed = models.BinaryField(null=True)
    set_by_name = models.CharField(max_length=254)
    changed_at = models.DateTimeField(db_default=Now())

    class Meta:
        constraints = [
            models.CheckConstraint(condition=Q(url__regex=r"^https?://[^\s@?#]+\Z"), name="prometheus_has_a_plain_url"),
            models.CheckConstraint(
                condition=Q(key_id="", sealed__isnull=True) | Q(~Q(key_id=""), sealed__isnull=False),
                name="prometheus_token_is_sealed",
            ),
            models.CheckConstraint(condition=~Q(set_by_name=""), name="prometheus_says_who_set_it"),
        ]

    def __str__(self) -> str:
        return self.url
