"""Limits, holds and their journal, past use and reserved quota.

`0001_tables.sql` has what Django cannot say of the tables, `quotas/sql/` their rules.
"""

from pathlib import Path

import django.contrib.postgres.fields
import django.db.models.deletion
import django.db.models.expressions
import django.db.models.functions.comparison
import django.db.models.functions.datetime
import django.db.models.lookups
from django.db import migrations, models

import foundation.ids
from foundation.rules import rules

TABLES = Path(__file__).with_name("0001_tables.sql").read_text(encoding="utf-8")


class Migration(migrations.Migration):
    replaces = [
        ("quotas", "0001_initial"),
        ("quotas", "0002_borrowing"),
        ("quotas", "0003_past_use"),
        ("quotas", "0004_people"),
        ("quotas", "0005_reclaim"),
        ("quotas", "0006_surplus"),
        ("quotas", "0007_reserved"),
        ("quotas", "0008_kept_idle"),
    ]

    initial = True

    dependencies = [
        ("tenancy", "0001_squashed_0002_weight"),
    ]

    operations = [
        migrations.CreateModel(
            name="ReservedQuota",
            fields=[
                (
                    "id",
                    models.UUIDField(default=foundation.ids.new_id, editable=False, primary_key=True, serialize=False),
                ),
                ("cluster_name", models.CharField(max_length=63)),
                ("amounts", models.JSONField()),
                ("starts_at", models.DateTimeField()),
                ("until_at", models.DateTimeField()),
                ("created_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                (
                    "tenant",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="reserved_quota", to="tenancy.tenant"
                    ),
                ),
            ],
            options={
                "verbose_name_plural": "reserved quota",
                "indexes": [models.Index(fields=["until_at"], name="reserved_quota_by_end")],
                "constraints": [
                    models.UniqueConstraint(
                        fields=("id", "starts_at", "until_at"), name="reserved_quota_times_are_referenced"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("until_at__gte", models.F("starts_at"))),
                        name="reserved_quota_ends_after_it_starts",
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
                                        '$.keyvalue() ? (!(@.key like_regex "^(gpu|gpu:[A-Za-z0-9][A-Za-z0-9._-]*|cpu|memory|jobs)$") || @.value.type() != "number" || @.value < 0 || @.value > 1000000000000000 || @.value != @.value.floor())'
                                    ),
                                    output_field=models.BooleanField(),
                                    template="jsonb_path_exists(%(expressions)s::jsonpath)",
                                ),
                                _negated=True,
                            ),
                        ),
                        name="reserved_quota_amounts_are_whole",
                    ),
                ],
            },
        ),
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
                ("user_id", models.UUIDField(null=True)),
                (
                    "within",
                    models.ForeignKey(
                        db_index=False,
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="holds",
                        to="quotas.reservedquota",
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
                                        '$.keyvalue() ? (!(@.key like_regex "^(gpu|gpu:[A-Za-z0-9][A-Za-z0-9._-]*|cpu|memory|jobs)$") || @.value.type() != "number" || @.value < 0 || @.value > 1000000000000000 || @.value != @.value.floor())'
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
                    models.Index(
                        condition=models.Q(("within__isnull", False)),
                        fields=["within"],
                        name="holds_within_reserved_quota",
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
                ("borrowing_limit", models.BigIntegerField(db_default=0, default=0, null=True)),
                ("lending_limit", models.BigIntegerField(null=True)),
                (
                    "parent",
                    models.ForeignKey(
                        editable=False,
                        null=True,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        related_name="children",
                        to="quotas.quotalimit",
                    ),
                ),
                (
                    "claim",
                    models.GeneratedField(
                        db_persist=True,
                        expression=models.Case(
                            models.When(
                                removed_at__isnull=True,
                                then=django.db.models.functions.comparison.Greatest(
                                    models.F("held"),
                                    django.db.models.expressions.CombinedExpression(
                                        models.F("nominal"), "-", models.F("lending_limit")
                                    ),
                                ),
                            ),
                            default=models.F("held"),
                        ),
                        output_field=models.BigIntegerField(),
                    ),
                ),
                (
                    "reclaims",
                    models.BooleanField(
                        db_default=False,
                        default=False,
                        help_text="Whether jobs within nominal stop jobs that borrow what it lent.",
                    ),
                ),
                (
                    "reclaim_after",
                    models.PositiveIntegerField(
                        help_text="Seconds after which what is held beyond the limit is taken back. Null: never.",
                        null=True,
                    ),
                ),
                ("reclaim_at", models.DateTimeField(editable=False, null=True)),
                ("lowered_by", models.CharField(db_default="", default="", editable=False, max_length=254)),
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
                                django.db.models.functions.comparison.Greatest(
                                    django.db.models.expressions.CombinedExpression(
                                        models.F("nominal"),
                                        "+",
                                        models.Case(
                                            models.When(parent__isnull=True, then=models.Value(0)),
                                            default=django.db.models.functions.comparison.Coalesce(
                                                models.F("borrowing_limit"), models.Value(1000000000000000)
                                            ),
                                            output_field=models.BigIntegerField(),
                                        ),
                                    ),
                                    models.F("held"),
                                ),
                            )
                        ),
                        name="quota_surplus_cap_is_what_is_held",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("borrowing_limit__isnull", True),
                            models.Q(("borrowing_limit__gte", 0), ("borrowing_limit__lte", 1000000000000000)),
                            _connector="OR",
                        ),
                        name="quota_borrowing_limit_is_in_range",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("lending_limit__isnull", True),
                            models.Q(("lending_limit__gte", 0), ("lending_limit__lte", 1000000000000000)),
                            _connector="OR",
                        ),
                        name="quota_lending_limit_is_in_range",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("resource__regex", "^(gpu|gpu:[A-Za-z0-9][A-Za-z0-9._-]*|cpu|memory|jobs)$")
                        ),
                        name="quota_resource_is_known",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("reclaim_after__isnull", True), ("reclaim_after__lte", 2592000), _connector="OR"
                        ),
                        name="quota_reclaim_delay_is_in_range",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("reclaim_at__isnull", True),
                            models.Q(
                                (
                                    "held__gt",
                                    django.db.models.expressions.CombinedExpression(
                                        models.F("nominal"),
                                        "+",
                                        models.Case(
                                            models.When(parent__isnull=True, then=models.Value(0)),
                                            default=django.db.models.functions.comparison.Coalesce(
                                                models.F("borrowing_limit"), models.Value(1000000000000000)
                                            ),
                                            output_field=models.BigIntegerField(),
                                        ),
                                    ),
                                ),
                                ("reclaim_after__isnull", False),
                                ("removed_at__isnull", True),
                            ),
                            _connector="OR",
                        ),
                        name="quota_is_taken_back_only_beyond_a_limit",
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
        migrations.CreateModel(
            name="PastHalfLife",
            fields=[
                ("id", models.PositiveSmallIntegerField(default=1, primary_key=True, serialize=False)),
                ("half_life_seconds", models.PositiveIntegerField()),
            ],
            options={
                "verbose_name_plural": "half-life of past use",
                "constraints": [
                    models.CheckConstraint(condition=models.Q(("id", 1)), name="there_is_one_half_life"),
                    models.CheckConstraint(
                        condition=models.Q(("half_life_seconds__gte", 60), ("half_life_seconds__lte", 31622400)),
                        name="half_life_is_in_range",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="PastUse",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("resource", models.CharField(max_length=10)),
                ("level", models.FloatField(help_text="In base units.")),
                ("at", models.DateTimeField()),
                (
                    "tenant",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="+", to="tenancy.tenant"
                    ),
                ),
            ],
            options={
                "verbose_name_plural": "past use",
                "constraints": [
                    models.UniqueConstraint(fields=("tenant", "resource"), name="one_past_use_per_tenant_and_resource"),
                    models.CheckConstraint(
                        condition=models.Q(("resource__in", ["gpu", "cpu", "memory"])), name="past_use_resource_counts"
                    ),
                    models.CheckConstraint(condition=models.Q(("level__gte", 0)), name="past_use_is_not_negative"),
                ],
            },
        ),
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
                        condition=models.Q(("most__gte", 0), ("most__lte", 1000000000000000)),
                        name="user_limit_is_in_range",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("resource__regex", "^(gpu|gpu:[A-Za-z0-9][A-Za-z0-9._-]*|cpu|memory|jobs)$")
                        ),
                        name="user_limit_resource_is_known",
                    ),
                ],
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
                        on_delete=django.db.models.deletion.DO_NOTHING, related_name="holdings", to="quotas.userlimit"
                    ),
                ),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(fields=("limit", "user_id"), name="one_holding_per_limit_and_user"),
                    models.CheckConstraint(condition=models.Q(("held__gte", 0)), name="user_holding_is_not_negative"),
                ],
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
                            models.Q(("jobs_per_minute__gte", 1), ("jobs_per_minute__lte", 1000000)),
                            _connector="OR",
                        ),
                        name="submission_rate_is_in_range",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("most_waiting__isnull", True), ("most_waiting__lte", 10000000), _connector="OR"
                        ),
                        name="submission_limit_of_waiting_jobs_is_in_range",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("tokens__gte", 0)), name="submission_tokens_are_not_negative"
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="KeptIdle",
            fields=[
                (
                    "id",
                    models.UUIDField(default=foundation.ids.new_id, editable=False, primary_key=True, serialize=False),
                ),
                ("holder_id", models.UUIDField()),
                ("amounts", models.JSONField()),
                ("created_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ("until_at", models.DateTimeField()),
                ("ended_at", models.DateTimeField(null=True)),
                (
                    "tenant",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="+", to="tenancy.tenant"
                    ),
                ),
            ],
            options={
                "verbose_name_plural": "kept idle",
                "indexes": [models.Index(fields=["holder_id"], name="kept_idle_by_holder")],
                "constraints": [
                    models.UniqueConstraint(
                        condition=models.Q(("ended_at__isnull", True)),
                        fields=("holder_id",),
                        name="one_open_kept_idle_per_holder",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("ended_at__gte", models.F("created_at"))),
                        name="kept_idle_ends_after_it_began",
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
                                        '$.keyvalue() ? (!(@.key like_regex "^(gpu|gpu:[A-Za-z0-9][A-Za-z0-9._-]*|cpu|memory|jobs)$") || @.value.type() != "number" || @.value < 0 || @.value > 1000000000000000 || @.value != @.value.floor())'
                                    ),
                                    output_field=models.BooleanField(),
                                    template="jsonb_path_exists(%(expressions)s::jsonpath)",
                                ),
                                _negated=True,
                            ),
                        ),
                        name="kept_idle_amounts_are_whole",
                    ),
                ],
            },
        ),
        migrations.RunSQL(TABLES, migrations.RunSQL.noop),
        rules("quotas/limits.sql"),
        rules("quotas/holds.sql"),
        rules("quotas/past_use.sql"),
        rules("quotas/people.sql"),
        rules("quotas/reserved.sql"),
    ]
