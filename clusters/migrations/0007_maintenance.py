"""Maintenance windows of clusters; `0007_maintenance.sql` has what the table refuses."""

from pathlib import Path

import django.db.models.deletion
import django.db.models.functions.datetime
import foundation.ids
from django.db import migrations, models


UNDO = """
DROP TRIGGER windows_are_kept ON clusters_maintenancewindow;
DROP FUNCTION clusters_keep_windows();
DROP TRIGGER windows_are_history ON clusters_maintenancewindow;
DROP FUNCTION clusters_guard_window();
ALTER TABLE clusters_maintenancewindow
    DROP CONSTRAINT window_nodes_are_a_short_list_of_names,
    DROP CONSTRAINT window_lasts_at_most_90_days;
"""


class Migration(migrations.Migration):
    dependencies = [
        ("clusters", "0006_resources"),
    ]

    operations = [
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
                        condition=models.Q(("nodes", []), ("flavor", ""), _connector="OR"),
                        name="window_has_one_scope",
                    ),
                    models.CheckConstraint(condition=models.Q(("reason", ""), _negated=True), name="window_has_a_reason"),
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
        migrations.RunSQL(Path(__file__).with_name("0007_maintenance.sql").read_text(encoding="utf-8"), UNDO),
    ]
