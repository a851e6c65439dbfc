"""Priority classes as rows, and the three that jobs could name until now (`0009_priority_classes.sql`)."""

from pathlib import Path

import django.db.models.deletion
import django.db.models.functions.datetime
import foundation.ids
from django.db import migrations, models

SQL = Path(__file__).with_name("0009_priority_classes.sql").read_text(encoding="utf-8")
UNDO = """
DROP TRIGGER priority_class_stays_while_jobs_name_it ON federation_priorityclass;
DROP TRIGGER priority_class_keeps_its_name ON federation_priorityclass;
DROP TRIGGER a_priority_class_is_the_default ON federation_priorityclass;
DROP FUNCTION federation_keep_used_class, federation_keep_class_name, federation_need_default_class;
"""


class Migration(migrations.Migration):
    dependencies = [
        ("federation", "0008_maintenance"),
        ("tenancy", "0001_initial"),
    ]

    operations = [
        migrations.AlterField(
            model_name="job",
            name="priority",
            field=models.IntegerField(default=0, help_text="The value of its class when it was submitted."),
        ),
        migrations.CreateModel(
            name="PriorityClass",
            fields=[
                (
                    "id",
                    models.UUIDField(default=foundation.ids.new_id, editable=False, primary_key=True, serialize=False),
                ),
                ("name", models.CharField(max_length=63)),
                ("value", models.IntegerField(help_text="The larger number goes first.")),
                ("description", models.CharField(blank=True, default="", max_length=500)),
                (
                    "is_open",
                    models.BooleanField(default=False, help_text="Whether everyone who may submit a job may use it."),
                ),
                ("is_default", models.BooleanField(default=False)),
                ("changed_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
            ],
            options={
                "verbose_name_plural": "priority classes",
                "constraints": [
                    models.UniqueConstraint(fields=("name",), name="priority_class_name_is_unique"),
                    models.UniqueConstraint(
                        models.Value(1),
                        condition=models.Q(("is_default", True)),
                        name="one_priority_class_is_the_default",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("name__regex", "^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\\Z")),
                        name="priority_class_name_is_a_dns_label",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("value__gte", -1000000), ("value__lte", 1000000)),
                        name="priority_class_value_is_in_range",
                    ),
                ],
            },
        ),
        migrations.AddField(
            model_name="job",
            name="priority_class",
            field=models.ForeignKey(
                db_index=False,
                help_text="Empty for jobs that were submitted before classes had rows; the spec names it.",
                null=True,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="jobs",
                to="federation.priorityclass",
            ),
        ),
        migrations.AddField(
            model_name="placementpolicy",
            name="default_priority_class",
            field=models.ForeignKey(
                blank=True,
                null=True,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="default_of",
                to="federation.priorityclass",
            ),
        ),
        migrations.CreateModel(
            name="PriorityClassGrant",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                (
                    "role",
                    models.CharField(
                        blank=True, default="", help_text="Empty: any role that may submit jobs.", max_length=20
                    ),
                ),
                (
                    "priority_class",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="grants",
                        to="federation.priorityclass",
                    ),
                ),
                (
                    "tenant",
                    models.ForeignKey(
                        help_text="Empty: every tenant.",
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="priority_class_grants",
                        to="tenancy.tenant",
                    ),
                ),
            ],
            options={
                "verbose_name_plural": "grants of priority classes",
                "constraints": [
                    models.UniqueConstraint(
                        fields=("priority_class", "role", "tenant"),
                        name="a_priority_class_is_granted_once",
                        nulls_distinct=False,
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("role__in", ["", "viewer", "submitter", "manager", "finance", "admin"])),
                        name="granted_role_is_known",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("role", ""), _negated=True), ("tenant__isnull", False), _connector="OR"
                        ),
                        name="grant_names_a_role_or_a_tenant",
                    ),
                ],
            },
        ),
        migrations.RunSQL(SQL, UNDO),
    ]
