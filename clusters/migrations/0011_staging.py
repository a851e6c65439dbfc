"""How datasets come to storages of clusters, and the replicas that are there (`0011_staging.sql`)."""

from pathlib import Path

import django.db.models.deletion
import django.db.models.functions.datetime
from django.db import migrations, models

import foundation.ids

SQL = Path(__file__).with_name("0011_staging.sql").read_text(encoding="utf-8")
UNDO = """
ALTER TABLE clusters_datasetreplica DROP CONSTRAINT replica_is_what_its_plan_says;
ALTER TABLE clusters_stagingplan DROP CONSTRAINT staging_plan_has_one_target;
ALTER TABLE clusters_stagingplan DROP CONSTRAINT staged_target_is_on_the_cluster;
ALTER TABLE clusters_stagingplan DROP CONSTRAINT staged_source_is_on_the_cluster;
ALTER TABLE clusters_storage DROP CONSTRAINT storage_has_one_cluster;
"""


class Migration(migrations.Migration):
    dependencies = [
        ("clusters", "0001_squashed_0010_nodes_of_images"),
    ]

    operations = [
        migrations.CreateModel(
            name="StagingPlan",
            fields=[
                (
                    "id",
                    models.UUIDField(default=foundation.ids.new_id, editable=False, primary_key=True, serialize=False),
                ),
                ("source_path", models.CharField(max_length=512)),
                ("target_path", models.CharField(max_length=512)),
                (
                    "sha256",
                    models.CharField(blank=True, help_text="What the copy must have; empty: anything.", max_length=64),
                ),
                ("created_by", models.CharField(max_length=300)),
                ("created_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                (
                    "cluster",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="staging_plans", to="clusters.cluster"
                    ),
                ),
                (
                    "dataset",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="staging_plans",
                        to="clusters.dataset",
                    ),
                ),
                (
                    "source",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="+", to="clusters.storage"
                    ),
                ),
                (
                    "target",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="+", to="clusters.storage"
                    ),
                ),
            ],
        ),
        migrations.CreateModel(
            name="DatasetReplica",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("path", models.CharField(max_length=512)),
                (
                    "size_bytes",
                    models.BigIntegerField(help_text="As its copy reported; null: it reported nothing.", null=True),
                ),
                ("sha256", models.CharField(blank=True, max_length=64)),
                ("staged_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ("egress_cost", models.DecimalField(decimal_places=6, max_digits=24, null=True)),
                ("egress_currency", models.CharField(blank=True, max_length=3)),
                (
                    "cluster",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="+", to="clusters.cluster"
                    ),
                ),
                (
                    "dataset",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="replicas",
                        to="clusters.dataset",
                    ),
                ),
                (
                    "storage",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="+", to="clusters.storage"
                    ),
                ),
                (
                    "plan",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE, related_name="replica", to="clusters.stagingplan"
                    ),
                ),
            ],
        ),
        migrations.AddConstraint(
            model_name="stagingplan",
            constraint=models.UniqueConstraint(
                fields=("dataset", "cluster"), name="a_dataset_comes_to_a_cluster_one_way"
            ),
        ),
        migrations.AddConstraint(
            model_name="stagingplan",
            constraint=models.UniqueConstraint(fields=("id", "cluster"), name="staging_plan_has_one_cluster"),
        ),
        migrations.AddConstraint(
            model_name="stagingplan",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    ("source_path__regex", "^[A-Za-z0-9._=+@,~/-]+\\Z"),
                    models.Q(("source_path__regex", "(^|/)\\.{0,2}(/|$)"), _negated=True),
                ),
                name="staged_source_is_a_plain_path",
            ),
        ),
        migrations.AddConstraint(
            model_name="stagingplan",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    ("target_path__regex", "^[A-Za-z0-9._=+@,~/-]+\\Z"),
                    models.Q(("target_path__regex", "(^|/)\\.{0,2}(/|$)"), _negated=True),
                ),
                name="staged_target_is_a_plain_path",
            ),
        ),
        migrations.AddConstraint(
            model_name="stagingplan",
            constraint=models.CheckConstraint(
                condition=models.Q(("sha256", ""), ("sha256__regex", "^[0-9a-f]{64}\\Z"), _connector="OR"),
                name="staged_sha256_is_a_digest",
            ),
        ),
        migrations.AddConstraint(
            model_name="stagingplan",
            constraint=models.CheckConstraint(
                condition=models.Q(("created_by", ""), _negated=True), name="staging_plan_was_made_by_someone"
            ),
        ),
        migrations.AddConstraint(
            model_name="datasetreplica",
            constraint=models.UniqueConstraint(fields=("dataset", "cluster"), name="a_cluster_has_a_dataset_once"),
        ),
        migrations.AddConstraint(
            model_name="datasetreplica",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    ("path__regex", "^[A-Za-z0-9._=+@,~/-]+\\Z"),
                    models.Q(("path__regex", "(^|/)\\.{0,2}(/|$)"), _negated=True),
                ),
                name="replica_path_is_plain",
            ),
        ),
        migrations.AddConstraint(
            model_name="datasetreplica",
            constraint=models.CheckConstraint(
                condition=models.Q(("sha256", ""), ("sha256__regex", "^[0-9a-f]{64}\\Z"), _connector="OR"),
                name="replica_sha256_is_a_digest",
            ),
        ),
        migrations.AddConstraint(
            model_name="datasetreplica",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    ("size_bytes", None),
                    models.Q(("size_bytes__gte", 1), ("size_bytes__lte", 1152921504606846976)),
                    _connector="OR",
                ),
                name="replica_size_is_within_bounds",
            ),
        ),
        migrations.AddConstraint(
            model_name="datasetreplica",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("egress_cost", None), ("egress_currency", "")),
                    models.Q(models.Q(("egress_currency", ""), _negated=True), ("egress_cost__gte", 0)),
                    _connector="OR",
                ),
                name="replica_egress_has_a_currency",
            ),
        ),
        migrations.RunSQL(SQL, UNDO),
    ]
