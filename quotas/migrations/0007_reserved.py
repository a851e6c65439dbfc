"""Quota that is reserved for a period, in advance (`0007_reserved.sql`)."""

from pathlib import Path

import django.db.models.deletion
import django.db.models.functions.datetime
from django.db import migrations, models
from django.db.models import F, Func, Q, Value
from django.db.models.lookups import Exact

import foundation.ids

SQL = Path(__file__).with_name("0007_reserved.sql").read_text(encoding="utf-8")
UNDO = """
DROP TRIGGER quotas_keep_reserving_tenant ON tenancy_tenant;
DROP TRIGGER quotas_hold_stays_within ON quotas_hold;
DROP TRIGGER quotas_hold_is_within ON quotas_hold;
DROP TRIGGER quotas_reserve ON quotas_reservedquota;
DROP TRIGGER quotas_guard_reserved ON quotas_reservedquota;
DROP TRIGGER quotas_keep_reserved ON quotas_reservedquota;
DROP FUNCTION quotas_keep_reserving_tenant;
DROP FUNCTION quotas_hold_is_within;
DROP FUNCTION quotas_guard_reserved;
DROP FUNCTION quotas_reserve;
DROP FUNCTION quotas_reserved_at;
"""
WHOLE_AMOUNTS = (
    '$.keyvalue() ? (!(@.key like_regex "^(gpu|gpu:[A-Za-z0-9][A-Za-z0-9._-]*|cpu|memory|jobs)$") || @.value.type() != "number"'
    " || @.value < 0 || @.value > 1000000000000000 || @.value != @.value.floor())"
)


class Migration(migrations.Migration):
    dependencies = [
        ("quotas", "0006_surplus"),
        ("tenancy", "0002_weight"),
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
                        condition=Q(until_at__gte=F("starts_at")), name="reserved_quota_ends_after_it_starts"
                    ),
                    models.CheckConstraint(
                        condition=Q(
                            Exact(
                                Func(F("amounts"), function="jsonb_typeof", output_field=models.TextField()), "object"
                            ),
                            Q(
                                Func(
                                    F("amounts"),
                                    Value(WHOLE_AMOUNTS),
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
        migrations.AddField(
            model_name="hold",
            name="within",
            field=models.ForeignKey(
                db_index=False,
                null=True,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="holds",
                to="quotas.reservedquota",
            ),
        ),
        migrations.AddIndex(
            model_name="hold",
            index=models.Index(
                condition=Q(("within__isnull", False)), fields=["within"], name="holds_within_reserved_quota"
            ),
        ),
        migrations.RunSQL(SQL, UNDO),
    ]
