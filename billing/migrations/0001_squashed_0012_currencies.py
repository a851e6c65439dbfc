"""Prices, meters, the ledger, budgets and invoices.

`0001_tables.sql` has what Django cannot say of the tables, `billing/sql/` their rules.
"""

from pathlib import Path

import django.contrib.postgres.constraints
import django.contrib.postgres.fields
import django.contrib.postgres.fields.ranges
import django.contrib.postgres.indexes
import django.db.models.deletion
import django.db.models.expressions
import django.db.models.functions.comparison
import django.db.models.functions.datetime
import django.db.models.functions.math
from django.db import migrations, models

import foundation.ids
from foundation.rules import rules

TABLES = Path(__file__).with_name("0001_tables.sql").read_text(encoding="utf-8")


class Migration(migrations.Migration):
    replaces = [
        ("billing", "0001_initial"),
        ("billing", "0002_ledger"),
        ("billing", "0003_budgets"),
        ("billing", "0004_invoices"),
        ("billing", "0005_rollups"),
        ("billing", "0006_idle"),
        ("billing", "0007_budget_corrections"),
        ("billing", "0008_forecasts"),
        ("billing", "0009_anomalies_over_clusters"),
        ("billing", "0010_credits"),
        ("billing", "0011_node_hours"),
        ("billing", "0012_currencies"),
    ]

    initial = True

    dependencies = [
        ("tenancy", "0001_squashed_0002_weight"),
        ("clusters", "0001_squashed_0010_nodes_of_images"),
        ("quotas", "0001_squashed_0008_kept_idle"),
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
                (
                    "node",
                    models.CharField(
                        blank=True,
                        db_default="",
                        default="",
                        help_text="Where it ran; empty if that was not known when the meter opened.",
                        max_length=253,
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
                    models.Index(fields=["tenant", "cluster", "flavor", "metered_until"], name="meters_by_place"),
                    models.Index(fields=["run_id"], name="meters_by_run"),
                    models.Index(
                        condition=models.Q(("redone_from__isnull", False)),
                        fields=["redone_from"],
                        name="meters_of_redone_work",
                    ),
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
                    models.UniqueConstraint(fields=("cluster", "flavor", "capacity_type"), name="one_rate_per_flavor")
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
                        decimal_places=6, help_text="Per core and hour, on flavors with GPUs.", max_digits=18, null=True
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
                    )
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
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="segments",
                        to="billing.meter",
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
                    models.UniqueConstraint(
                        models.F("meter"),
                        models.Func(models.F("period"), function="lower", output_field=models.DateTimeField()),
                        name="each_moment_is_metered_once",
                    ),
                ],
                "indexes": [
                    django.contrib.postgres.indexes.BrinIndex(
                        models.Func(models.F("period"), function="lower", output_field=models.DateTimeField()),
                        autosummarize=True,
                        name="segments_by_start",
                        pages_per_range=16,
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="LedgerAccount",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                (
                    "kind",
                    models.CharField(
                        choices=[
                            ("tenant_expense", "Tenant Expense"),
                            ("cluster_pool", "Cluster Pool"),
                            ("rounding", "Rounding"),
                            ("adjustments", "Adjustments"),
                            ("idle", "Idle"),
                            ("overhead", "Overhead"),
                            ("platform", "Platform"),
                            ("infrastructure", "Infrastructure"),
                            ("tenant_converted", "Tenant Converted"),
                            ("exchange", "Exchange"),
                        ],
                        max_length=20,
                    ),
                ),
                (
                    "cluster",
                    models.ForeignKey(
                        null=True, on_delete=django.db.models.deletion.PROTECT, related_name="+", to="clusters.cluster"
                    ),
                ),
                (
                    "organisation",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="ledger_accounts", to="tenancy.tenant"
                    ),
                ),
                (
                    "tenant",
                    models.ForeignKey(
                        null=True, on_delete=django.db.models.deletion.PROTECT, related_name="+", to="tenancy.tenant"
                    ),
                ),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(
                        fields=("organisation", "kind", "tenant", "cluster"),
                        name="one_account_of_a_kind",
                        nulls_distinct=False,
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(
                                ("cluster__isnull", True),
                                ("kind__in", ["tenant_expense", "tenant_converted"]),
                                ("tenant__isnull", False),
                            ),
                            models.Q(("cluster__isnull", False), ("kind", "cluster_pool"), ("tenant__isnull", True)),
                            models.Q(
                                ("cluster__isnull", True),
                                (
                                    "kind__in",
                                    [
                                        "rounding",
                                        "adjustments",
                                        "idle",
                                        "overhead",
                                        "platform",
                                        "infrastructure",
                                        "exchange",
                                    ],
                                ),
                                ("tenant__isnull", True),
                            ),
                            _connector="OR",
                        ),
                        name="account_is_of_what_its_kind_says",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="LedgerPeriod",
            fields=[
                (
                    "id",
                    models.UUIDField(default=foundation.ids.new_id, editable=False, primary_key=True, serialize=False),
                ),
                ("month", models.DateField(help_text="Its first day, UTC.")),
                (
                    "state",
                    models.CharField(
                        choices=[("open", "Open"), ("closing", "Closing"), ("closed", "Closed")],
                        db_default="open",
                        default="open",
                        max_length=7,
                    ),
                ),
                ("closing_by_id", models.UUIDField(help_text="Who asked to close it.", null=True)),
                ("closing_by_name", models.CharField(blank=True, db_default="", default="", max_length=254)),
                ("closing_at", models.DateTimeField(null=True)),
                (
                    "accepts_unpriced",
                    models.BooleanField(
                        db_default=False,
                        default=False,
                        help_text="Whether they accepted that some of its time has no price.",
                    ),
                ),
                ("closed_at", models.DateTimeField(null=True)),
                (
                    "checksum",
                    models.CharField(
                        blank=True,
                        db_default="",
                        default="",
                        help_text="SHA-256 of its canonical lines while closed.",
                        max_length=64,
                    ),
                ),
                (
                    "revision",
                    models.PositiveIntegerField(db_default=0, default=0, help_text="How often it was closed."),
                ),
                ("created_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                (
                    "organisation",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="ledger_periods", to="tenancy.tenant"
                    ),
                ),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(fields=("organisation", "month"), name="one_period_per_month"),
                    models.CheckConstraint(condition=models.Q(("month__day", 1)), name="period_begins_with_its_month"),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("checksum", ""), ("closed_at__isnull", True), ("state__in", ["open", "closing"])),
                            models.Q(
                                ("checksum__regex", "^[0-9a-f]{64}$"),
                                ("closed_at__isnull", False),
                                ("revision__gte", 1),
                                ("state", "closed"),
                            ),
                            _connector="OR",
                        ),
                        name="closed_period_has_its_checksum",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("closing_at__isnull", True), ("state", "open")),
                            models.Q(models.Q(("state", "open"), _negated=True), ("closing_at__isnull", False)),
                            _connector="OR",
                        ),
                        name="closing_period_says_since_when",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="PriceCorrection",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("span", django.contrib.postgres.fields.ranges.DateTimeRangeField(help_text="Half-open, UTC, past.")),
                ("unit_price", models.DecimalField(decimal_places=6, max_digits=18)),
                ("cpu_price", models.DecimalField(decimal_places=6, max_digits=18, null=True)),
                ("memory_price", models.DecimalField(decimal_places=6, max_digits=18, null=True)),
                ("currency", models.CharField(max_length=3)),
                ("reason", models.CharField(max_length=500)),
                ("made_by_id", models.UUIDField(null=True)),
                ("made_by_name", models.CharField(max_length=254)),
                ("created_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                (
                    "rate",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="corrections", to="billing.rate"
                    ),
                ),
            ],
            options={
                "indexes": [models.Index(fields=["rate"], name="corrections_by_rate")],
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(
                            ("unit_price__gte", 0),
                            models.Q(("cpu_price__isnull", True), ("cpu_price__gte", 0), _connector="OR"),
                            models.Q(("memory_price__isnull", True), ("memory_price__gte", 0), _connector="OR"),
                        ),
                        name="corrected_price_is_not_negative",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("span__isempty", False),
                            ("span__lower_inc", True),
                            ("span__lower_inf", False),
                            ("span__upper_inc", False),
                            ("span__upper_inf", False),
                        ),
                        name="corrected_span_is_half_open",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("reason", ""), _negated=True), name="correction_has_a_reason"
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="LedgerEntry",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                (
                    "key",
                    models.CharField(
                        help_text="What it is; posting it twice changes nothing.", max_length=400, unique=True
                    ),
                ),
                (
                    "kind",
                    models.CharField(
                        choices=[
                            ("usage", "Usage"),
                            ("reversal", "Reversal"),
                            ("reentry", "Reentry"),
                            ("adjustment", "Adjustment"),
                            ("idle", "Idle"),
                            ("platform", "Platform"),
                            ("credit", "Credit"),
                            ("conversion", "Conversion"),
                        ],
                        max_length=10,
                    ),
                ),
                ("tenant_path", models.CharField(blank=True, db_collation="C", max_length=1100)),
                ("flavor", models.CharField(blank=True, max_length=120)),
                ("charge_day", models.DateField()),
                ("reason", models.CharField(blank=True, max_length=500)),
                ("line_count", models.PositiveIntegerField()),
                ("digest", models.CharField(help_text="SHA-256 of its canonical text.", max_length=64)),
                ("posted_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                (
                    "cluster",
                    models.ForeignKey(
                        null=True, on_delete=django.db.models.deletion.PROTECT, related_name="+", to="clusters.cluster"
                    ),
                ),
                (
                    "organisation",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="ledger_entries", to="tenancy.tenant"
                    ),
                ),
                (
                    "reverses",
                    models.OneToOneField(
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="reversed_by",
                        to="billing.ledgerentry",
                    ),
                ),
                (
                    "tenant",
                    models.ForeignKey(
                        null=True, on_delete=django.db.models.deletion.PROTECT, related_name="+", to="tenancy.tenant"
                    ),
                ),
                (
                    "period",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="entries", to="billing.ledgerperiod"
                    ),
                ),
                (
                    "correction",
                    models.ForeignKey(
                        help_text="The latest that counts.",
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="entries",
                        to="billing.pricecorrection",
                    ),
                ),
                (
                    "converts",
                    models.ForeignKey(
                        help_text="Whose amounts it converts; of its conversions, one is not reversed.",
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="conversions",
                        to="billing.ledgerentry",
                    ),
                ),
            ],
            options={
                "indexes": [
                    models.Index(fields=["tenant", "charge_day", "cluster"], name="entries_by_day"),
                    models.Index(fields=["period", "key"], name="entries_by_period"),
                    models.Index(fields=["organisation", "charge_day"], name="entries_by_charge_day"),
                ],
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("kind", "reversal"), ("reverses__isnull", False)),
                            models.Q(models.Q(("kind", "reversal"), _negated=True), ("reverses__isnull", True)),
                            _connector="OR",
                        ),
                        name="only_a_reversal_reverses",
                    ),
                    models.CheckConstraint(condition=models.Q(("line_count__gte", 2)), name="entry_has_two_sides"),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(
                                ("cluster__isnull", True),
                                ("kind", "adjustment"),
                                ("tenant__isnull", True),
                                models.Q(("reason", ""), _negated=True),
                            ),
                            models.Q(
                                ("cluster__isnull", False),
                                ("kind", "idle"),
                                ("tenant__isnull", True),
                                models.Q(("reason", ""), _negated=True),
                            ),
                            models.Q(
                                ("cluster__isnull", True),
                                ("kind", "platform"),
                                ("tenant__isnull", True),
                                models.Q(("reason", ""), _negated=True),
                            ),
                            models.Q(
                                ("cluster__isnull", False),
                                ("kind", "credit"),
                                ("tenant__isnull", False),
                                models.Q(("reason", ""), _negated=True),
                            ),
                            ("kind", "reversal"),
                            ("kind", "conversion"),
                            models.Q(
                                ("cluster__isnull", False),
                                ("kind__in", ["usage", "reentry"]),
                                ("tenant__isnull", False),
                            ),
                            _connector="OR",
                        ),
                        name="entry_says_what_it_is_for",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("converts__isnull", False), ("kind", "conversion")),
                            models.Q(models.Q(("kind", "conversion"), _negated=True), ("converts__isnull", True)),
                            _connector="OR",
                        ),
                        name="only_a_conversion_converts",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="LedgerLine",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("amount", models.DecimalField(decimal_places=12, max_digits=38)),
                ("currency", models.CharField(max_length=3)),
                (
                    "account",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="lines", to="billing.ledgeraccount"
                    ),
                ),
                (
                    "entry",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="lines", to="billing.ledgerentry"
                    ),
                ),
                (
                    "quantity",
                    models.BigIntegerField(
                        help_text="What was used for it, in thousandths of a GPU (or slice, or core) times milliseconds; null: not known.",
                        null=True,
                    ),
                ),
                (
                    "priced_amount",
                    models.DecimalField(
                        decimal_places=12,
                        help_text="Of a converted amount: what it was before.",
                        max_digits=38,
                        null=True,
                    ),
                ),
                ("priced_currency", models.CharField(blank=True, db_default="", default="", max_length=3)),
                (
                    "rate",
                    models.DecimalField(
                        decimal_places=18, help_text="Of the priced currency.", max_digits=38, null=True
                    ),
                ),
                ("rate_day", models.DateField(null=True)),
                ("rate_source", models.CharField(blank=True, db_default="", default="", max_length=122)),
            ],
            options={
                "constraints": [
                    models.CheckConstraint(condition=models.Q(("amount", 0), _negated=True), name="line_moves_money"),
                    models.CheckConstraint(
                        condition=models.Q(("currency__regex", "^[A-Z]{3}$")), name="line_currency_is_three_letters"
                    ),
                    models.UniqueConstraint(
                        fields=("entry", "account", "currency", "priced_currency"), name="one_line_per_account"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(
                                ("priced_amount__isnull", True),
                                ("priced_currency", ""),
                                ("rate__isnull", True),
                                ("rate_day__isnull", True),
                                ("rate_source", ""),
                            ),
                            models.Q(
                                (
                                    "amount",
                                    django.db.models.functions.math.Round(
                                        django.db.models.expressions.CombinedExpression(
                                            models.F("priced_amount"), "*", models.F("rate")
                                        ),
                                        12,
                                    ),
                                ),
                                ("priced_amount__isnull", False),
                                ("priced_currency__regex", "^[A-Z]{3}$"),
                                ("rate__gt", 0),
                                ("rate__isnull", False),
                                ("rate_day__isnull", False),
                                models.Q(("priced_currency", models.F("currency")), _negated=True),
                                models.Q(("rate_source", ""), _negated=True),
                            ),
                            _connector="OR",
                        ),
                        name="line_says_what_it_was_converted_from",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="LedgerStep",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("tenant_path", models.CharField(db_collation="C", max_length=1100)),
                ("flavor", models.CharField(max_length=120)),
                ("day", models.DateField()),
                ("made_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                (
                    "cluster",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="+", to="clusters.cluster"
                    ),
                ),
                (
                    "tenant",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="+", to="tenancy.tenant"
                    ),
                ),
            ],
        ),
        migrations.CreateModel(
            name="PeriodClose",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("revision", models.PositiveIntegerField()),
                ("checksum", models.CharField(max_length=64)),
                ("closed_by_id", models.UUIDField(null=True)),
                ("closed_by_name", models.CharField(blank=True, max_length=254)),
                ("closed_at", models.DateTimeField()),
                (
                    "period",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="closes", to="billing.ledgerperiod"
                    ),
                ),
            ],
            options={
                "constraints": [models.UniqueConstraint(fields=("period", "revision"), name="one_close_per_revision")],
            },
        ),
        migrations.CreateModel(
            name="PeriodReopening",
            fields=[
                (
                    "id",
                    models.UUIDField(default=foundation.ids.new_id, editable=False, primary_key=True, serialize=False),
                ),
                ("revision", models.PositiveIntegerField(help_text="The close that it undoes.")),
                ("reason", models.CharField(max_length=500)),
                ("requested_by_id", models.UUIDField()),
                ("requested_by_name", models.CharField(max_length=254)),
                ("requested_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ("approved_by_id", models.UUIDField(null=True)),
                ("approved_by_name", models.CharField(blank=True, db_default="", default="", max_length=254)),
                ("approved_at", models.DateTimeField(null=True)),
                (
                    "period",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="reopenings",
                        to="billing.ledgerperiod",
                    ),
                ),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(fields=("period", "revision"), name="one_reopening_per_close"),
                    models.CheckConstraint(
                        condition=models.Q(("reason", ""), _negated=True), name="reopening_has_a_reason"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("approved_at__isnull", True), ("approved_by_id__isnull", True)),
                            models.Q(
                                ("approved_at__isnull", False),
                                models.Q(("approved_by_id", models.F("requested_by_id")), _negated=True),
                            ),
                            _connector="OR",
                        ),
                        name="reopening_needs_two_people",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="PostingConflict",
            fields=[
                ("id", models.UUIDField(editable=False, primary_key=True, serialize=False)),
                ("key", models.CharField(max_length=400)),
                ("month", models.DateField(help_text="Of the charge.")),
                ("standing_digest", models.CharField(max_length=64)),
                ("offered_digest", models.CharField(max_length=64)),
                ("offered", models.TextField(help_text="Its canonical text.")),
                ("seen_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ("resolved_at", models.DateTimeField(null=True)),
                ("resolved_by_id", models.UUIDField(null=True)),
                ("resolved_by_name", models.CharField(blank=True, db_default="", default="", max_length=254)),
                ("note", models.CharField(blank=True, db_default="", default="", max_length=500)),
                (
                    "organisation",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="+", to="tenancy.tenant"
                    ),
                ),
                (
                    "decision",
                    models.CharField(
                        blank=True,
                        choices=[("posted", "Posted"), ("offered", "Offered")],
                        db_default="",
                        default="",
                        help_text="Which content stands.",
                        max_length=7,
                    ),
                ),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(fields=("key", "offered_digest"), name="one_conflict_per_offer"),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("note", ""), ("resolved_at__isnull", True)),
                            models.Q(("resolved_at__isnull", False), models.Q(("note", ""), _negated=True)),
                            _connector="OR",
                        ),
                        name="resolved_conflict_says_how",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("decision", ""), ("resolved_at__isnull", True)),
                            models.Q(("decision__in", ["posted", "offered"]), ("resolved_at__isnull", False)),
                            _connector="OR",
                        ),
                        name="resolved_conflict_says_which_stands",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="TenantDay",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("tenant_path", models.CharField(db_collation="C", max_length=1100)),
                ("flavor", models.CharField(max_length=120)),
                ("day", models.DateField()),
                ("currency", models.CharField(blank=True, help_text="Empty without a price.", max_length=3)),
                ("cost", models.DecimalField(decimal_places=12, max_digits=38)),
                ("segments", models.PositiveBigIntegerField()),
                ("is_due", models.BooleanField(db_default=True)),
                (
                    "cluster",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="+", to="clusters.cluster"
                    ),
                ),
                (
                    "organisation",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="+", to="tenancy.tenant"
                    ),
                ),
                (
                    "tenant",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="days", to="tenancy.tenant"
                    ),
                ),
                ("gpu_numerator", models.PositiveIntegerField(db_default=1)),
                ("gpu_denominator", models.PositiveIntegerField(db_default=1)),
                ("gpu_milliseconds", models.PositiveBigIntegerField(db_default=0, help_text="In the meters' units.")),
                ("cpu_millicore_milliseconds", models.DecimalField(db_default=0, decimal_places=0, max_digits=38)),
                ("memory_mib_milliseconds", models.DecimalField(db_default=0, decimal_places=0, max_digits=38)),
            ],
            options={
                "indexes": [
                    models.Index(
                        condition=models.Q(("is_due", True)), fields=["day", "organisation"], name="days_to_post"
                    ),
                    models.Index(fields=["cluster", "day"], name="days_by_cluster"),
                    models.Index(fields=["organisation", "day"], name="days_by_organisation"),
                ],
                "constraints": [
                    models.UniqueConstraint(
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
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="Budget",
            fields=[
                (
                    "id",
                    models.UUIDField(default=foundation.ids.new_id, editable=False, primary_key=True, serialize=False),
                ),
                ("measure", models.CharField(choices=[("money", "Money"), ("gpu_hours", "Gpu Hours")], max_length=10)),
                ("currency", models.CharField(blank=True, default="", max_length=3)),
                (
                    "period",
                    models.CharField(
                        choices=[("month", "Month"), ("quarter", "Quarter"), ("year", "Year"), ("dates", "Dates")],
                        max_length=10,
                    ),
                ),
                ("starts_at", models.DateTimeField(null=True)),
                ("ends_at", models.DateTimeField(null=True)),
                ("amount", models.DecimalField(decimal_places=12, max_digits=38)),
                (
                    "notify_at",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.PositiveSmallIntegerField(),
                        help_text="Percent of the amount; sorted, distinct.",
                        size=None,
                    ),
                ),
                ("stops_admission", models.BooleanField()),
                (
                    "counts_from",
                    models.DateTimeField(help_text="The start of its first period; what ran earlier does not count."),
                ),
                ("removed_at", models.DateTimeField(editable=False, null=True)),
                ("updated_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                (
                    "tenant",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="budgets", to="tenancy.tenant"
                    ),
                ),
                (
                    "notify_forecast_at",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.PositiveSmallIntegerField(),
                        db_default=[],
                        default=list,
                        help_text="The same, of what is expected at the end of the period.",
                        size=None,
                    ),
                ),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(
                        condition=models.Q(("removed_at__isnull", True)),
                        fields=("tenant", "measure", "period", "starts_at", "ends_at"),
                        name="one_budget_per_tenant_measure_and_period",
                        nulls_distinct=False,
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("amount__gte", 0), ("amount__lte", 1000000000000)),
                        name="budget_is_in_range",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("currency", ""), ("measure", "gpu_hours")),
                            models.Q(("currency__regex", "^[A-Z]{3}$"), ("measure", "money")),
                            _connector="OR",
                        ),
                        name="budget_of_money_has_a_currency",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("period", "dates"), ("starts_at__lt", models.F("ends_at"))),
                            models.Q(
                                ("ends_at__isnull", True),
                                ("period__in", ["month", "quarter", "year"]),
                                ("starts_at__isnull", True),
                            ),
                            _connector="OR",
                        ),
                        name="budget_has_dates_or_a_period",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="BudgetPeriod",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("starts_at", models.DateTimeField()),
                ("ends_at", models.DateTimeField()),
                ("amount", models.DecimalField(decimal_places=12, max_digits=38)),
                ("granted", models.DecimalField(decimal_places=12, default=0, editable=False, max_digits=38)),
                ("cap", models.DecimalField(decimal_places=12, editable=False, max_digits=38)),
                ("held", models.DecimalField(decimal_places=12, default=0, editable=False, max_digits=38)),
                ("spent", models.DecimalField(decimal_places=12, default=0, editable=False, max_digits=38)),
                (
                    "budget",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="periods", to="billing.budget"
                    ),
                ),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(fields=("budget", "starts_at"), name="one_row_per_budget_and_period"),
                    models.CheckConstraint(condition=models.Q(("held__gte", 0)), name="budget_held_is_not_negative"),
                    models.CheckConstraint(
                        condition=models.Q(
                            (
                                "cap__gte",
                                django.db.models.expressions.CombinedExpression(
                                    models.F("spent"), "+", models.F("held")
                                ),
                            )
                        ),
                        name="budget_is_never_exceeded",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            (
                                "cap",
                                django.db.models.functions.comparison.Greatest(
                                    django.db.models.expressions.CombinedExpression(
                                        models.F("amount"), "+", models.F("granted")
                                    ),
                                    django.db.models.expressions.CombinedExpression(
                                        models.F("spent"), "+", models.F("held")
                                    ),
                                ),
                            )
                        ),
                        name="budget_surplus_cap_is_what_is_used",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="BudgetAlert",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("percent", models.PositiveSmallIntegerField()),
                ("spent", models.DecimalField(decimal_places=12, help_text="When it was reached.", max_digits=38)),
                ("amount", models.DecimalField(decimal_places=12, help_text="When it was reached.", max_digits=38)),
                ("at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                (
                    "period",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="alerts",
                        to="billing.budgetperiod",
                    ),
                ),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(fields=("period", "percent"), name="each_threshold_alerts_once_per_period")
                ],
            },
        ),
        migrations.CreateModel(
            name="BudgetHold",
            fields=[
                ("holder_id", models.UUIDField(primary_key=True, serialize=False)),
                ("money_an_hour", models.DecimalField(decimal_places=12, max_digits=38)),
                ("currency", models.CharField(blank=True, max_length=3)),
                ("gpus", models.DecimalField(decimal_places=12, max_digits=38)),
                ("starts_at", models.DateTimeField()),
                ("seconds", models.PositiveBigIntegerField()),
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
                        on_delete=django.db.models.deletion.PROTECT, related_name="budget_holds", to="tenancy.tenant"
                    ),
                ),
            ],
            options={
                "indexes": [
                    models.Index(
                        condition=models.Q(("state", "pending")),
                        fields=["tenant"],
                        name="pending_budget_holds_by_tenant",
                    )
                ],
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(("gpus__gte", 0), ("money_an_hour__gte", 0)),
                        name="budget_hold_is_not_negative",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("ended_at__isnull", True), ("state", "pending")),
                            models.Q(("ended_at__isnull", False), ("state__in", ["posted", "voided"])),
                            _connector="OR",
                        ),
                        name="budget_hold_ends_with_a_time",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="BudgetMovement",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                (
                    "run_id",
                    models.UUIDField(help_text="The holder; runs from before an upgrade have no hold.", null=True),
                ),
                (
                    "kind",
                    models.CharField(
                        choices=[
                            ("open", "Open"),
                            ("take", "Take"),
                            ("adjust", "Adjust"),
                            ("post", "Post"),
                            ("void", "Void"),
                            ("correct", "Correct"),
                        ],
                        max_length=7,
                    ),
                ),
                ("held", models.DecimalField(decimal_places=12, max_digits=38)),
                ("spent", models.DecimalField(decimal_places=12, max_digits=38)),
                ("at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                (
                    "period",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="movements",
                        to="billing.budgetperiod",
                    ),
                ),
                (
                    "line",
                    models.ForeignKey(
                        db_index=False,
                        help_text="What it follows.",
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="billing.ledgerline",
                    ),
                ),
            ],
            options={
                "indexes": [
                    models.Index(fields=["run_id", "period"], name="budget_lines_by_run"),
                    models.Index(fields=["period"], name="budget_lines_by_period"),
                ],
                "constraints": [
                    models.UniqueConstraint(
                        condition=models.Q(("kind__in", ["take", "open"])),
                        fields=("run_id", "period"),
                        name="a_run_is_taken_once_per_budget_period",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("held__gte", 0), ("kind__in", ["open", "take"])),
                            ("kind", "adjust"),
                            models.Q(("held", 0), ("kind", "correct")),
                            models.Q(("held__lte", 0), ("kind__in", ["post", "void"])),
                            _connector="OR",
                        ),
                        name="takes_add_and_ends_return",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("spent", 0),
                            models.Q(("kind__in", ["open", "adjust", "post"]), ("spent__gt", 0)),
                            ("kind", "correct"),
                            _connector="OR",
                        ),
                        name="only_metered_time_is_spent",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("kind", "correct"), ("line__isnull", False), ("run_id__isnull", True)),
                            models.Q(
                                models.Q(("kind", "correct"), _negated=True),
                                ("line__isnull", True),
                                ("run_id__isnull", False),
                            ),
                            _connector="OR",
                        ),
                        name="a_correction_is_of_a_ledger_line",
                    ),
                    models.UniqueConstraint(
                        condition=models.Q(("line__isnull", False)),
                        fields=("line", "period"),
                        name="a_ledger_line_corrects_once_per_budget_period",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="BudgetOverride",
            fields=[
                (
                    "id",
                    models.UUIDField(default=foundation.ids.new_id, editable=False, primary_key=True, serialize=False),
                ),
                ("amount", models.DecimalField(decimal_places=12, max_digits=38)),
                ("reason", models.CharField(max_length=500)),
                ("expires_at", models.DateTimeField()),
                ("requested_by", models.UUIDField()),
                ("requester_name", models.CharField(max_length=254)),
                ("requested_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ("approved_by", models.UUIDField(null=True)),
                ("approver_name", models.CharField(blank=True, default="", max_length=254)),
                ("approved_at", models.DateTimeField(null=True)),
                (
                    "period",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="overrides", to="billing.budgetperiod"
                    ),
                ),
            ],
            options={
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(("amount__gt", 0), ("amount__lte", 1000000000000)),
                        name="override_adds_something",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("reason", ""), _negated=True), name="override_has_a_reason"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("approved_at__isnull", True), ("approved_by__isnull", True)),
                            models.Q(
                                ("approved_at__isnull", False),
                                ("approved_by__isnull", False),
                                models.Q(("approved_by", models.F("requested_by")), _negated=True),
                            ),
                            _connector="OR",
                        ),
                        name="override_needs_a_second_person",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="Invoice",
            fields=[
                (
                    "id",
                    models.UUIDField(default=foundation.ids.new_id, editable=False, primary_key=True, serialize=False),
                ),
                (
                    "kind",
                    models.CharField(
                        choices=[("invoice", "Invoice"), ("statement", "Statement"), ("credit_note", "Credit Note")],
                        max_length=11,
                    ),
                ),
                ("sequence", models.PositiveBigIntegerField()),
                ("number", models.CharField(max_length=30)),
                ("tenant_path", models.CharField(db_collation="C", max_length=1100)),
                ("revision", models.PositiveIntegerField(help_text="The close of the period that it is of.")),
                ("edition", models.PositiveIntegerField()),
                ("currency", models.CharField(max_length=3)),
                ("exact", models.DecimalField(decimal_places=12, help_text="What the ledger says.", max_digits=38)),
                ("subtotal", models.DecimalField(decimal_places=12, max_digits=38)),
                ("tax", models.DecimalField(decimal_places=12, max_digits=38)),
                ("total", models.DecimalField(decimal_places=12, max_digits=38)),
                ("tax_rate", models.DecimalField(decimal_places=3, max_digits=6, null=True)),
                ("reason", models.CharField(blank=True, max_length=500)),
                ("line_count", models.PositiveIntegerField()),
                ("document", models.TextField()),
                ("digest", models.CharField(max_length=64)),
                ("issued_by_id", models.UUIDField(null=True)),
                ("issued_by_name", models.CharField(max_length=254)),
                ("issued_at", models.DateTimeField()),
                (
                    "organisation",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="invoices_issued", to="tenancy.tenant"
                    ),
                ),
                (
                    "period",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="invoices", to="billing.ledgerperiod"
                    ),
                ),
                (
                    "reference",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="credit_notes",
                        to="billing.invoice",
                    ),
                ),
                (
                    "tenant",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="invoices", to="tenancy.tenant"
                    ),
                ),
            ],
            options={
                "indexes": [models.Index(fields=["tenant", "period"], name="invoices_by_tenant")],
                "constraints": [
                    models.UniqueConstraint(
                        fields=("organisation", "kind", "sequence"), name="one_document_per_number"
                    ),
                    models.UniqueConstraint(
                        condition=models.Q(("kind", "credit_note"), _negated=True),
                        fields=("period", "revision", "tenant", "currency", "edition"),
                        name="one_invoice_per_close_and_edition",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            (
                                "total",
                                django.db.models.expressions.CombinedExpression(
                                    models.F("subtotal"), "+", models.F("tax")
                                ),
                            )
                        ),
                        name="total_is_subtotal_and_tax",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(
                                ("kind", "credit_note"),
                                ("reference__isnull", False),
                                models.Q(("reason", ""), _negated=True),
                            ),
                            models.Q(
                                ("kind__in", ["invoice", "statement"]), ("reason", ""), ("reference__isnull", True)
                            ),
                            _connector="OR",
                        ),
                        name="only_a_credit_note_has_a_reference",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("edition__gte", 1), ("sequence__gte", 1)), name="documents_count_from_one"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(models.Q(("kind", "statement"), _negated=True), ("tax", 0), _connector="OR"),
                        name="statement_has_no_tax",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("currency__regex", "^[A-Z]{3}$")), name="invoice_currency_is_three_letters"
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="InvoiceLine",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("number", models.PositiveIntegerField()),
                ("kind", models.CharField(max_length=10)),
                ("tenant_path", models.CharField(db_collation="C", max_length=1100)),
                ("cluster_name", models.CharField(blank=True, max_length=253)),
                ("flavor", models.CharField(blank=True, max_length=120)),
                ("month", models.DateField(help_text="Of use.")),
                ("quantity", models.BigIntegerField(null=True)),
                ("exact", models.DecimalField(decimal_places=12, max_digits=38)),
                ("amount", models.DecimalField(decimal_places=12, help_text="In the minor unit.", max_digits=38)),
                ("tax", models.DecimalField(decimal_places=12, help_text="Its part of the tax.", max_digits=38)),
                (
                    "cluster",
                    models.ForeignKey(
                        null=True, on_delete=django.db.models.deletion.PROTECT, related_name="+", to="clusters.cluster"
                    ),
                ),
                (
                    "credits",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="credited_by",
                        to="billing.invoiceline",
                    ),
                ),
                (
                    "invoice",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="lines", to="billing.invoice"
                    ),
                ),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(fields=("invoice", "number"), name="one_line_per_number"),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(
                                ("credits__isnull", False), ("kind", "credit"), models.Q(("amount", 0), _negated=True)
                            ),
                            models.Q(("credits__isnull", True), ("kind__in", ["charge", "correction", "adjustment"])),
                            _connector="OR",
                        ),
                        name="only_a_credit_credits",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="InvoiceRemark",
            fields=[
                (
                    "id",
                    models.UUIDField(default=foundation.ids.new_id, editable=False, primary_key=True, serialize=False),
                ),
                ("kind", models.CharField(choices=[("remark", "Remark"), ("dispute", "Dispute")], max_length=7)),
                (
                    "state",
                    models.CharField(
                        choices=[("open", "Open"), ("answered", "Answered"), ("resolved", "Resolved")],
                        db_default="open",
                        default="open",
                        max_length=8,
                    ),
                ),
                (
                    "entries",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.BigIntegerField(),
                        db_default=[],
                        default=list,
                        help_text="Ids of the ledger's entries; the trigger sets them.",
                        size=None,
                    ),
                ),
                ("text", models.CharField(max_length=500)),
                ("opened_by_id", models.UUIDField(null=True)),
                ("opened_by_name", models.CharField(max_length=254)),
                ("opened_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ("answer", models.CharField(blank=True, db_default="", default="", max_length=500)),
                ("answered_by_name", models.CharField(blank=True, db_default="", default="", max_length=254)),
                ("answered_at", models.DateTimeField(null=True)),
                (
                    "outcome",
                    models.CharField(
                        blank=True,
                        choices=[("accepted", "Accepted"), ("rejected", "Rejected")],
                        db_default="",
                        default="",
                        max_length=8,
                    ),
                ),
                ("resolved_by_id", models.UUIDField(null=True)),
                ("resolved_by_name", models.CharField(blank=True, db_default="", default="", max_length=254)),
                ("resolved_at", models.DateTimeField(null=True)),
                (
                    "line",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="remarks", to="billing.invoiceline"
                    ),
                ),
                (
                    "organisation",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="+", to="tenancy.tenant"
                    ),
                ),
            ],
            options={
                "indexes": [
                    models.Index(
                        condition=models.Q(("state", "resolved"), _negated=True),
                        fields=["organisation"],
                        name="remarks_to_resolve",
                    )
                ],
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(models.Q(("text", ""), _negated=True), ("kind__in", ["remark", "dispute"])),
                        name="remark_says_something",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("answer", ""), ("answered_at__isnull", True), ("state", "open")),
                            models.Q(
                                ("answered_at__isnull", False),
                                ("state__in", ["answered", "resolved"]),
                                models.Q(("answer", ""), _negated=True),
                            ),
                            _connector="OR",
                        ),
                        name="answered_remark_has_its_answer",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(
                                ("outcome__in", ["accepted", "rejected"]),
                                ("resolved_at__isnull", False),
                                ("state", "resolved"),
                            ),
                            models.Q(
                                ("outcome", ""),
                                ("resolved_at__isnull", True),
                                models.Q(("state", "resolved"), _negated=True),
                            ),
                            _connector="OR",
                        ),
                        name="resolved_remark_has_its_outcome",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("kind", "dispute"), ("outcome", "accepted"), _negated=True),
                            ("resolved_by_id__isnull", True),
                            ("opened_by_id__isnull", True),
                            models.Q(("resolved_by_id", models.F("opened_by_id")), _negated=True),
                            _connector="OR",
                        ),
                        name="accepted_dispute_needs_two_people",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="InvoiceTerms",
            fields=[
                (
                    "tenant",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.PROTECT,
                        primary_key=True,
                        related_name="invoice_terms",
                        serialize=False,
                        to="tenancy.tenant",
                    ),
                ),
                ("issuer", models.CharField(blank=True, help_text="Empty: the organisation's name.", max_length=200)),
                (
                    "tax_rate",
                    models.DecimalField(
                        decimal_places=3, help_text="Percent; null: no tax line.", max_digits=6, null=True
                    ),
                ),
                ("tax_name", models.CharField(blank=True, max_length=40)),
                ("payment_days", models.PositiveSmallIntegerField(default=30)),
                ("cost_centre", models.CharField(blank=True, max_length=200)),
                ("gl_account", models.CharField(blank=True, max_length=200)),
                ("remark", models.CharField(blank=True, max_length=500)),
                ("updated_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
            ],
            options={
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(
                            ("tax_rate__isnull", True),
                            models.Q(("tax_rate__gt", 0), ("tax_rate__lte", 100)),
                            _connector="OR",
                        ),
                        name="tax_rate_is_a_percentage",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("payment_days__lte", 365)), name="payment_is_within_a_year"
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="InvoiceBalance",
            fields=[
                (
                    "line",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.PROTECT,
                        primary_key=True,
                        related_name="balance",
                        serialize=False,
                        to="billing.invoiceline",
                    ),
                ),
                ("amount", models.DecimalField(decimal_places=12, max_digits=38)),
                ("tax", models.DecimalField(decimal_places=12, max_digits=38)),
                ("credited", models.DecimalField(decimal_places=12, max_digits=38)),
                ("credited_tax", models.DecimalField(decimal_places=12, max_digits=38)),
            ],
            options={
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(
                                models.Q(
                                    ("amount__gte", 0), ("credited__gte", 0), ("credited__lte", models.F("amount"))
                                ),
                                models.Q(
                                    ("amount__lt", 0), ("credited__gte", models.F("amount")), ("credited__lte", 0)
                                ),
                                _connector="OR",
                            ),
                            models.Q(
                                models.Q(
                                    ("credited_tax__gte", 0), ("credited_tax__lte", models.F("tax")), ("tax__gte", 0)
                                ),
                                models.Q(
                                    ("credited_tax__gte", models.F("tax")), ("credited_tax__lte", 0), ("tax__lt", 0)
                                ),
                                _connector="OR",
                            ),
                        ),
                        name="credit_is_at_most_what_was_invoiced",
                    )
                ],
            },
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
        migrations.CreateModel(
            name="NegativeIdle",
            fields=[
                (
                    "id",
                    models.UUIDField(default=foundation.ids.new_id, editable=False, primary_key=True, serialize=False),
                ),
                ("flavor", models.CharField(max_length=120)),
                ("day", models.DateField()),
                ("currency", models.CharField(max_length=3)),
                ("cost", models.DecimalField(decimal_places=12, max_digits=38)),
                ("charged", models.DecimalField(decimal_places=12, max_digits=38)),
                ("seen_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                (
                    "state",
                    models.CharField(
                        choices=[("open", "Open"), ("accepted", "Accepted"), ("superseded", "Superseded")],
                        db_default="open",
                        default="open",
                        max_length=10,
                    ),
                ),
                ("note", models.CharField(blank=True, db_default="", default="", max_length=500)),
                ("decided_by_id", models.UUIDField(null=True)),
                ("decided_by_name", models.CharField(blank=True, db_default="", default="", max_length=254)),
                ("decided_at", models.DateTimeField(null=True)),
                (
                    "cluster",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="+", to="clusters.cluster"
                    ),
                ),
                (
                    "period",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="negative_idle",
                        to="billing.ledgerperiod",
                    ),
                ),
            ],
            options={
                "indexes": [models.Index(fields=["period", "state"], name="negative_idle_by_state")],
                "constraints": [
                    models.UniqueConstraint(
                        fields=("period", "cluster", "flavor", "day", "currency", "cost", "charged"),
                        name="one_row_of_these_numbers",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("charged__gt", models.F("cost"))), name="negative_idle_is_negative"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("decided_at__isnull", True), ("state", "open")),
                            models.Q(("decided_at__isnull", False), ("state", "superseded")),
                            models.Q(
                                ("decided_at__isnull", False),
                                ("state", "accepted"),
                                models.Q(("note", ""), _negated=True),
                            ),
                            _connector="OR",
                        ),
                        name="accepted_idle_says_why",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="PoolDay",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("revision", models.PositiveIntegerField(help_text="The close that it is of.")),
                ("flavor", models.CharField(max_length=120)),
                ("day", models.DateField()),
                ("currency", models.CharField(max_length=3)),
                ("cost", models.DecimalField(decimal_places=12, max_digits=38)),
                ("charged", models.DecimalField(decimal_places=12, max_digits=38)),
                ("overhead", models.DecimalField(decimal_places=12, max_digits=38)),
                ("idle", models.DecimalField(decimal_places=12, max_digits=38)),
                ("shared", models.DecimalField(decimal_places=12, max_digits=38)),
                (
                    "assumed",
                    models.DecimalField(
                        decimal_places=12,
                        help_text="The part of the cost that is of time without observation.",
                        max_digits=38,
                    ),
                ),
                ("last_entry", models.BigIntegerField()),
                ("last_correction", models.BigIntegerField()),
                (
                    "cluster",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="+", to="clusters.cluster"
                    ),
                ),
                (
                    "period",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="pool_days", to="billing.ledgerperiod"
                    ),
                ),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(
                        fields=("period", "revision", "cluster", "flavor", "day", "currency"),
                        name="one_balance_a_pool_day",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            (
                                "cost",
                                django.db.models.expressions.CombinedExpression(
                                    django.db.models.expressions.CombinedExpression(
                                        models.F("charged"), "+", models.F("overhead")
                                    ),
                                    "+",
                                    models.F("idle"),
                                ),
                            )
                        ),
                        name="pool_day_adds_up_to_its_cost",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("overhead__gte", 0),
                            ("shared__gte", 0),
                            models.Q(("shared", 0), ("shared__lte", models.F("idle")), _connector="OR"),
                        ),
                        name="no_more_is_shared_than_is_idle",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("assumed__gte", 0), ("assumed__lte", models.F("cost"))),
                        name="assumed_is_a_part",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="SharingPolicy",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("effective_from", models.DateField(help_text="The first day of a month, UTC.")),
                (
                    "idle",
                    models.CharField(
                        choices=[
                            ("central", "Central"),
                            ("proportional", "Proportional"),
                            ("reservations", "Reservations"),
                        ],
                        max_length=12,
                    ),
                ),
                (
                    "platform",
                    models.CharField(
                        choices=[("fixed", "Fixed"), ("even", "Even"), ("proportional", "Proportional")],
                        default="proportional",
                        max_length=12,
                    ),
                ),
                (
                    "platform_cost",
                    models.DecimalField(decimal_places=6, default=0, help_text="Of each month.", max_digits=18),
                ),
                ("platform_currency", models.CharField(blank=True, max_length=3)),
                (
                    "platform_weights",
                    models.JSONField(blank=True, default=dict, help_text="By the tenant's id, if it is `fixed`."),
                ),
                ("made_by_id", models.UUIDField(null=True)),
                ("made_by_name", models.CharField(max_length=254)),
                ("created_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                (
                    "organisation",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="sharing_policies",
                        to="tenancy.tenant",
                    ),
                ),
            ],
            options={
                "indexes": [
                    models.Index(fields=["organisation", "-effective_from", "-id"], name="policies_latest_first")
                ],
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(("effective_from__day", 1)), name="policy_begins_with_a_month"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("platform_cost", 0), ("platform_currency", "")),
                            models.Q(("platform_cost__gt", 0), ("platform_currency__regex", "^[A-Z]{3}$")),
                            _connector="OR",
                        ),
                        name="platform_cost_has_a_currency",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("idle__in", ["central", "proportional", "reservations"]),
                            ("platform__in", ["fixed", "even", "proportional"]),
                        ),
                        name="policy_is_known",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="BudgetForecastAlert",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("percent", models.PositiveSmallIntegerField()),
                ("spent", models.DecimalField(decimal_places=12, help_text="When it was expected.", max_digits=38)),
                ("amount", models.DecimalField(decimal_places=12, help_text="When it was expected.", max_digits=38)),
                ("expected", models.DecimalField(decimal_places=12, max_digits=38)),
                ("low", models.DecimalField(decimal_places=12, max_digits=38)),
                ("high", models.DecimalField(decimal_places=12, max_digits=38)),
                ("reached_on", models.DateField(help_text="The day on which the threshold is expected to be reached.")),
                ("at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                (
                    "period",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="forecast_alerts",
                        to="billing.budgetperiod",
                    ),
                ),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(
                        fields=("period", "percent"), name="each_forecast_threshold_alerts_once_per_period"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("high__gte", models.F("expected")), ("low__lte", models.F("expected"))),
                        name="forecast_is_within_its_range",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="SpendAnomaly",
            fields=[
                (
                    "id",
                    models.UUIDField(default=foundation.ids.new_id, editable=False, primary_key=True, serialize=False),
                ),
                ("tenant_path", models.CharField(db_collation="C", max_length=1100)),
                ("flavor", models.CharField(max_length=120)),
                ("currency", models.CharField(max_length=3)),
                ("day", models.DateField()),
                ("cost", models.DecimalField(decimal_places=12, max_digits=38)),
                (
                    "usual",
                    models.DecimalField(
                        decimal_places=12, help_text="The median that it was compared with.", max_digits=38
                    ),
                ),
                (
                    "spread",
                    models.DecimalField(decimal_places=12, help_text="The median absolute deviation.", max_digits=38),
                ),
                (
                    "state",
                    models.CharField(
                        choices=[
                            ("open", "Open"),
                            ("explained", "Explained"),
                            ("dismissed", "Dismissed"),
                            ("closed", "Closed"),
                        ],
                        default="open",
                        max_length=10,
                    ),
                ),
                ("reason", models.CharField(blank=True, default="", max_length=500)),
                ("decided_by_id", models.UUIDField(null=True)),
                ("decided_by_name", models.CharField(blank=True, default="", max_length=254)),
                ("decided_at", models.DateTimeField(null=True)),
                ("found_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                (
                    "cluster",
                    models.ForeignKey(
                        help_text="Null: all clusters together.",
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="clusters.cluster",
                    ),
                ),
                (
                    "organisation",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="+", to="tenancy.tenant"
                    ),
                ),
                (
                    "tenant",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="anomalies", to="tenancy.tenant"
                    ),
                ),
            ],
            options={
                "indexes": [models.Index(fields=["organisation", "state", "day"], name="anomalies_by_state")],
                "constraints": [
                    models.UniqueConstraint(
                        fields=("tenant", "day", "cluster", "flavor", "tenant_path", "currency"),
                        name="one_anomaly_a_day",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("cost__gt", models.F("usual")), ("spread__gte", 0), ("usual__gte", 0)),
                        name="anomaly_is_more_than_usual",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(
                                ("decided_at", None),
                                ("decided_by_id", None),
                                ("decided_by_name", ""),
                                ("reason", ""),
                                ("state", "open"),
                            ),
                            models.Q(
                                ("decided_at__isnull", False),
                                ("decided_by_id", None),
                                ("decided_by_name", ""),
                                ("state", "closed"),
                                models.Q(("reason", ""), _negated=True),
                            ),
                            models.Q(
                                ("decided_at__isnull", False),
                                ("state__in", ["explained", "dismissed"]),
                                models.Q(("reason", ""), _negated=True),
                                models.Q(("decided_by_name", ""), _negated=True),
                            ),
                            _connector="OR",
                        ),
                        name="anomaly_says_who_and_why",
                    ),
                    models.UniqueConstraint(
                        condition=models.Q(("cluster__isnull", True)),
                        fields=("tenant", "day", "flavor", "currency"),
                        name="one_anomaly_a_day_of_all_clusters",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="CreditPolicy",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("effective_from", models.DateField(help_text="The first day of a month, UTC.")),
                (
                    "causes",
                    models.JSONField(blank=True, default=list, help_text="Sorted; empty: all lost work is charged."),
                ),
                ("made_by_id", models.UUIDField(null=True)),
                ("made_by_name", models.CharField(max_length=254)),
                ("created_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                (
                    "organisation",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="credit_policies", to="tenancy.tenant"
                    ),
                ),
            ],
            options={
                "verbose_name_plural": "credit policies",
                "indexes": [
                    models.Index(fields=["organisation", "-effective_from", "-id"], name="credit_policies_newest_first")
                ],
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(("effective_from__day", 1)), name="credit_policy_begins_with_a_month"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("causes__contains", []),
                            (
                                "causes__contained_by",
                                [
                                    "node_lost",
                                    "evicted",
                                    "spot",
                                    "preempted",
                                    "device",
                                    "infrastructure",
                                    "bad_node",
                                    "cluster_lost",
                                    "maintenance",
                                ],
                            ),
                        ),
                        name="credit_policy_names_known_causes",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="LostWork",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("run_id", models.UUIDField()),
                (
                    "cause",
                    models.CharField(
                        blank=True,
                        choices=[
                            ("node_lost", "node_lost"),
                            ("evicted", "evicted"),
                            ("spot", "spot"),
                            ("preempted", "preempted"),
                            ("device", "device"),
                            ("infrastructure", "infrastructure"),
                            ("bad_node", "bad_node"),
                            ("cluster_lost", "cluster_lost"),
                            ("maintenance", "maintenance"),
                        ],
                        max_length=20,
                    ),
                ),
                (
                    "lost_from",
                    models.DateTimeField(help_text="The last checkpoint, or the start; whole milliseconds.", null=True),
                ),
                ("recorded_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
            ],
            options={
                "indexes": [
                    models.Index(fields=["run_id", "-id"], name="lost_work_newest_first"),
                    models.Index(
                        condition=models.Q(("lost_from__isnull", False)), fields=["lost_from"], name="lost_work_by_time"
                    ),
                ],
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("cause", ""), ("lost_from__isnull", True)),
                            models.Q(
                                (
                                    "cause__in",
                                    [
                                        "node_lost",
                                        "evicted",
                                        "spot",
                                        "preempted",
                                        "device",
                                        "infrastructure",
                                        "bad_node",
                                        "cluster_lost",
                                        "maintenance",
                                    ],
                                ),
                                ("lost_from__isnull", False),
                            ),
                            _connector="OR",
                        ),
                        name="lost_work_has_a_known_cause",
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="NegativeNodeHour",
            fields=[
                (
                    "id",
                    models.UUIDField(default=foundation.ids.new_id, editable=False, primary_key=True, serialize=False),
                ),
                ("node", models.CharField(max_length=253)),
                ("hour", models.DateTimeField(help_text="Its beginning, UTC.")),
                ("currency", models.CharField(max_length=3)),
                ("cost", models.DecimalField(decimal_places=12, max_digits=38)),
                ("charged", models.DecimalField(decimal_places=12, max_digits=38)),
                (
                    "cause",
                    models.CharField(
                        choices=[
                            ("unknown_node", "Unknown Node"),
                            ("node_seen_late", "Node Seen Late"),
                            ("double_report", "Double Report"),
                            ("overlap", "Overlap"),
                            ("prices_differ", "Prices Differ"),
                        ],
                        max_length=14,
                    ),
                ),
                ("runs", models.JSONField(default=list)),
                ("seen_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                (
                    "state",
                    models.CharField(
                        choices=[("open", "Open"), ("accepted", "Accepted"), ("superseded", "Superseded")],
                        db_default="open",
                        default="open",
                        max_length=10,
                    ),
                ),
                ("note", models.CharField(blank=True, db_default="", default="", max_length=500)),
                ("decided_by_id", models.UUIDField(null=True)),
                ("decided_by_name", models.CharField(blank=True, db_default="", default="", max_length=254)),
                ("decided_at", models.DateTimeField(null=True)),
                (
                    "cluster",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="+", to="clusters.cluster"
                    ),
                ),
                (
                    "organisation",
                    models.ForeignKey(
                        help_text="That owns the cluster.",
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="tenancy.tenant",
                    ),
                ),
            ],
            options={
                "indexes": [
                    models.Index(fields=["organisation", "-hour", "id"], name="negative_node_hours_latest"),
                    models.Index(
                        condition=models.Q(("state", "open")), fields=["hour"], name="open_negative_node_hours"
                    ),
                ],
                "constraints": [
                    models.UniqueConstraint(
                        fields=("cluster", "node", "hour", "currency", "cost", "charged"),
                        name="one_node_hour_of_these_numbers",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("charged__gt", models.F("cost"))), name="negative_node_hour_is_negative"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("decided_at__isnull", True), ("state", "open")),
                            models.Q(("decided_at__isnull", False), ("state", "superseded")),
                            models.Q(
                                ("decided_at__isnull", False),
                                ("state", "accepted"),
                                models.Q(("note", ""), _negated=True),
                            ),
                            _connector="OR",
                        ),
                        name="accepted_node_hour_says_why",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="BillingCurrency",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("effective_from", models.DateField(help_text="The first day of a month, UTC.")),
                ("currency", models.CharField(max_length=3)),
                ("made_by_id", models.UUIDField(null=True)),
                ("made_by_name", models.CharField(max_length=254)),
                ("created_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                (
                    "organisation",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="billing_currencies",
                        to="tenancy.tenant",
                    ),
                ),
            ],
            options={
                "verbose_name_plural": "billing currencies",
                "indexes": [
                    models.Index(
                        fields=["organisation", "-effective_from", "-id"], name="billing_currency_newest_first"
                    )
                ],
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(("effective_from__day", 1)), name="billing_currency_begins_with_a_month"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("currency__regex", "^[A-Z]{3}$")), name="billing_currency_is_three_letters"
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="ConversionDay",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("day", models.DateField()),
                (
                    "organisation",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="+", to="tenancy.tenant"
                    ),
                ),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(fields=("organisation", "day"), name="one_row_a_conversion_day")
                ],
            },
        ),
        migrations.CreateModel(
            name="ExchangeRate",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                (
                    "kind",
                    models.CharField(choices=[("reference", "Reference"), ("override", "Override")], max_length=9),
                ),
                ("base", models.CharField(max_length=3)),
                ("quote", models.CharField(max_length=3)),
                ("rate", models.DecimalField(decimal_places=12, max_digits=24)),
                ("valid_from", models.DateField()),
                (
                    "valid_until",
                    models.DateField(help_text="The first day on which an override no longer counts.", null=True),
                ),
                ("source", models.CharField(max_length=60)),
                ("reason", models.CharField(blank=True, db_default="", default="", max_length=500)),
                ("made_by_id", models.UUIDField(null=True)),
                ("made_by_name", models.CharField(max_length=254)),
                ("created_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                (
                    "organisation",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="exchange_rates",
                        to="tenancy.tenant",
                    ),
                ),
            ],
            options={
                "indexes": [
                    models.Index(
                        condition=models.Q(("kind", "reference")),
                        fields=["quote", "-valid_from", "-id"],
                        name="reference_rates_by_day",
                    ),
                    models.Index(
                        condition=models.Q(("kind", "override")),
                        fields=["organisation", "-id"],
                        name="overrides_newest_first",
                    ),
                ],
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(
                            ("base__regex", "^[A-Z]{3}$"),
                            ("quote__regex", "^[A-Z]{3}$"),
                            ("rate__gt", 0),
                            models.Q(("base", models.F("quote")), _negated=True),
                            models.Q(("source", ""), _negated=True),
                        ),
                        name="exchange_rate_is_of_two_currencies",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("base", "EUR"), ("kind", "reference"), ("valid_until__isnull", True)),
                            models.Q(
                                ("kind", "override"),
                                ("organisation__isnull", False),
                                ("valid_until__gt", models.F("valid_from")),
                                ("valid_until__isnull", False),
                                models.Q(("reason", ""), _negated=True),
                            ),
                            _connector="OR",
                        ),
                        name="exchange_rate_counts_for_its_days",
                    ),
                ],
            },
        ),
        migrations.RunSQL(TABLES, migrations.RunSQL.noop),
        rules("billing/prices.sql"),
        rules("billing/meters.sql"),
        rules("billing/days.sql"),
        rules("billing/price_corrections.sql"),
        rules("billing/ledger.sql"),
        rules("billing/conflicts.sql"),
        rules("billing/budgets.sql"),
        rules("billing/invoices.sql"),
        rules("billing/shared_idle.sql"),
        rules("billing/budget_corrections.sql"),
        rules("billing/forecasts.sql"),
        rules("billing/credits.sql"),
        rules("billing/node_hours.sql"),
        rules("billing/currencies.sql"),
    ]
