"""Diagnoses on failures, tenants' failure rules and the brake on retries; `0004_failures.sql` has what the tables refuse."""

from pathlib import Path

import django.db.models.deletion
import django.db.models.functions.datetime
from django.db import migrations, models


UNDO = """
DROP TRIGGER a_diagnosis_stands ON federation_diagnosis;
DROP FUNCTION federation_keep_diagnosis();
DROP TRIGGER brakes_are_history ON federation_retrybrake;
DROP FUNCTION federation_keep_brake();
ALTER TABLE federation_tenantfailurerules DROP CONSTRAINT tenants_failure_rules_are_a_short_list;
"""


class Migration(migrations.Migration):
    dependencies = [
        ("clusters", "0004_failures"),
        ("federation", "0003_secrets"),
        ("tenancy", "0001_initial"),
    ]

    operations = [
        migrations.CreateModel(
            name="TenantFailureRules",
            fields=[
                (
                    "tenant",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.PROTECT,
                        primary_key=True,
                        related_name="failure_rules",
                        serialize=False,
                        to="tenancy.tenant",
                    ),
                ),
                ("rules", models.JSONField()),
                ("changed_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
            ],
            options={
                "verbose_name_plural": "tenant failure rules",
            },
        ),
        migrations.AddField(
            model_name="job",
            name="retry_at",
            field=models.DateTimeField(help_text="While it is queued: its next attempt starts no sooner.", null=True),
        ),
        migrations.AddField(
            model_name="podrun",
            name="ending",
            field=models.CharField(
                blank=True, db_default="", default="", help_text="Why its container ended: `OOMKilled`.", max_length=60
            ),
        ),
        migrations.AddField(
            model_name="podrun",
            name="message",
            field=models.CharField(
                blank=True,
                db_default="",
                default="",
                help_text="What the cluster or the program said of its end.",
                max_length=300,
            ),
        ),
        migrations.AddField(
            model_name="podrun",
            name="signal",
            field=models.PositiveSmallIntegerField(
                help_text="The signal that ended its program, if reported.", null=True
            ),
        ),
        migrations.CreateModel(
            name="Diagnosis",
            fields=[
                (
                    "attempt",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE,
                        primary_key=True,
                        related_name="diagnosis",
                        serialize=False,
                        to="federation.attempt",
                    ),
                ),
                ("failure_class", models.CharField(blank=True, max_length=20)),
                (
                    "own_class",
                    models.CharField(
                        blank=True,
                        help_text="The class by the gateway's own rules: the only one that counts for others.",
                        max_length=20,
                    ),
                ),
                ("text", models.CharField(blank=True, max_length=500)),
                (
                    "rule",
                    models.CharField(
                        blank=True, help_text="The owner of the rule that decided, and its name.", max_length=1200
                    ),
                ),
                ("step", models.CharField(blank=True, max_length=20)),
                ("next_step", models.CharField(blank=True, help_text="The next step, for people.", max_length=500)),
                (
                    "retry",
                    models.PositiveIntegerField(
                        default=0, help_text="The number of retries by this rule, with the next one."
                    ),
                ),
                ("most", models.PositiveIntegerField(default=0, help_text="The most retries by this rule.")),
                ("wait_seconds", models.PositiveIntegerField(default=0, help_text="The wait before the retry.")),
                (
                    "avoid",
                    models.CharField(
                        blank=True, help_text="`node` or `cluster`: what the retry avoids.", max_length=10
                    ),
                ),
                ("avoid_until", models.DateTimeField(null=True)),
                (
                    "node",
                    models.CharField(
                        blank=True, help_text="The node of the pod that the rule matched.", max_length=253
                    ),
                ),
                (
                    "memory",
                    models.JSONField(
                        default=dict, help_text="{pod set: bytes}, the memory of the next attempt if it grows."
                    ),
                ),
                ("asked_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ("judged_at", models.DateTimeField(null=True)),
            ],
            options={
                "indexes": [
                    models.Index(
                        condition=models.Q(("judged_at__isnull", True)), fields=["asked_at"], name="failures_to_examine"
                    ),
                    models.Index(
                        condition=models.Q(("avoid", ""), _negated=True),
                        fields=["avoid_until"],
                        name="diagnoses_that_avoid",
                    ),
                ],
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(
                                ("failure_class", ""), ("judged_at__isnull", True), ("own_class", ""), ("step", "")
                            ),
                            models.Q(
                                (
                                    "failure_class__in",
                                    [
                                        "program",
                                        "out_of_memory",
                                        "node",
                                        "device",
                                        "network",
                                        "image",
                                        "storage",
                                        "preempted",
                                        "infrastructure",
                                        "deadline",
                                        "unknown",
                                    ],
                                ),
                                ("judged_at__isnull", False),
                                (
                                    "own_class__in",
                                    [
                                        "program",
                                        "out_of_memory",
                                        "node",
                                        "device",
                                        "network",
                                        "image",
                                        "storage",
                                        "preempted",
                                        "infrastructure",
                                        "deadline",
                                        "unknown",
                                    ],
                                ),
                                ("step__in", ["stop", "again", "again_elsewhere", "more_memory"]),
                            ),
                            _connector="OR",
                        ),
                        name="a_diagnosis_is_judged_as_a_whole",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("step__in", ["", "stop"]),
                            models.Q(("retry__gte", 1), ("retry__lte", models.F("most"))),
                            _connector="OR",
                        ),
                        name="a_retry_is_within_its_rule",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("wait_seconds__lte", 86400)), name="a_retry_waits_for_a_bounded_time"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("avoid", ""), ("avoid_until__isnull", True)),
                            models.Q(
                                ("avoid__in", ["node", "cluster"]),
                                ("avoid_until__isnull", False),
                                ("step", "again_elsewhere"),
                            ),
                            _connector="OR",
                        ),
                        name="what_a_retry_avoids_is_known",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("memory", {}), ("step", "more_memory"), _connector="OR"),
                        name="memory_grows_by_its_step",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="RetryBrake",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("began_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ("ended_at", models.DateTimeField(null=True)),
                (
                    "failures",
                    models.PositiveIntegerField(help_text="How many of the latest attempts failed so, when it began."),
                ),
                ("attempts", models.PositiveIntegerField(help_text="The number of the latest attempts that counted.")),
                (
                    "cluster",
                    models.ForeignKey(
                        null=True, on_delete=django.db.models.deletion.CASCADE, related_name="+", to="clusters.cluster"
                    ),
                ),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(
                        condition=models.Q(("ended_at__isnull", True)),
                        fields=("cluster",),
                        name="a_brake_is_pulled_once",
                        nulls_distinct=False,
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("ended_at__isnull", True), ("ended_at__gte", models.F("began_at")), _connector="OR"
                        ),
                        name="a_brake_ends_after_it_began",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("failures__gte", 1), ("failures__lte", models.F("attempts"))),
                        name="a_brake_names_its_failures",
                    ),
                ],
            },
        ),
        migrations.RunSQL(Path(__file__).with_name("0004_failures.sql").read_text(encoding="utf-8"), UNDO),
    ]
