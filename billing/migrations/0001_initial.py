"""Prices, meters and the ledger; `0001_rules.sql` has what the tables themselves refuse."""

from pathlib import Path

import django.contrib.postgres.constraints
import django.contrib.postgres.fields.ranges
import django.db.models.deletion
import django.db.models.functions.datetime
from django.db import migrations, models

import foundation.ids


class Migration(migrations.Migration):
    initial = True

    dependencies = [
        ("clusters", "0001_initial"),
        ("tenancy", "0001_initial"),
    ]

    operations = [
        migrations.CreateModel(
            name="EgressRoute",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("from_region", models.CharField(help_text="`*` matches any text.", max_length=63)),
                ("to_region", models.CharField(help_text="`*` matches any text.", max_length=63)),
                (
                    "owner",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="egress_routes", to="tenancy.tenant"
                    ),
                ),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(
                        fields=("owner", "from_region", "to_region"), name="one_egress_route_per_pair"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("from_region__regex", "^[A-Za-z0-9*]([A-Za-z0-9*._-]{0,62})\\Z"),
                            ("to_region__regex", "^[A-Za-z0-9*]([A-Za-z0-9*._-]{0,62})\\Z"),
                        ),
                        name="egress_regions_are_plain",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="EgressPrice",
            fields=[
                (
                    "id",
                    models.UUIDField(default=foundation.ids.new_id, editable=False, primary_key=True, serialize=False),
                ),
                ("price_per_gib", models.DecimalField(decimal_places=6, max_digits=18)),
                ("currency", models.CharField(default="USD", max_length=3)),
                ("valid", django.contrib.postgres.fields.ranges.DateTimeRangeField(help_text="Half-open, UTC.")),
                ("created_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                (
                    "route",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="prices", to="billing.egressroute"
                    ),
                ),
            ],
            options={
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(("price_per_gib__gte", 0), ("price_per_gib__lte", 1000000)),
                        name="egress_price_is_within_bounds",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("currency__regex", "^[A-Z]{3}$")), name="egress_currency_is_three_letters"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("valid__isempty", False),
                            ("valid__lower_inc", True),
                            ("valid__lower_inf", False),
                            ("valid__upper_inc", False),
                        ),
                        name="egress_price_period_is_half_open",
                    ),
                    django.contrib.postgres.constraints.ExclusionConstraint(
                        expressions=[
                            (
                                models.Func(
                                    models.F("route_id"),
                                    models.F("route_id"),
                                    models.Value("[]"),
                                    function="int8range",
                                    output_field=django.contrib.postgres.fields.ranges.BigIntegerRangeField(),
                                ),
                                "&&",
                            ),
                            ("valid", "&&"),
                        ],
                        name="one_egress_price_at_a_time",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="Meter",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                (
                    "source_uid",
                    models.CharField(
                        help_text="The pod's uid; with `~1` and so on if the pod runs on after its meter was closed.",
                        max_length=72,
                    ),
                ),
                (
                    "tenant_path",
                    models.CharField(
                        db_collation="C",
                        db_default="",
                        default="",
                        editable=False,
                        help_text="The tenant's path when the meter opened (trigger).",
                        max_length=1100,
                    ),
                ),
                ("user_id", models.UUIDField()),
                ("user_name", models.CharField(blank=True, help_text="The name when the run began.", max_length=254)),
                ("workload_id", models.UUIDField(db_index=True)),
                ("workload_name", models.CharField(blank=True, max_length=254)),
                ("run_id", models.UUIDField()),
                ("flavor", models.CharField(max_length=120)),
                ("capacity_type", models.CharField(max_length=20)),
                (
                    "unit",
                    models.CharField(
                        choices=[("gpu", "Gpu"), ("core", "Core")],
                        help_text="The unit whose price per hour applies.",
                        max_length=4,
                    ),
                ),
                (
                    "gpu_units",
                    models.PositiveIntegerField(help_text="Whole GPUs, MIG slices or shares; 0 for CPU-only work."),
                ),
                ("gpu_model", models.CharField(blank=True, db_default="", max_length=63)),
                (
                    "sharing",
                    models.CharField(
                        blank=True, db_default="", help_text="`whole`, `mig:PROFILE` or `timeslice:N`.", max_length=40
                    ),
                ),
                (
                    "gpu_numerator",
                    models.PositiveIntegerField(
                        db_default=1,
                        default=1,
                        help_text="A unit is `gpu_numerator` / `gpu_denominator` of a physical GPU.",
                    ),
                ),
                ("gpu_denominator", models.PositiveIntegerField(db_default=1, default=1)),
                ("cpu_millicores", models.PositiveBigIntegerField()),
                ("memory_mib", models.PositiveBigIntegerField(db_default=0)),
                (
                    "cpu_flavor",
                    models.CharField(
                        blank=True,
                        db_default="",
                        help_text="For a pod without GPUs on a GPU flavor: the CPU-only flavor whose price applies if its own flavor has no CPU price.",
                        max_length=120,
                    ),
                ),
                ("metered_from", models.DateTimeField()),
                ("metered_until", models.DateTimeField(help_text="Segments contain everything before this time.")),
                ("is_closed", models.BooleanField(default=False)),
                (
                    "redone_from",
                    models.DateTimeField(
                        help_text="The work from this time to the end was lost and done again; null: no work was lost.",
                        null=True,
                    ),
                ),
                (
                    "cluster",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="meters", to="clusters.cluster"
                    ),
                ),
                (
                    "tenant",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="meters", to="tenancy.tenant"
                    ),
                ),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(fields=("cluster", "source_uid"), name="one_meter_per_pod"),
                    models.CheckConstraint(
                        condition=models.Q(("metered_until__gte", models.F("metered_from"))),
                        name="meter_never_runs_backwards",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("unit", "gpu"), models.Q(("gpu_units", 0), ("unit", "core")), _connector="OR"
                        ),
                        name="gpus_are_priced_as_gpus",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("gpu_numerator__gte", 1), ("gpu_numerator__lte", models.F("gpu_denominator"))
                        ),
                        name="a_unit_is_a_part_of_a_gpu",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("redone_from__isnull", True),
                            models.Q(
                                ("is_closed", True),
                                ("redone_from__gte", models.F("metered_from")),
                                ("redone_from__lt", models.F("metered_until")),
                            ),
                            _connector="OR",
                        ),
                        name="redone_work_is_of_a_closed_meters_time",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("cpu_flavor", ""), models.Q(("gpu_units", 0), ("unit", "gpu")), _connector="OR"
                        ),
                        name="only_guests_pay_another_flavors_price",
                    ),
                ],
                "indexes": [
                    models.Index(
                        condition=models.Q(("is_closed", False)), fields=["tenant"], name="open_meters_by_tenant"
                    ),
                    models.Index(fields=["tenant_path", "tenant"], name="meters_by_tenant_path"),
                ],
            },
        ),
        migrations.CreateModel(
            name="Rate",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("flavor", models.CharField(max_length=120)),
                ("capacity_type", models.CharField(max_length=20)),
                (
                    "cluster",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="rates", to="clusters.cluster"
                    ),
                ),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(fields=("cluster", "flavor", "capacity_type"), name="one_rate_per_flavor"),
                ],
            },
        ),
        migrations.CreateModel(
            name="Price",
            fields=[
                (
                    "id",
                    models.UUIDField(default=foundation.ids.new_id, editable=False, primary_key=True, serialize=False),
                ),
                ("unit_price", models.DecimalField(decimal_places=6, max_digits=18)),
                (
                    "cpu_price",
                    models.DecimalField(
                        decimal_places=6,
                        help_text="Per core and hour, on flavors with GPUs.",
                        max_digits=18,
                        null=True,
                    ),
                ),
                (
                    "memory_price",
                    models.DecimalField(decimal_places=6, help_text="Per GiB and hour.", max_digits=18, null=True),
                ),
                ("currency", models.CharField(default="USD", max_length=3)),
                (
                    "interruptions_per_hour",
                    models.DecimalField(
                        decimal_places=6,
                        help_text="Expected interruptions per hour of a job on this spot capacity; null: the settings' default.",
                        max_digits=9,
                        null=True,
                    ),
                ),
                ("valid", django.contrib.postgres.fields.ranges.DateTimeRangeField(help_text="Half-open, UTC.")),
                ("created_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                (
                    "rate",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="prices", to="billing.rate"
                    ),
                ),
            ],
            options={
                "constraints": [
                    models.CheckConstraint(condition=models.Q(("unit_price__gte", 0)), name="price_is_not_negative"),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("cpu_price__isnull", True), ("cpu_price__gte", 0), _connector="OR"),
                            models.Q(("memory_price__isnull", True), ("memory_price__gte", 0), _connector="OR"),
                        ),
                        name="prices_of_cpu_and_memory_are_not_negative",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("interruptions_per_hour__isnull", True),
                            models.Q(("interruptions_per_hour__gte", 0), ("interruptions_per_hour__lte", 100)),
                            _connector="OR",
                        ),
                        name="interruptions_are_within_bounds",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("currency__regex", "^[A-Z]{3}$")), name="price_currency_is_three_letters"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("valid__isempty", False),
                            ("valid__lower_inc", True),
                            ("valid__lower_inf", False),
                            ("valid__upper_inc", False),
                        ),
                        name="price_period_is_half_open",
                    ),
                    django.contrib.postgres.constraints.ExclusionConstraint(
                        expressions=[
                            (
                                models.Func(
                                    models.F("rate_id"),
                                    models.F("rate_id"),
                                    models.Value("[]"),
                                    function="int8range",
                                    output_field=django.contrib.postgres.fields.ranges.BigIntegerRangeField(),
                                ),
                                "&&",
                            ),
                            ("valid", "&&"),
                        ],
                        name="one_price_at_a_time",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="TenantMonth",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("month", models.DateField(help_text="Its first day, UTC.")),
                ("currency", models.CharField(blank=True, help_text="Empty without a price.", max_length=3)),
                ("gpu_numerator", models.PositiveIntegerField()),
                ("gpu_denominator", models.PositiveIntegerField()),
                ("cost", models.DecimalField(decimal_places=12, max_digits=38)),
                ("gpu_milliseconds", models.PositiveBigIntegerField(help_text="In the meters' units.")),
                (
                    "tenant",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="months", to="tenancy.tenant"
                    ),
                ),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(
                        fields=("tenant", "month", "currency", "gpu_numerator", "gpu_denominator"),
                        name="one_sum_a_tenant_month_and_kind",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="UsageSegment",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                (
                    "period",
                    django.contrib.postgres.fields.ranges.DateTimeRangeField(
                        help_text="Half-open, UTC, cut at days and price changes."
                    ),
                ),
                (
                    "gpu_milliseconds",
                    models.PositiveBigIntegerField(help_text="In the meter's units: GPUs, MIG slices or shares."),
                ),
                ("cpu_millicore_milliseconds", models.PositiveBigIntegerField()),
                (
                    "cost",
                    models.DecimalField(decimal_places=12, help_text="Before any rounding for display.", max_digits=30),
                ),
                ("currency", models.CharField(blank=True, help_text="Empty without a price.", max_length=3)),
                ("is_estimated", models.BooleanField(default=False)),
                ("recorded_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                (
                    "meter",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="segments", to="billing.meter"
                    ),
                ),
                (
                    "price",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="segments",
                        to="billing.price",
                    ),
                ),
            ],
            options={
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(
                            ("period__isempty", False),
                            ("period__lower_inc", True),
                            ("period__lower_inf", False),
                            ("period__upper_inc", False),
                            ("period__upper_inf", False),
                        ),
                        name="segment_period_is_half_open",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("cost", 0), ("currency", ""), ("price__isnull", True)),
                            models.Q(
                                ("cost__gte", 0), ("price__isnull", False), models.Q(("currency", ""), _negated=True)
                            ),
                            _connector="OR",
                        ),
                        name="segment_costs_only_with_a_price",
                    ),
                    django.contrib.postgres.constraints.ExclusionConstraint(
                        expressions=[
                            (
                                models.Func(
                                    models.F("meter_id"),
                                    models.F("meter_id"),
                                    models.Value("[]"),
                                    function="int8range",
                                    output_field=django.contrib.postgres.fields.ranges.BigIntegerRangeField(),
                                ),
                                "&&",
                            ),
                            ("period", "&&"),
                        ],
                        name="each_moment_is_metered_once",
                    ),
                ],
                "indexes": [
                    models.Index(
                        models.Func(models.F("period"), function="lower", output_field=models.DateTimeField()),
                        name="segments_by_start",
                    ),
                ],
            },
        ),
        migrations.RunSQL(
            Path(__file__).with_name("0001_rules.sql").read_text(encoding="utf-8"), migrations.RunSQL.noop
        ),
    ]
