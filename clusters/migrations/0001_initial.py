"""Clusters with their inventory; `0001_rules.sql` has what the tables themselves refuse."""

from pathlib import Path

import django.db.models.deletion
import django.db.models.functions.datetime
import django.db.models.functions.text
import django.db.models.manager
from django.db import migrations, models

import foundation.ids


class Migration(migrations.Migration):
    initial = True

    dependencies = [
        ("tenancy", "0001_initial"),
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
                "indexes": [
                    models.Index(fields=["cluster", "-id"], name="cluster_events_newest_first"),
                ],
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
                (
                    "unplaceable",
                    models.CharField(blank=True, help_text="Why no job can start on it.", max_length=300),
                ),
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
        migrations.RunSQL(
            Path(__file__).with_name("0001_rules.sql").read_text(encoding="utf-8"), migrations.RunSQL.noop
        ),
    ]
