"""Sums of days that reports read, and a chain of segments in a B-tree; `0005_rollups.sql` has the rules and moves what
there is.
"""

from pathlib import Path

import django.contrib.postgres.indexes
import django.db.models.deletion
from django.db import migrations, models

SQL = Path(__file__).with_name("0005_rollups.sql").read_text(encoding="utf-8")


class Migration(migrations.Migration):
    dependencies = [
        ("billing", "0004_invoices"),
    ]

    operations = [
        migrations.AddField(
            model_name="tenantday",
            name="gpu_numerator",
            field=models.PositiveIntegerField(db_default=1),
        ),
        migrations.AddField(
            model_name="tenantday",
            name="gpu_denominator",
            field=models.PositiveIntegerField(db_default=1),
        ),
        migrations.AddField(
            model_name="tenantday",
            name="gpu_milliseconds",
            field=models.PositiveBigIntegerField(db_default=0, help_text="In the meters' units."),
        ),
        migrations.AddField(
            model_name="tenantday",
            name="cpu_millicore_milliseconds",
            field=models.DecimalField(db_default=0, decimal_places=0, max_digits=38),
        ),
        migrations.AddField(
            model_name="tenantday",
            name="memory_mib_milliseconds",
            field=models.DecimalField(db_default=0, decimal_places=0, max_digits=38),
        ),
        migrations.RemoveConstraint(
            model_name="tenantday",
            name="one_sum_a_tenant_day",
        ),
        migrations.AddConstraint(
            model_name="tenantday",
            constraint=models.UniqueConstraint(
                fields=(
                    "tenant",
                    "day",
                    "cluster",
                    "flavor",
                    "tenant_path",
                    "currency",
                    "gpu_numerator",
                    "gpu_denominator",
                ),
                name="one_sum_a_tenant_day",
            ),
        ),
        migrations.CreateModel(
            name="MeterDay",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("day", models.DateField()),
                ("currency", models.CharField(blank=True, help_text="Empty without a price.", max_length=3)),
                ("milliseconds", models.PositiveIntegerField()),
                ("cost", models.DecimalField(decimal_places=12, max_digits=30)),
                (
                    "meter",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="days",
                        to="billing.meter",
                    ),
                ),
                (
                    "price",
                    models.ForeignKey(
                        db_index=False,
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="billing.price",
                    ),
                ),
            ],
            options={
                "indexes": [
                    django.contrib.postgres.indexes.BrinIndex(
                        autosummarize=True, fields=["day"], name="meter_days_by_day", pages_per_range=16
                    )
                ],
                "constraints": [
                    models.UniqueConstraint(
                        fields=("meter", "day", "price"), name="one_sum_a_meter_day_and_price", nulls_distinct=False
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("milliseconds__lte", 86400000)), name="a_day_has_24_hours"
                    ),
                ],
            },
        ),
        migrations.RemoveConstraint(
            model_name="usagesegment",
            name="each_moment_is_metered_once",
        ),
        migrations.RemoveIndex(
            model_name="usagesegment",
            name="segments_by_start",
        ),
        migrations.AddConstraint(
            model_name="usagesegment",
            constraint=models.UniqueConstraint(
                models.F("meter"),
                models.Func(models.F("period"), function="lower", output_field=models.DateTimeField()),
                name="each_moment_is_metered_once",
            ),
        ),
        migrations.AlterField(
            model_name="usagesegment",
            name="meter",
            field=models.ForeignKey(
                db_index=False,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="segments",
                to="billing.meter",
            ),
        ),
        migrations.AddIndex(
            model_name="usagesegment",
            index=django.contrib.postgres.indexes.BrinIndex(
                models.Func(models.F("period"), function="lower", output_field=models.DateTimeField()),
                autosummarize=True,
                name="segments_by_start",
                pages_per_range=16,
            ),
        ),
        migrations.AddIndex(
            model_name="meter",
            index=models.Index(
                condition=models.Q(("redone_from__isnull", False)),
                fields=["redone_from"],
                name="meters_of_redone_work",
            ),
        ),
        migrations.RunSQL(SQL, migrations.RunSQL.noop),
    ]
