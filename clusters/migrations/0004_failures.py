"""Nodes that jobs avoid for a while; `0004_failures.sql` has what the table refuses."""

from pathlib import Path

import django.db.models.deletion
import django.db.models.functions.datetime
import foundation.ids
from django.db import migrations, models


UNDO = """
DROP TRIGGER avoided_nodes_are_history ON clusters_avoidednode;
DROP FUNCTION clusters_keep_avoided();
"""


class Migration(migrations.Migration):
    dependencies = [
        ("clusters", "0003_secrets"),
    ]

    operations = [
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
        migrations.RunSQL(Path(__file__).with_name("0004_failures.sql").read_text(encoding="utf-8"), UNDO),
    ]
