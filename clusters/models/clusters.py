"""Registered clusters and the last observation of them."""

from django.db import models
from django.db.models import F, Q, Value
from django.db.models.functions import Concat, Now

from clusters.engine.datasets import DATASET_PATTERN, MOST_BYTES
from foundation.ids import new_id
from tenancy.models import NAME_PATTERN, Tenant


class StandingClusters(models.Manager["Cluster"]):
    """The currently registered clusters; removed ones remain only for history (`Cluster.everything`)."""

    def get_queryset(self) -> models.QuerySet["Cluster"]:
        return super().get_queryset().filter(removed_at__isnull=True)


class Cluster(models.Model):
    """A registered Kubernetes cluster. `identity` is the uid of its kube-system namespace, pinned at registration.

    Removal keeps the row, so that attempts and usage can still name it; the credential, nodes and flavors are deleted.
    """

    class Health(models.TextChoices):
        """The observer's last result; `wish` (below) is the administrator's setting."""

        READY = "ready"
        DEGRADED = "degraded"
        UNREACHABLE = "unreachable"
        AUTH_FAILED = "auth_failed"

    class Wish(models.TextChoices):
        OPEN = "open"
        CORDONED = "cordoned"
        DRAINING = "draining"

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    owner = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="clusters")
    name = models.CharField(max_length=63)
    driver = models.CharField(max_length=20, default="kubernetes")
    server = models.CharField(max_length=500)
    ca_pem = models.TextField(blank=True)
    region = models.CharField(max_length=63, blank=True)
    provider = models.CharField(max_length=63, blank=True)
    labels = models.JSONField(default=dict, blank=True)
    identity = models.CharField(max_length=64)
    kubernetes_version = models.CharField(max_length=40, blank=True)
    has_kueue = models.BooleanField(
        db_default=False, help_text="Whether the cluster served Kueue's API at the last probe."
    )
    health = models.CharField(max_length=20, choices=Health.choices, default=Health.READY)
    wish = models.CharField(max_length=20, choices=Wish.choices, default=Wish.OPEN)
    reasons = models.JSONField(default=list, blank=True, help_text="Why it is not ready: [{code, message}].")
    clock_skew_ms = models.BigIntegerField(default=0)
    clock_eras = models.JSONField(
        default=list,
        blank=True,
        db_default=[],
        help_text="How far its clock was ahead of the database's, and since when (`engine.clocks`).",
    )
    inventory_version = models.BigIntegerField(default=0, help_text="Grows with every change to nodes or flavors.")
    credential_expires_at = models.DateTimeField(
        null=True, help_text="When its credential expires, as the credential itself states; null if it does not."
    )
    last_seen_at = models.DateTimeField(null=True)
    observed_at = models.DateTimeField(
        null=True, help_text="When the watches of nodes and pods last both returned data."
    )
    silent_since = models.DateTimeField(null=True, help_text="When contact was lost; null while it responds.")
    created_at = models.DateTimeField(db_default=Now())
    updated_at = models.DateTimeField(auto_now=True)
    removed_at = models.DateTimeField(null=True, blank=True)

    objects = StandingClusters()
    everything = models.Manager["Cluster"]()

    class Meta:
        base_manager_name = "everything"
        constraints = [
            models.UniqueConstraint(
                fields=["owner", "name"],
                condition=Q(removed_at__isnull=True),
                name="cluster_name_is_unique_for_its_owner",
            ),
            models.UniqueConstraint(
                fields=["identity"], condition=Q(removed_at__isnull=True), name="a_cluster_is_registered_once"
            ),
            models.CheckConstraint(condition=~Q(identity=""), name="cluster_identity_is_known"),
            models.CheckConstraint(
                condition=Q(driver="kubernetes", server__startswith="https://")
                | (~Q(driver__in=["", "kubernetes"]) & Q(server__startswith=Concat(F("driver"), Value("://")))),
                name="cluster_driver_is_that_of_its_server",
            ),
            models.CheckConstraint(
                condition=Q(health__in=["ready", "degraded"], silent_since__isnull=True)
                | Q(health__in=["unreachable", "auth_failed"], silent_since__isnull=False),
                name="cluster_is_silent_exactly_when_it_does_not_answer",
            ),
            models.CheckConstraint(condition=Q(name__regex=NAME_PATTERN), name="cluster_name_is_a_dns_label"),
            models.CheckConstraint(
                condition=Q(health__in=["ready", "degraded", "unreachable", "auth_failed"]),
                name="cluster_health_is_known",
            ),
            models.CheckConstraint(
                condition=Q(wish__in=["open", "cordoned", "draining"]), name="cluster_wish_is_known"
            ),
        ]

    def __str__(self) -> str:
        return self.name

    @property
    def state(self) -> str:
        """The one state that users see: trouble first, then the administrator's wish, then ready or degraded."""
        if self.health in (self.Health.UNREACHABLE, self.Health.AUTH_FAILED):
            return self.health
        return self.health if self.wish == self.Wish.OPEN else self.wish


