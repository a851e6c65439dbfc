"""Copies of datasets to storages of clusters, and the jobs that wait for them (`0029_staging.sql`)."""

from pathlib import Path

import django.contrib.postgres.fields
import django.db.models.deletion
import django.db.models.functions.datetime
from django.db import migrations, models

import foundation.ids

SQL = Path(__file__).with_name("0029_staging.sql").read_text(encoding="utf-8")
UNDO = """
ALTER TABLE federation_stagein DROP CONSTRAINT stage_in_is_on_the_cluster_of_its_plan;
"""


class Migration(migrations.Migration):
    dependencies = [
        ("clusters", "0011_staging"),
        ("federation", "0028_consolidation"),
    ]

    operations = [
        migrations.CreateModel(
            name="DataWait",
            fields=[
                (
                    "id",
                    models.UUIDField(default=foundation.ids.new_id, editable=False, primary_key=True, serialize=False),
                ),
                ("plans", django.contrib.postgres.fields.ArrayField(base_field=models.UUIDField(), size=16)),
                ("made_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ("until_at", models.DateTimeField(help_text="Then the job is placed without waiting.")),
                ("ended_at", models.DateTimeField(null=True)),
                (
                    "outcome",
                    models.CharField(
                        blank=True,
                        choices=[
                            ("ready", "Ready"),
                            ("late", "Late"),
                            ("failed", "Failed"),
                            ("skipped", "Skipped"),
                            ("closed", "Closed"),
                            ("over", "Over"),
                        ],
                        max_length=10,
                    ),
                ),
                (
                    "cluster",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="+", to="clusters.cluster"
                    ),
                ),
                (
                    "job",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="data_waits",
                        to="federation.job",
                    ),
                ),
            ],
            options={
                "indexes": [
                    models.Index(fields=["job"], name="data_waits_of_job"),
                    models.Index(
                        condition=models.Q(("ended_at", None)), fields=["until_at"], name="data_waits_under_way"
                    ),
                ],
                "constraints": [
                    models.UniqueConstraint(
                        condition=models.Q(("ended_at", None)), fields=("job",), name="a_job_waits_for_data_once"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("ended_at", None), ("outcome", "")),
                            models.Q(("ended_at__isnull", False), models.Q(("outcome", ""), _negated=True)),
                            _connector="OR",
                        ),
                        name="ended_data_wait_has_an_outcome",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("outcome__in", ["", "ready", "late", "failed", "skipped", "closed", "over"])
                        ),
                        name="data_wait_outcome_is_known",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("plans__len__gte", 1), ("plans__len__lte", 16)),
                        name="data_wait_names_plans",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="StageIn",
            fields=[
                (
                    "phase",
                    models.CharField(
                        choices=[
                            ("idle", "Idle"),
                            ("planned", "Planned"),
                            ("created", "Created"),
                            ("released", "Released"),
                            ("ending", "Ending"),
                        ],
                        default="idle",
                        max_length=10,
                    ),
                ),
                ("slot", models.PositiveSmallIntegerField(null=True)),
                (
                    "object_id",
                    models.UUIDField(help_text="The name of its object comes from this id.", null=True, unique=True),
                ),
                ("namespace", models.CharField(blank=True, max_length=63)),
                ("uid", models.CharField(blank=True, max_length=64)),
                ("begun_at", models.DateTimeField(null=True)),
                ("released_at", models.DateTimeField(null=True)),
                ("outcome", models.CharField(blank=True, max_length=10)),
                ("message", models.CharField(blank=True, max_length=300)),
                ("failures", models.PositiveSmallIntegerField(default=0, help_text="In a row.")),
                ("ended_at", models.DateTimeField(null=True)),
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("is_wanted", models.BooleanField(default=True, help_text="Whether it copies as soon as it can.")),
                (
                    "image",
                    models.CharField(blank=True, help_text="The copy image of the Job under way.", max_length=512),
                ),
                (
                    "mounts",
                    models.JSONField(blank=True, default=list, help_text="The promised source and target of that Job."),
                ),
                ("copied_bytes", models.BigIntegerField(null=True)),
                ("total_bytes", models.BigIntegerField(null=True)),
                ("changed_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                (
                    "cluster",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="+", to="clusters.cluster"
                    ),
                ),
                (
                    "plan",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE, related_name="stage_in", to="clusters.stagingplan"
                    ),
                ),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(
                        condition=models.Q(("slot__isnull", False)),
                        fields=("cluster", "slot"),
                        name="a_slot_has_one_stage_in",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("slot", None), models.Q(("slot__gte", 0), ("slot__lt", 4)), _connector="OR"
                        ),
                        name="stage_in_slot_exists",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("object_id", None), ("phase", "idle"), ("slot", None), ("uid", "")),
                            models.Q(
                                ("begun_at__isnull", False),
                                ("object_id__isnull", False),
                                ("phase__in", ["planned", "created", "released", "ending"]),
                                ("slot__isnull", False),
                            ),
                            _connector="OR",
                        ),
                        name="live_stage_in_has_a_slot_and_an_object",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("phase__in", ["created", "released"]), _negated=True),
                            models.Q(("uid", ""), _negated=True),
                            _connector="OR",
                        ),
                        name="created_stage_in_has_a_uid",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("phase", "released"), _negated=True),
                            ("released_at__isnull", False),
                            _connector="OR",
                        ),
                        name="released_stage_in_has_its_time",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("outcome__in", ["", "staged", "failed", "cancelled"])),
                        name="stage_in_outcome_is_known",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("ended_at", None), ("outcome", "")),
                            models.Q(models.Q(("outcome", ""), _negated=True), ("ended_at__isnull", False)),
                            _connector="OR",
                        ),
                        name="ended_stage_in_has_its_time",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("outcome", "staged"), _negated=True),
                            models.Q(("failures", 0), ("is_wanted", False)),
                            _connector="OR",
                        ),
                        name="staged_stage_in_is_done",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("copied_bytes", None), ("copied_bytes__gte", 0), _connector="OR"),
                        name="stage_in_copies_no_negative_amount",
                    ),
                ],
            },
        ),
        migrations.RunSQL(SQL, UNDO),
    ]
