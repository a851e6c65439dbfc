"""Clusters, their nodes and what is known of them.

`0001_tables.sql` has what Django cannot say of the tables, `clusters/sql/` their rules.
"""

from pathlib import Path

import django.contrib.postgres.constraints
import django.contrib.postgres.fields
import django.contrib.postgres.fields.ranges
import django.db.models.deletion
import django.db.models.functions.datetime
import django.db.models.functions.text
import django.db.models.manager
from django.db import migrations, models

import foundation.ids
from foundation.rules import rules

TABLES = Path(__file__).with_name("0001_tables.sql").read_text(encoding="utf-8")


class Migration(migrations.Migration):
    replaces = [
        ("clusters", "0001_initial"),
        ("clusters", "0002_storages"),
        ("clusters", "0003_secrets"),
        ("clusters", "0004_failures"),
        ("clusters", "0005_credential_expiry"),
        ("clusters", "0006_resources"),
        ("clusters", "0007_maintenance"),
        ("clusters", "0008_images"),
        ("clusters", "0009_history"),
        ("clusters", "0010_nodes_of_images"),
    ]

    initial = True

    dependencies = [
        ("tenancy", "0001_squashed_0002_weight"),
    ]

    operations = [
        migrations.CreateModel(
            name="Cluster",
            fields=[
                (
                    "id",
                    models.UUIDField(default=foundation.ids.new_id, editable=False, primary_key=True, serialize=False),
                ),
                ("name", models.CharField(max_length=63)),
                ("driver", models.CharField(default="kubernetes", max_length=20)),
                ("server", models.CharField(max_length=500)),
                ("ca_pem", models.TextField(blank=True)),
                ("region", models.CharField(blank=True, max_length=63)),
                ("provider", models.CharField(blank=True, max_length=63)),
                ("labels", models.JSONField(blank=True, default=dict)),
                ("identity", models.CharField(max_length=64)),
                ("kubernetes_version", models.CharField(blank=True, max_length=40)),
                (
                    "has_kueue",
                    models.BooleanField(
                        db_default=False, help_text="Whether the cluster served Kueue's API at the last probe."
                    ),
                ),
                (
                    "health",
                    models.CharField(
                        choices=[
                            ("ready", "Ready"),
                            ("degraded", "Degraded"),
                            ("unreachable", "Unreachable"),
                            ("auth_failed", "Auth Failed"),
                        ],
                        default="ready",
                        max_length=20,
                    ),
                ),
                (
                    "wish",
                    models.CharField(
                        choices=[("open", "Open"), ("cordoned", "Cordoned"), ("draining", "Draining")],
                        default="open",
                        max_length=20,
                    ),
                ),
                (
                    "reasons",
                    models.JSONField(blank=True, default=list, help_text="Why it is not ready: [{code, message}]."),
                ),
                ("clock_skew_ms", models.BigIntegerField(default=0)),
                (
                    "clock_eras",
                    models.JSONField(
                        blank=True,
                        db_default=[],
                        default=list,
                        help_text="How far its clock was ahead of the database's, and since when (`engine.clocks`).",
                    ),
                ),
                (
                    "inventory_version",
                    models.BigIntegerField(default=0, help_text="Grows with every change to nodes or flavors."),
                ),
                ("last_seen_at", models.DateTimeField(null=True)),
                (
                    "observed_at",
                    models.DateTimeField(
                        help_text="When the watches of nodes and pods last both returned data.", null=True
                    ),
                ),
                (
                    "silent_since",
                    models.DateTimeField(help_text="When contact was lost; null while it responds.", null=True),
                ),
                ("created_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ("updated_at", models.DateTimeField(auto_now=True)),
                ("removed_at", models.DateTimeField(blank=True, null=True)),
                (
                    "owner",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="clusters", to="tenancy.tenant"
                    ),
                ),
                (
                    "credential_expires_at",
                    models.DateTimeField(
                        help_text="When its credential expires, as the credential itself states; null if it does not.",
                        null=True,
                    ),
                ),
            ],
            options={
                "base_manager_name": "everything",
                "constraints": [
                    models.UniqueConstraint(
                        condition=models.Q(("removed_at__isnull", True)),
                        fields=("owner", "name"),
                        name="cluster_name_is_unique_for_its_owner",
                    ),
                    models.UniqueConstraint(
                        condition=models.Q(("removed_at__isnull", True)),
                        fields=("identity",),
                        name="a_cluster_is_registered_once",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("identity", ""), _negated=True), name="cluster_identity_is_known"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("driver", "kubernetes"), ("server__startswith", "https://")),
                            models.Q(
                                models.Q(("driver__in", ["", "kubernetes"]), _negated=True),
                                (
                                    "server__startswith",
                                    django.db.models.functions.text.Concat(models.F("driver"), models.Value("://")),
                                ),
                            ),
                            _connector="OR",
                        ),
                        name="cluster_driver_is_that_of_its_server",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("health__in", ["ready", "degraded"]), ("silent_since__isnull", True)),
                            models.Q(("health__in", ["unreachable", "auth_failed"]), ("silent_since__isnull", False)),
                            _connector="OR",
                        ),
                        name="cluster_is_silent_exactly_when_it_does_not_answer",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("name__regex", "^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\\Z")),
                        name="cluster_name_is_a_dns_label",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("health__in", ["ready", "degraded", "unreachable", "auth_failed"])),
                        name="cluster_health_is_known",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("wish__in", ["open", "cordoned", "draining"])), name="cluster_wish_is_known"
                    ),
                ],
            },
            managers=[
                ("objects", django.db.models.manager.Manager()),
                ("everything", django.db.models.manager.Manager()),
            ],
        ),
        migrations.CreateModel(
            name="ClusterEvent",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("at", models.DateTimeField()),
                ("kind", models.CharField(max_length=60)),
                ("message", models.TextField()),
                (
                    "cluster",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="events", to="clusters.cluster"
                    ),
                ),
            ],
            options={
                "indexes": [models.Index(fields=["cluster", "-id"], name="cluster_events_newest_first")],
            },
        ),
        migrations.CreateModel(
            name="Dataset",
            fields=[
                (
                    "id",
                    models.UUIDField(default=foundation.ids.new_id, editable=False, primary_key=True, serialize=False),
                ),
                ("name", models.CharField(max_length=120)),
                ("size_bytes", models.BigIntegerField()),
                ("created_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ("changed_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                (
                    "tenant",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="datasets", to="tenancy.tenant"
                    ),
                ),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(fields=("tenant", "name"), name="dataset_name_is_unique_for_its_tenant"),
                    models.CheckConstraint(
                        condition=models.Q(("name__regex", "^[a-z0-9]([a-z0-9._-]{0,118}[a-z0-9])?\\Z")),
                        name="dataset_name_is_plain",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("size_bytes__gte", 1), ("size_bytes__lte", 1152921504606846976)),
                        name="dataset_size_is_within_bounds",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="DatasetLocation",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("region", models.CharField(blank=True, max_length=63)),
                (
                    "cluster",
                    models.ForeignKey(
                        null=True, on_delete=django.db.models.deletion.CASCADE, related_name="+", to="clusters.cluster"
                    ),
                ),
                (
                    "dataset",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="locations", to="clusters.dataset"
                    ),
                ),
            ],
            options={
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("cluster__isnull", True), models.Q(("region", ""), _negated=True)),
                            models.Q(("cluster__isnull", False), ("region", "")),
                            _connector="OR",
                        ),
                        name="dataset_lies_in_a_region_or_a_cluster",
                    ),
                    models.UniqueConstraint(
                        fields=("dataset", "region", "cluster"),
                        name="a_place_holds_a_dataset_once",
                        nulls_distinct=False,
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="Flavor",
            fields=[
                (
                    "id",
                    models.UUIDField(default=foundation.ids.new_id, editable=False, primary_key=True, serialize=False),
                ),
                ("name", models.CharField(max_length=120)),
                ("vendor", models.CharField(blank=True, max_length=20)),
                ("gpu_model", models.CharField(blank=True, max_length=63)),
                ("gpu_memory_mib", models.PositiveIntegerField(default=0)),
                (
                    "sharing",
                    models.CharField(
                        default="whole", help_text="`whole`, `mig:PROFILE` or `timeslice:N`.", max_length=40
                    ),
                ),
                ("capacity_type", models.CharField(default="on_demand", max_length=20)),
                (
                    "resource_name",
                    models.CharField(
                        blank=True,
                        help_text="The name of the resource: an extended resource such as nvidia.com/mig-1g.10gb, or our own name.",
                        max_length=120,
                    ),
                ),
                ("node_selector", models.JSONField(default=dict, help_text="Labels that pick this flavor's nodes.")),
                (
                    "slice_hosts",
                    models.PositiveIntegerField(default=1, help_text="Number of nodes that make up one accelerator."),
                ),
                ("unplaceable", models.CharField(blank=True, help_text="Why no job can start on it.", max_length=300)),
                (
                    "device_class",
                    models.CharField(
                        blank=True, help_text="The DeviceClass of its devices, if they are claimed.", max_length=63
                    ),
                ),
                (
                    "cel",
                    models.CharField(
                        blank=True,
                        help_text="CEL expression that selects its devices among those of the DeviceClass.",
                        max_length=1000,
                    ),
                ),
                (
                    "cluster",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="flavors", to="clusters.cluster"
                    ),
                ),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(fields=("cluster", "name"), name="flavor_name_is_unique_in_its_cluster"),
                    models.CheckConstraint(
                        condition=models.Q(("capacity_type__in", ["on_demand", "spot", "reserved"])),
                        name="capacity_type_is_known",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("sharing__regex", "^(whole|mig:[0-9a-z.+-]+|timeslice:[0-9]+)$")),
                        name="sharing_is_known",
                    ),
                    models.CheckConstraint(condition=models.Q(("slice_hosts__gte", 1)), name="a_slice_has_a_host"),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("device_class", ""),
                            models.Q(("cel", ""), _negated=True),
                            models.Q(("unplaceable", ""), _negated=True),
                            _connector="OR",
                        ),
                        name="what_is_claimed_can_be_told_apart",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="Node",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("name", models.CharField(max_length=253)),
                ("uid", models.CharField(max_length=64)),
                (
                    "domain",
                    models.JSONField(
                        default=list, help_text="Topology path below the cluster: zone, block, rack, node, clique."
                    ),
                ),
                ("labels", models.JSONField(default=dict)),
                ("taints", models.JSONField(default=list)),
                ("devices", models.JSONField(default=list)),
                ("cpu_millicores", models.BigIntegerField()),
                ("memory_mib", models.BigIntegerField()),
                ("pods", models.PositiveIntegerField()),
                ("foreign_cpu_millicores", models.BigIntegerField(default=0)),
                ("foreign_memory_mib", models.BigIntegerField(default=0)),
                ("foreign_pods", models.PositiveIntegerField(default=0)),
                ("foreign_devices", models.JSONField(default=dict)),
                ("used_devices", models.JSONField(default=dict)),
                ("is_ready", models.BooleanField(default=True)),
                ("is_schedulable", models.BooleanField(default=True)),
                ("observed_at", models.DateTimeField()),
                (
                    "cluster",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="nodes", to="clusters.cluster"
                    ),
                ),
                (
                    "resources",
                    models.JSONField(blank=True, db_default={}, default=dict, help_text="Other resources, by name."),
                ),
                (
                    "gpu_facts",
                    models.JSONField(
                        blank=True, db_default={}, default=dict, help_text="What is known of GPUs, by flavor."
                    ),
                ),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(fields=("cluster", "name"), name="node_name_is_unique_in_its_cluster"),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("cpu_millicores__gte", 0),
                            ("cpu_millicores__lte", 1000000000),
                            ("memory_mib__gte", 0),
                            ("memory_mib__lte", 10000000000),
                        ),
                        name="node_capacity_is_plausible",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("foreign_cpu_millicores__gte", 0), ("foreign_memory_mib__gte", 0)),
                        name="foreign_use_is_not_negative",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="ClusterCredential",
            fields=[
                (
                    "cluster",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE,
                        primary_key=True,
                        related_name="credential",
                        serialize=False,
                        to="clusters.cluster",
                    ),
                ),
                ("kind", models.CharField(choices=[("token", "token"), ("certificate", "certificate")], max_length=20)),
                ("key_id", models.CharField(max_length=40)),
                ("sealed", models.BinaryField()),
                ("updated_at", models.DateTimeField(auto_now=True)),
            ],
            options={
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(("kind__in", ["token", "certificate"])), name="credential_kind_is_known"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("key_id", ""), _negated=True), name="credential_names_its_key"
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="Storage",
            fields=[
                (
                    "id",
                    models.UUIDField(default=foundation.ids.new_id, editable=False, primary_key=True, serialize=False),
                ),
                ("name", models.CharField(max_length=63)),
                ("kind", models.CharField(choices=[("claim", "claim")], default="claim", max_length=10)),
                ("claim", models.CharField(max_length=253)),
                (
                    "mode",
                    models.CharField(
                        choices=[("read_only", "read_only"), ("read_write", "read_write")],
                        default="read_only",
                        max_length=10,
                    ),
                ),
                ("prefix", models.CharField(blank=True, max_length=120)),
                ("created_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ("changed_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                (
                    "cluster",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="storages", to="clusters.cluster"
                    ),
                ),
                (
                    "tenant",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="storages", to="tenancy.tenant"
                    ),
                ),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(fields=("cluster", "name"), name="storage_name_is_unique_on_its_cluster"),
                    models.CheckConstraint(
                        condition=models.Q(("name__regex", "^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\\Z")),
                        name="storage_name_is_a_dns_label",
                    ),
                    models.CheckConstraint(condition=models.Q(("kind", "claim")), name="storage_kind_is_known"),
                    models.CheckConstraint(
                        condition=models.Q(("claim__regex", "^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?\\Z")),
                        name="storage_names_a_claim",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("mode__in", ["read_only", "read_write"])), name="storage_mode_is_known"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("prefix", ""),
                            models.Q(
                                ("prefix__regex", "^[A-Za-z0-9._=+@,~/-]*(\\{tenant\\}[A-Za-z0-9._=+@,~/-]*)?\\Z"),
                                models.Q(("prefix__regex", "(^|/)\\.{0,2}(/|$)"), _negated=True),
                            ),
                            _connector="OR",
                        ),
                        name="storage_prefix_leads_nowhere_else",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="TenantSecret",
            fields=[
                (
                    "id",
                    models.UUIDField(default=foundation.ids.new_id, editable=False, primary_key=True, serialize=False),
                ),
                ("name", models.CharField(max_length=63)),
                ("kind", models.CharField(choices=[("value", "value"), ("registry", "registry")], max_length=10)),
                (
                    "registry",
                    models.CharField(
                        blank=True, help_text="Whose images it pulls; only for that kind.", max_length=253
                    ),
                ),
                ("version", models.PositiveIntegerField()),
                ("key_id", models.CharField(max_length=40)),
                ("sealed", models.BinaryField()),
                ("created_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ("changed_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                (
                    "tenant",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="secrets", to="tenancy.tenant"
                    ),
                ),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(fields=("tenant", "name"), name="secret_name_is_unique_in_its_tenant"),
                    models.CheckConstraint(
                        condition=models.Q(("name__regex", "^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\\Z")),
                        name="secret_name_is_a_dns_label",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("kind", "value"), ("registry", "")),
                            models.Q(
                                ("kind", "registry"),
                                ("registry__regex", "^[a-zA-Z0-9]([a-zA-Z0-9.-]{0,251}[a-zA-Z0-9])?(:[0-9]{1,5})?\\Z"),
                            ),
                            _connector="OR",
                        ),
                        name="secret_names_a_registry_exactly_if_it_is_for_one",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("version__gte", 1)), name="secret_versions_begin_at_one"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("key_id", ""), _negated=True), name="secret_names_its_key"
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="AvoidedNode",
            fields=[
                (
                    "id",
                    models.UUIDField(default=foundation.ids.new_id, editable=False, primary_key=True, serialize=False),
                ),
                ("node", models.CharField(max_length=253)),
                (
                    "uid",
                    models.CharField(help_text="The node's: another node of its name is not avoided.", max_length=64),
                ),
                ("reason", models.CharField(max_length=500)),
                ("evidence", models.JSONField(default=dict, help_text="The numbers that the reason is based on.")),
                ("began_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ("until_at", models.DateTimeField()),
                ("ended_at", models.DateTimeField(null=True)),
                (
                    "ended_by",
                    models.CharField(
                        blank=True, help_text="Who ended it early; empty if its time did.", max_length=300
                    ),
                ),
                (
                    "cluster",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="avoided_nodes", to="clusters.cluster"
                    ),
                ),
            ],
            options={
                "indexes": [models.Index(fields=["cluster", "-id"], name="avoided_nodes_newest_first")],
                "constraints": [
                    models.UniqueConstraint(
                        condition=models.Q(("ended_at__isnull", True)),
                        fields=("cluster", "uid"),
                        name="a_node_is_avoided_once",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("until_at__gt", models.F("began_at"))), name="a_node_is_avoided_for_a_time"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("ended_at__isnull", True), ("ended_at__gte", models.F("began_at")), _connector="OR"
                        ),
                        name="avoidance_ends_after_it_began",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("ended_by", ""), ("ended_at__isnull", False), _connector="OR"),
                        name="only_what_has_ended_was_ended",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="MaintenanceWindow",
            fields=[
                (
                    "id",
                    models.UUIDField(default=foundation.ids.new_id, editable=False, primary_key=True, serialize=False),
                ),
                ("starts_at", models.DateTimeField()),
                ("ends_at", models.DateTimeField()),
                ("nodes", models.JSONField(blank=True, default=list, help_text="Names of the nodes that it concerns.")),
                (
                    "flavor",
                    models.CharField(
                        blank=True, help_text="It concerns the nodes that offer this flavor.", max_length=120
                    ),
                ),
                ("reason", models.CharField(max_length=300)),
                (
                    "drain",
                    models.BooleanField(default=False, help_text="Whether what still runs when it begins is stopped."),
                ),
                ("created_by", models.CharField(max_length=300)),
                ("created_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ("cancelled_at", models.DateTimeField(null=True)),
                ("cancelled_by", models.CharField(blank=True, max_length=300)),
                (
                    "cluster",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="windows", to="clusters.cluster"
                    ),
                ),
            ],
            options={
                "indexes": [models.Index(fields=["cluster", "ends_at"], name="windows_by_end")],
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(("ends_at__gt", models.F("starts_at"))), name="window_ends_after_it_starts"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("nodes", []), ("flavor", ""), _connector="OR"), name="window_has_one_scope"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("reason", ""), _negated=True), name="window_has_a_reason"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("created_by", ""), _negated=True), name="window_was_made_by_someone"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("cancelled_at__isnull", True), ("cancelled_by", "")),
                            models.Q(
                                models.Q(("cancelled_by", ""), _negated=True),
                                ("cancelled_at__isnull", False),
                                ("cancelled_at__lt", models.F("ends_at")),
                            ),
                            _connector="OR",
                        ),
                        name="window_is_cancelled_by_someone_before_its_end",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="ClusterImage",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("name", models.CharField(help_text="The normal name (`engine.images`).", max_length=600)),
                ("size_mib", models.PositiveIntegerField(help_text="As its nodes report it.")),
                ("nodes", models.PositiveIntegerField(help_text="The number of nodes that have it.")),
                (
                    "by_flavor",
                    models.JSONField(help_text="The number of nodes that have it, by the flavor that they offer."),
                ),
                ("changed_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                (
                    "cluster",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="+", to="clusters.cluster"
                    ),
                ),
                (
                    "on_nodes",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.CharField(max_length=253),
                        help_text="The nodes' names, for images that nodes should have.",
                        null=True,
                        size=None,
                    ),
                ),
            ],
            options={
                "indexes": [models.Index(fields=["name"], name="clusters_that_have_an_image")],
                "constraints": [
                    models.UniqueConstraint(fields=("cluster", "name"), name="image_is_counted_once_on_its_cluster"),
                    models.CheckConstraint(condition=models.Q(("name", ""), _negated=True), name="image_has_a_name"),
                    models.CheckConstraint(condition=models.Q(("nodes__gte", 1)), name="image_is_on_some_node"),
                    models.CheckConstraint(
                        condition=models.Q(("size_mib__lte", 1048576)), name="image_is_at_most_a_tebibyte"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("on_nodes", None), ("on_nodes__len", models.F("nodes")), _connector="OR"),
                        name="image_names_all_nodes_that_have_it",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="PullTimes",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("size_class", models.PositiveSmallIntegerField()),
                (
                    "recent_seconds",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.PositiveIntegerField(),
                        help_text="Durations of the newest pulls, newest first.",
                        size=None,
                    ),
                ),
                ("pulls", models.PositiveBigIntegerField(help_text="The total number of pulls.")),
                ("last_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                (
                    "cluster",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="+", to="clusters.cluster"
                    ),
                ),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(
                        fields=("cluster", "size_class"), name="pulls_are_kept_by_cluster_and_size"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("size_class__lte", 5)), name="pulls_are_of_a_known_size"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("recent_seconds__len__gte", 1), ("recent_seconds__len__lte", 15)),
                        name="pulls_kept_are_few",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("pulls__gte", models.F("recent_seconds__len"))),
                        name="pulls_count_what_is_kept",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="NodeOffer",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("node", models.CharField(max_length=253)),
                ("flavor", models.CharField(max_length=120)),
                (
                    "cluster",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="+", to="clusters.cluster"
                    ),
                ),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(fields=("cluster", "node", "flavor"), name="one_offer_a_node_and_flavor")
                ],
            },
        ),
        migrations.CreateModel(
            name="NodeSpan",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                (
                    "period",
                    django.contrib.postgres.fields.ranges.DateTimeRangeField(
                        help_text="Half-open, UTC, whole milliseconds of the database's clock."
                    ),
                ),
                ("uid", models.CharField(help_text="The node's: another node may have its name later.", max_length=64)),
                ("capacity_type", models.CharField(max_length=20)),
                ("gpu_model", models.CharField(blank=True, max_length=63)),
                ("sharing", models.CharField(max_length=40)),
                ("units", models.PositiveIntegerField(help_text="GPUs, MIG slices or shares; 0 of a CPU-only flavor.")),
                ("cpu_millicores", models.BigIntegerField()),
                ("memory_mib", models.BigIntegerField()),
                ("is_available", models.BooleanField(help_text="Whether it was ready and schedulable.")),
                (
                    "is_assumed",
                    models.BooleanField(
                        help_text="Whether its cluster did not answer meanwhile, or nothing was recorded yet."
                    ),
                ),
                (
                    "offer",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="spans",
                        to="clusters.nodeoffer",
                    ),
                ),
            ],
            options={
                "constraints": [
                    django.contrib.postgres.constraints.ExclusionConstraint(
                        expressions=[
                            (
                                models.Func(
                                    models.F("offer_id"),
                                    models.F("offer_id"),
                                    models.Value("[]"),
                                    function="int8range",
                                    output_field=django.contrib.postgres.fields.ranges.BigIntegerRangeField(),
                                ),
                                "&&",
                            ),
                            ("period", "&&"),
                        ],
                        name="spans_of_a_node_never_overlap",
                    ),
                    models.UniqueConstraint(
                        condition=models.Q(("period__upper_inf", True)),
                        fields=("offer",),
                        name="one_open_span_a_node_and_flavor",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("period__isempty", False),
                            ("period__lower_inc", True),
                            ("period__lower_inf", False),
                            ("period__upper_inc", False),
                        ),
                        name="span_is_half_open",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("cpu_millicores__gte", 0), ("memory_mib__gte", 0)),
                        name="span_is_not_negative",
                    ),
                ],
            },
        ),
        migrations.RunSQL(TABLES, migrations.RunSQL.noop),
        rules("clusters/clusters.sql"),
        rules("clusters/avoided_nodes.sql"),
        rules("clusters/maintenance.sql"),
        rules("clusters/history.sql"),
    ]
