"""Limits on the number of jobs, on what each user holds and on submission (`0004_people.sql`)."""

from pathlib import Path

import django.db.models.deletion
import django.db.models.functions.datetime
import django.db.models.lookups
from django.db import migrations, models

import foundation.ids

SQL = Path(__file__).with_name("0004_people.sql").read_text(encoding="utf-8")
UNDO = """
DROP TRIGGER quotas_users_take ON quotas_hold;
DROP TRIGGER quotas_users_give_back ON quotas_hold;
DROP TRIGGER quotas_guard_user_limit ON quotas_userlimit;
DROP TRIGGER quotas_count_users ON quotas_userlimit;
DROP TRIGGER quotas_guard_user_holding ON quotas_userholding;
DROP TRIGGER quotas_guard_submission_limit ON quotas_submissionlimit;
DROP FUNCTION quotas_users_take, quotas_users_give_back, quotas_guard_user_limit, quotas_count_users;
DROP FUNCTION quotas_guard_user_holding, quotas_guard_submission_limit, quotas_spend_submissions, quotas_tokens_left;
"""
WHOLE_AMOUNTS = (
    '$.keyvalue() ? (!(@.key like_regex "^(gpu|gpu:[A-Za-z0-9][A-Za-z0-9._-]*|cpu|memory|jobs)$") || @.value.type() != "number"'
    " || @.value < 0 || @.value > 1000000000000000 || @.value != @.value.floor())"
)
RESOURCES = "^(gpu|gpu:[A-Za-z0-9][A-Za-z0-9._-]*|cpu|memory|jobs)$"


class Migration(migrations.Migration):
    dependencies = [
        ("quotas", "0003_past_use"),
        ("tenancy", "0002_weight"),
    ]

    operations = [
        migrations.RemoveConstraint(model_name="quotalimit", name="quota_resource_is_known"),
        migrations.AddConstraint(
            model_name="quotalimit",
            constraint=models.CheckConstraint(
                condition=models.Q(("resource__regex", RESOURCES)), name="quota_resource_is_known"
            ),
        ),
        migrations.RemoveConstraint(model_name="hold", name="hold_amounts_are_whole"),
        migrations.AddConstraint(
            model_name="hold",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    django.db.models.lookups.Exact(
                        models.Func(models.F("amounts"), function="jsonb_typeof", output_field=models.TextField()),
                        "object",
                    ),
                    models.Q(
                        models.Func(
                            models.F("amounts"),
                            models.Value(WHOLE_AMOUNTS),
                            output_field=models.BooleanField(),
                            template="jsonb_path_exists(%(expressions)s::jsonpath)",
                        ),
                        _negated=True,
                    ),
                ),
                name="hold_amounts_are_whole",
            ),
        ),
        migrations.AddField(model_name="hold", name="user_id", field=models.UUIDField(null=True)),
        migrations.CreateModel(
            name="UserLimit",
            fields=[
                (
                    "id",
                    models.UUIDField(default=foundation.ids.new_id, editable=False, primary_key=True, serialize=False),
                ),
                ("resource", models.CharField(max_length=80)),
                ("most", models.BigIntegerField()),
                ("updated_at", models.DateTimeField(auto_now=True)),
                (
                    "tenant",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="user_limits", to="tenancy.tenant"
                    ),
                ),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(
                        fields=("tenant", "resource"), name="one_user_limit_per_tenant_and_resource"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("most__gte", 0), ("most__lte", 10**15)), name="user_limit_is_in_range"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("resource__regex", RESOURCES)), name="user_limit_resource_is_known"
                    ),
                ]
            },
        ),
        migrations.CreateModel(
            name="UserHolding",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("user_id", models.UUIDField()),
                ("held", models.BigIntegerField(default=0)),
                (
                    "limit",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        related_name="holdings",
                        to="quotas.userlimit",
                    ),
                ),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(fields=("limit", "user_id"), name="one_holding_per_limit_and_user"),
                    models.CheckConstraint(
                        condition=models.Q(("held__gte", 0)), name="user_holding_is_not_negative"
                    ),
                ]
            },
        ),
        migrations.CreateModel(
            name="SubmissionLimit",
            fields=[
                (
                    "id",
                    models.UUIDField(default=foundation.ids.new_id, editable=False, primary_key=True, serialize=False),
                ),
                ("most_waiting", models.PositiveIntegerField(null=True)),
                ("jobs_per_minute", models.PositiveIntegerField(null=True)),
                ("tokens", models.FloatField(default=0, editable=False)),
                (
                    "tokens_at",
                    models.DateTimeField(db_default=django.db.models.functions.datetime.Now(), editable=False),
                ),
                ("updated_at", models.DateTimeField(auto_now=True)),
                (
                    "tenant",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="submission_limit",
                        to="tenancy.tenant",
                    ),
                ),
            ],
            options={
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(
                            ("most_waiting__isnull", False), ("jobs_per_minute__isnull", False), _connector="OR"
                        ),
                        name="submission_limit_limits_something",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("jobs_per_minute__isnull", True),
                            models.Q(("jobs_per_minute__gte", 1), ("jobs_per_minute__lte", 1_000_000)),
                            _connector="OR",
                        ),
                        name="submission_rate_is_in_range",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("most_waiting__isnull", True), ("most_waiting__lte", 10_000_000), _connector="OR"
                        ),
                        name="submission_limit_of_waiting_jobs_is_in_range",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("tokens__gte", 0)), name="submission_tokens_are_not_negative"
                    ),
                ]
            },
        ),
        migrations.RunSQL(SQL, UNDO),
    ]
