"""Times in which nothing is placed or dispatched, and what the comparison of each cluster has left to people."""

import django.db.models.deletion
from django.db import migrations, models
from django.db.models import Q
from django.db.models.functions import Now


class Migration(migrations.Migration):
    dependencies = [("federation", "0020_interruptions"), ("clusters", "0007_datasets")]
    operations = [
        migrations.CreateModel(
            "Standstill",
            [
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("began_at", models.DateTimeField(db_default=Now())),
                ("reason", models.TextField()),
                ("ended_at", models.DateTimeField(null=True)),
                (
                    "ended_by",
                    models.TextField(blank=True, help_text="Who opened dispatch again, and how they know that they may."),
                ),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(
                        models.Value(1), condition=Q(ended_at__isnull=True), name="one_standstill_at_a_time"
                    ),
                    models.CheckConstraint(
                        condition=Q(ended_at__isnull=True, ended_by="")
                        | (Q(ended_at__isnull=False) & ~Q(ended_by="")),
                        name="a_standstill_is_ended_by_somebody",
                    ),
                ]
            },
        ),
        migrations.CreateModel(
            "ComparedCluster",
            [
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("compared_at", models.DateTimeField(db_default=Now())),
                (
                    "strangers",
                    models.PositiveIntegerField(
                        help_text="Objects of ours that may run and belong to no attempt we know."
                    ),
                ),
                (
                    "cluster",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="+", to="clusters.cluster"
                    ),
                ),
                (
                    "standstill",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="compared",
                        to="federation.standstill",
                    ),
                ),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(
                        fields=["standstill", "cluster"], name="a_cluster_is_compared_once_in_a_standstill"
                    )
                ]
            },
        ),
    ]
