"""Limits, holds and their journal; `0001_rules.sql` has what the tables themselves refuse."""

from pathlib import Path

import django.contrib.postgres.fields
import django.db.models.deletion
import django.db.models.functions.comparison
import django.db.models.functions.datetime
import django.db.models.lookups
from django.db import migrations, models

import foundation.ids


class Migration(migrations.Migration):
    initial = True

    dependencies = [
        ("tenancy", "0001_initial"),
    ]

    operations = [
        migrations.CreateModel(
            name="Hold",
            fields=[
                ("holder_id", models.UUIDField(primary_key=True, serialize=False)),
                ("cluster_name", models.CharField(max_length=63)),
                ("amounts", models.JSONField()),
                (
                    "state",
                    models.CharField(
                        choices=[("pending", "Pending"), ("posted", "Posted"), ("voided", "Voided")],
                        default="pending",
                        max_length=10,
                    ),
                ),
                ("created_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ("ended_at", models.DateTimeField(null=True)),
                (
                    "tenant",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="holds", to="tenancy.tenant"
                    ),
                ),
            ],
            options={
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("ended_at__isnull", True), ("state", "pending")),
                            models.Q(("ended_at__isnull", False), ("state__in", ["posted", "voided"])),
                            _connector="OR",
                        ),
                        name="hold_ends_with_a_time",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("ended_at__gte", models.F("created_at"))), name="hold_ends_after_it_began"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            django.db.models.lookups.Exact(
                                models.Func(
                                    models.F("amounts"), function="jsonb_typeof", output_field=models.TextField()
                                ),
                                "object",
                            ),
                            models.Q(
                                models.Func(
                                    models.F("amounts"),
                                    models.Value(
                                        '$.keyvalue() ? (!(@.key like_regex "^(gpu|gpu:[A-Za-z0-9][A-Za-z0-9._-]*|cpu|memory)$") || @.value.type() != "number" || @.value < 0 || @.value > 1000000000000000 || @.value != @.value.floor())'
                                    ),
                                    output_field=models.BooleanField(),
                                    template="jsonb_path_exists(%(expressions)s::jsonpath)",
                                ),
                                _negated=True,
                            ),
                        ),
                        name="hold_amounts_are_whole",
                    ),
                ],
                "indexes": [
                    models.Index(
                        condition=models.Q(("state", "pending")), fields=["tenant"], name="pending_holds_by_tenant"
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="QuotaLimit",
            fields=[
                (
                    "id",
                    models.UUIDField(default=foundation.ids.new_id, editable=False, primary_key=True, serialize=False),
                ),
                ("resource", models.CharField(max_length=80)),
                (
                    "clusters",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.CharField(max_length=63),
                        blank=True,
                        default=list,
                        help_text="Cluster names; empty means the whole fleet.",
                        size=None,
                    ),
                ),
                ("nominal", models.BigIntegerField()),
                ("cap", models.BigIntegerField(editable=False)),
                ("held", models.BigIntegerField(default=0, editable=False)),
                ("removed_at", models.DateTimeField(editable=False, null=True)),
                ("updated_at", models.DateTimeField(auto_now=True)),
                (
                    "tenant",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="quota_limits", to="tenancy.tenant"
                    ),
                ),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(
                        condition=models.Q(("removed_at__isnull", True)),
                        fields=("tenant", "resource", "clusters"),
                        name="one_limit_per_tenant_resource_and_scope",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("nominal__gte", 0), ("nominal__lte", 1000000000000000)),
                        name="quota_nominal_is_in_range",
                    ),
                    models.CheckConstraint(condition=models.Q(("held__gte", 0)), name="quota_held_is_not_negative"),
                    models.CheckConstraint(
                        condition=models.Q(("held__lte", models.F("cap"))), name="quota_is_never_exceeded"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            (
                                "cap",
                                django.db.models.functions.comparison.Greatest(models.F("nominal"), models.F("held")),
                            )
                        ),
                        name="quota_surplus_cap_is_what_is_held",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("resource__regex", "^(gpu|gpu:[A-Za-z0-9][A-Za-z0-9._-]*|cpu|memory)$")),
                        name="quota_resource_is_known",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="HoldMovement",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("kind", models.CharField(choices=[("take", "Take"), ("end", "End")], max_length=4)),
                ("amount", models.BigIntegerField()),
                ("at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                (
                    "hold",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="movements",
                        to="quotas.hold",
                    ),
                ),
                (
                    "limit",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="movements", to="quotas.quotalimit"
                    ),
                ),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(
                        fields=("hold", "limit", "kind"), name="each_hold_is_taken_and_ended_once_per_limit"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("amount__gt", 0), ("kind", "take")),
                            models.Q(("amount__lt", 0), ("kind", "end")),
                            _connector="OR",
                        ),
                        name="takes_add_and_ends_subtract",
                    ),
                ],
            },
        ),
        migrations.RunSQL(
            Path(__file__).with_name("0001_rules.sql").read_text(encoding="utf-8"),
            "DROP TRIGGER quotas_keep_tenant_in_place ON tenancy_tenant",
        ),
    ]
