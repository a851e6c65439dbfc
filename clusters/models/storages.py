"""What jobs use of their tenant besides its quota: storages of clusters, and secrets."""

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from clusters.engine.object_stores import (
    BUCKET_DOTS_PATTERN,
    BUCKET_PATTERN,
    ENDPOINT_PATTERN,
    MOST_BUCKET,
    MOST_ENDPOINT,
    MOST_REGION,
    REGION_PATTERN,
)
from clusters.engine.secrets import REGISTRY_PATTERN
from clusters.engine.secrets import Kind as SecretKind
from clusters.engine.storages import CLAIM_PATTERN, DOTS_PATTERN, MOST_PREFIX, PREFIX_PATTERN, Kind, Mode
from clusters.engine.volumes import (
    CLASS_PATTERN,
    IMAGE_PATTERN,
    LEAST_BYTES,
    MOST_BYTES,
    MOST_CLASS,
    MOST_IMAGE,
    size_text,
)
from foundation.ids import new_id
from tenancy.models import NAME_PATTERN, Tenant

from .clusters import Cluster


class Storage(models.Model):
    """A PersistentVolumeClaim by its logical name on a cluster. Jobs of the tenant and its descendants may mount the part
    of it below `prefix`. The claim has the same name in the namespace of each of these tenants.

    Or a bucket of an object store, from which their datasets may be copied there, with the access key in their secret of that name.
    Or a StorageClass, of which each pod gets a new volume of at most `most_bytes`. Or an image, whose files they may read.
    """

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="storages")
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="storages")
    name = models.CharField(max_length=63)
    kind = models.CharField(
        max_length=20, choices=[(each.value, each.value) for each in Kind], default=Kind.CLAIM.value
    )
    claim = models.CharField(max_length=253, blank=True)
    endpoint = models.CharField(max_length=MOST_ENDPOINT, blank=True, default="", db_default="")
    region = models.CharField(max_length=MOST_REGION, blank=True, default="", db_default="")
    bucket = models.CharField(max_length=MOST_BUCKET, blank=True, default="", db_default="")
    secret = models.CharField(
        max_length=63, blank=True, default="", db_default="", help_text="Name of the secret with its access key."
    )
    storage_class = models.CharField(max_length=MOST_CLASS, blank=True, default="", db_default="")
    most_bytes = models.BigIntegerField(default=0, db_default=0, help_text="The largest volume of a pod.")
    image = models.CharField(max_length=MOST_IMAGE, blank=True, default="", db_default="")
    mode = models.CharField(
        max_length=10, choices=[(each.value, each.value) for each in Mode], default=Mode.READ_ONLY.value
    )
    prefix = models.CharField(max_length=MOST_PREFIX, blank=True)
    created_at = models.DateTimeField(db_default=Now())
    changed_at = models.DateTimeField(db_default=Now())

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["cluster", "name"], name="storage_name_is_unique_on_its_cluster"),
            models.CheckConstraint(condition=Q(name__regex=NAME_PATTERN), name="storage_name_is_a_dns_label"),
            models.CheckConstraint(condition=Q(kind__in=[each.value for each in Kind]), name="storage_kind_is_known"),
            models.CheckConstraint(
                condition=Q(kind="claim", claim__regex=CLAIM_PATTERN) | Q(~Q(kind="claim"), claim=""),
                name="storage_names_a_claim",
            ),
            models.CheckConstraint(
                condition=Q(~Q(kind="object_store"), endpoint="", region="", bucket="", secret="")
                | Q(
                    ~Q(bucket__regex=BUCKET_DOTS_PATTERN),
                    kind="object_store",
                    endpoint__regex=ENDPOINT_PATTERN,
                    region__regex=REGION_PATTERN,
                    bucket__regex=BUCKET_PATTERN,
                    secret__regex=NAME_PATTERN,
                    mode="read_only",
                ),
                name="storage_has_a_bucket_exactly_if_it_is_an_object_store",
            ),
            models.CheckConstraint(
                condition=Q(~Q(kind="storage_class"), storage_class="", most_bytes=0)
                | Q(
                    kind="storage_class",
                    storage_class__regex=CLASS_PATTERN,
                    most_bytes__range=(LEAST_BYTES, MOST_BYTES),
                    mode="read_write",
                    prefix="",
                ),
                name="storage_has_a_class_and_a_size_exactly_if_it_is_one",
            ),
            models.CheckConstraint(
                condition=Q(~Q(kind="image"), image="")
                | Q(kind="image", image__regex=IMAGE_PATTERN, mode="read_only", prefix=""),
                name="storage_has_an_image_exactly_if_it_is_one",
            ),
            models.CheckConstraint(condition=Q(mode__in=[each.value for each in Mode]), name="storage_mode_is_known"),
            models.CheckConstraint(
                condition=Q(prefix="") | (Q(prefix__regex=PREFIX_PATTERN) & ~Q(prefix__regex=DOTS_PATTERN)),
                name="storage_prefix_leads_nowhere_else",
            ),
        ]

    def __str__(self) -> str:
        return self.name

    @property
    def size(self) -> str:
        """The largest volume of a pod, as a quantity; empty for a storage that is no StorageClass."""
        return size_text(self.most_bytes)


class TenantSecret(models.Model):
    """The current version of a tenant's secret, sealed (`engine.sealing`). Jobs of the tenant and its descendants may use
    it by name. Its value is never shown again, and a new version replaces it.
    """

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="secrets")
    name = models.CharField(max_length=63)
    kind = models.CharField(max_length=10, choices=[(each.value, each.value) for each in SecretKind])
    registry = models.CharField(max_length=253, blank=True, help_text="Whose images it pulls; only for that kind.")
    version = models.PositiveIntegerField()
    key_id = models.CharField(max_length=40)
    sealed = models.BinaryField()
    created_at = models.DateTimeField(db_default=Now())
    changed_at = models.DateTimeField(db_default=Now())

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["tenant", "name"], name="secret_name_is_unique_in_its_tenant"),
            models.CheckConstraint(condition=Q(name__regex=NAME_PATTERN), name="secret_name_is_a_dns_label"),
            models.CheckConstraint(
                condition=Q(kind__in=["value", "access_key"], registry="")
                | Q(kind="registry", registry__regex=REGISTRY_PATTERN),
                name="secret_names_a_registry_exactly_if_it_is_for_one",
            ),
            models.CheckConstraint(condition=Q(version__gte=1), name="secret_versions_begin_at_one"),
            models.CheckConstraint(condition=~Q(key_id=""), name="secret_names_its_key"),
        ]

    def __str__(self) -> str:
        return self.name