class ClusterCredential(models.Model):
    """The sealed credential of a cluster: AES-256-GCM, associated data = cluster id and key id. It is never shown
    again.
    """

    cluster = models.OneToOneField(Cluster, primary_key=True, on_delete=models.CASCADE, related_name="credential")
    kind = models.CharField(max_length=20, choices=[("token", "token"), ("certificate", "certificate")])
    key_id = models.CharField(max_length=40)
    sealed = models.BinaryField()
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        constraints = [
            models.CheckConstraint(condition=Q(kind__in=["token", "certificate"]), name="credential_kind_is_known"),
            models.CheckConstraint(condition=~Q(key_id=""), name="credential_names_its_key"),
        ]

    def __str__(self) -> str:
        return f"credential of {self.cluster_id}"


class Flavor(models.Model):
    """What some nodes of a cluster offer. CPU-only nodes offer a flavor with no vendor and no GPU model."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="flavors")
    name = models.CharField(max_length=120)
    vendor = models.CharField(max_length=20, blank=True)
    gpu_model = models.CharField(max_length=63, blank=True)
    gpu_memory_mib = models.PositiveIntegerField(default=0)
    sharing = models.CharField(max_length=40, default="whole", help_text="`whole`, `mig:PROFILE` or `timeslice:N`.")
    capacity_type = models.CharField(max_length=20, default="on_demand")
    resource_name = models.CharField(
        max_length=120,
        blank=True,
        help_text="The name of the resource: an extended resource such as nvidia.com/mig-1g.10gb, or our own name.",
    )
    node_selector = models.JSONField(default=dict, help_text="Labels that pick this flavor's nodes.")
    slice_hosts = models.PositiveIntegerField(default=1, help_text="Number of nodes that make up one accelerator.")
    unplaceable = models.CharField(max_length=300, blank=True, help_text="Why no job can start on it.")
    device_class = models.CharField(
        max_length=63, blank=True, help_text="The DeviceClass of its devices, if they are claimed."
    )
    cel = models.CharField(
        max_length=1000, blank=True, help_text="CEL expression that selects its devices among those of the DeviceClass."
    )

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["cluster", "name"], name="flavor_name_is_unique_in_its_cluster"),
            models.CheckConstraint(
                condition=Q(capacity_type__in=["on_demand", "spot", "reserved"]), name="capacity_type_is_known"
            ),
            models.CheckConstraint(
                condition=Q(sharing__regex=r"^(whole|mig:[0-9a-z.+-]+|timeslice:[0-9]+)$"), name="sharing_is_known"
            ),
            models.CheckConstraint(condition=Q(slice_hosts__gte=1), name="a_slice_has_a_host"),
            models.CheckConstraint(
                condition=Q(device_class="") | ~Q(cel="") | ~Q(unplaceable=""), name="what_is_claimed_can_be_told_apart"
            ),
        ]

    def __str__(self) -> str:
        return self.name


class Node(models.Model):
    """A node as last observed. `devices` is `[{"flavor": name, "units": n}]`, with 0 units of a CPU-only flavor. `foreign_*` is
    the use by foreign pods, of devices by resource. `used_devices` counts every pod bound and device allocated there.
    """

    id = models.BigAutoField(primary_key=True)
    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="nodes")
    name = models.CharField(max_length=253)
    uid = models.CharField(max_length=64)
    domain = models.JSONField(
        default=list, help_text="Topology path below the cluster: zone, block, rack, node, clique."
    )
    labels = models.JSONField(default=dict)
    taints = models.JSONField(default=list)
    devices = models.JSONField(default=list)
    cpu_millicores = models.BigIntegerField()
    memory_mib = models.BigIntegerField()
    pods = models.PositiveIntegerField()
    foreign_cpu_millicores = models.BigIntegerField(default=0)
    foreign_memory_mib = models.BigIntegerField(default=0)
    foreign_pods = models.PositiveIntegerField(default=0)
    foreign_devices = models.JSONField(default=dict)
    used_devices = models.JSONField(default=dict)
    resources = models.JSONField(default=dict, db_default={}, blank=True, help_text="Other resources, by name.")
    gpu_facts = models.JSONField(default=dict, db_default={}, blank=True, help_text="What is known of GPUs, by flavor.")
    is_ready = models.BooleanField(default=True)
    is_schedulable = models.BooleanField(default=True)
    observed_at = models.DateTimeField()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["cluster", "name"], name="node_name_is_unique_in_its_cluster"),
            models.CheckConstraint(
                condition=Q(
                    cpu_millicores__gte=0, cpu_millicores__lte=10**9, memory_mib__gte=0, memory_mib__lte=10**10
                ),
                name="node_capacity_is_plausible",
            ),
            models.CheckConstraint(
                condition=Q(foreign_cpu_millicores__gte=0, foreign_memory_mib__gte=0),
                name="foreign_use_is_not_negative",
            ),
        ]

    def __str__(self) -> str:
        return self.name


class AvoidedNode(models.Model):
    """A node that jobs avoid until a time, because it made jobs fail: in our inventory only, nothing is written to its
    cluster. It ends at its time, or an administrator ends it. The rows are the node's history (trigger).
    """

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="avoided_nodes")
    node = models.CharField(max_length=253)
    uid = models.CharField(max_length=64, help_text="The node's: another node of its name is not avoided.")
    reason = models.CharField(max_length=500)
    evidence = models.JSONField(default=dict, help_text="The numbers that the reason is based on.")
    began_at = models.DateTimeField(db_default=Now())
    until_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True)
    ended_by = models.CharField(max_length=300, blank=True, help_text="Who ended it early; empty if its time did.")

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["cluster", "uid"], condition=Q(ended_at__isnull=True), name="a_node_is_avoided_once"
            ),
            models.CheckConstraint(condition=Q(until_at__gt=F("began_at")), name="a_node_is_avoided_for_a_time"),
            models.CheckConstraint(
                condition=Q(ended_at__isnull=True) | Q(ended_at__gte=F("began_at")),
                name="avoidance_ends_after_it_began",
            ),
            models.CheckConstraint(
                condition=Q(ended_by="") | Q(ended_at__isnull=False), name="only_what_has_ended_was_ended"
            ),
        ]
        indexes = [models.Index(fields=["cluster", "-id"], name="avoided_nodes_newest_first")]

    def __str__(self) -> str:
        return f"{self.node}: {self.reason}"


class ClusterEvent(models.Model):
    """Something that happened to a cluster: a change of state, a refused capacity, a rebuilt identity."""

    id = models.BigAutoField(primary_key=True)
    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="events")
    at = models.DateTimeField()
    kind = models.CharField(max_length=60)
    message = models.TextField()

    class Meta:
        indexes = [models.Index(fields=["cluster", "-id"], name="cluster_events_newest_first")]

    def __str__(self) -> str:
        return f"{self.kind}: {self.message}"


class Dataset(models.Model):
    """Data by its logical name: its size and where it is stored. Jobs of the tenant and its descendants may name it."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="datasets")
    name = models.CharField(max_length=120)
    size_bytes = models.BigIntegerField()
    created_at = models.DateTimeField(db_default=Now())
    changed_at = models.DateTimeField(db_default=Now())

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["tenant", "name"], name="dataset_name_is_unique_for_its_tenant"),
            models.CheckConstraint(condition=Q(name__regex=DATASET_PATTERN), name="dataset_name_is_plain"),
            models.CheckConstraint(
                condition=Q(size_bytes__gte=1, size_bytes__lte=MOST_BYTES), name="dataset_size_is_within_bounds"
            ),
        ]

    def __str__(self) -> str:
        return self.name


class DatasetLocation(models.Model):
    """A place with a full copy of a dataset: a region, or one cluster."""

    id = models.BigAutoField(primary_key=True)
    dataset = models.ForeignKey(Dataset, on_delete=models.CASCADE, related_name="locations")
    region = models.CharField(max_length=63, blank=True)
    cluster = models.ForeignKey(Cluster, null=True, on_delete=models.CASCADE, related_name="+")

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=(Q(cluster__isnull=True) & ~Q(region="")) | Q(cluster__isnull=False, region=""),
                name="dataset_lies_in_a_region_or_a_cluster",
            ),
            models.UniqueConstraint(
                fields=["dataset", "region", "cluster"], name="a_place_holds_a_dataset_once", nulls_distinct=False
            ),
        ]

    def __str__(self) -> str:
        return self.region or str(self.cluster_id)
