"""What energy and emissions are computed from; `sql/carbon.sql` has what these tables refuse."""

import django.db.models.deletion
import django.db.models.functions.datetime
from django.db import migrations, models

from foundation.rules import rules


class Migration(migrations.Migration):
    dependencies = [
        ("billing", "0017_judged_with_their_lines"),
        ("clusters", "0013_networks"),
        ("tenancy", "0001_squashed_0002_weight"),
    ]

    operations = [
        migrations.CreateModel(
            name="CarbonSite",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("source", models.CharField(max_length=200)),
                ("licence", models.CharField(blank=True, db_default="", default="", max_length=120)),
                ("made_by_id", models.UUIDField(null=True)),
                ("made_by_name", models.CharField(max_length=254)),
                ("created_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ("since", models.DateTimeField(help_text="A whole hour, UTC.")),
                ("region", models.CharField(max_length=63)),
                ("pue_thousandths", models.PositiveIntegerField()),
                (
                    "cluster",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="+", to="clusters.cluster"
                    ),
                ),
            ],
            options={
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(("pue_thousandths__gte", 1000), ("pue_thousandths__lte", 10000)),
                        name="pue_is_within_bounds",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("source", ""), _negated=True), models.Q(("region", ""), _negated=True)
                        ),
                        name="carbon_site_has_region_and_source",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="GridIntensity",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("source", models.CharField(max_length=200)),
                ("licence", models.CharField(blank=True, db_default="", default="", max_length=120)),
                ("made_by_id", models.UUIDField(null=True)),
                ("made_by_name", models.CharField(max_length=254)),
                ("created_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ("region", models.CharField(help_text="Of the grid, as sites of clusters name it.", max_length=63)),
                ("valid_from", models.DateTimeField(help_text="A whole hour, UTC.")),
                (
                    "valid_until",
                    models.DateTimeField(help_text="A whole hour, UTC; the first to which it does not apply."),
                ),
                ("milligrams_per_kwh", models.PositiveIntegerField(help_text="CO2 equivalents.")),
                (
                    "organisation",
                    models.ForeignKey(
                        null=True, on_delete=django.db.models.deletion.PROTECT, related_name="+", to="tenancy.tenant"
                    ),
                ),
            ],
            options={
                "indexes": [models.Index(fields=["region", "valid_from"], name="grid_intensities_by_hour")],
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(("valid_until__gt", models.F("valid_from"))), name="grid_intensity_has_hours"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("milligrams_per_kwh__lte", 10000000)),
                        name="grid_intensity_is_within_bounds",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("source", ""), _negated=True),
                            models.Q(("licence", ""), _negated=True),
                            models.Q(("region", ""), _negated=True),
                        ),
                        name="grid_intensity_has_source_and_licence",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="MeasuredEnergy",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("source", models.CharField(max_length=200)),
                ("licence", models.CharField(blank=True, db_default="", default="", max_length=120)),
                ("made_by_id", models.UUIDField(null=True)),
                ("made_by_name", models.CharField(max_length=254)),
                ("created_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ("hour", models.DateTimeField(help_text="Its beginning, UTC.")),
                ("milliwatt_hours", models.PositiveBigIntegerField()),
                (
                    "meter",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="billing.meter",
                    ),
                ),
            ],
            options={
                "indexes": [
                    models.Index(fields=["meter", "hour", "-id"], name="measured_energy_of_meters"),
                    models.Index(fields=["hour"], name="measured_energy_by_hour"),
                ],
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(("milliwatt_hours__lte", 1000000000)),
                        name="measured_energy_is_within_bounds",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("source", ""), _negated=True), name="measured_energy_has_a_source"
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="PowerRating",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("source", models.CharField(max_length=200)),
                ("licence", models.CharField(blank=True, db_default="", default="", max_length=120)),
                ("made_by_id", models.UUIDField(null=True)),
                ("made_by_name", models.CharField(max_length=254)),
                ("created_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ("part", models.CharField(choices=[("gpu", "Gpu"), ("core", "Core"), ("gib", "Gib")], max_length=4)),
                ("gpu_model", models.CharField(blank=True, db_default="", default="", max_length=63)),
                ("since", models.DateTimeField(help_text="A whole hour, UTC.")),
                ("milliwatts", models.PositiveBigIntegerField()),
                (
                    "embodied_grams",
                    models.PositiveBigIntegerField(help_text="CO2 equivalents of its production.", null=True),
                ),
                ("life_hours", models.PositiveIntegerField(help_text="Over which they are spread.", null=True)),
                (
                    "organisation",
                    models.ForeignKey(
                        null=True, on_delete=django.db.models.deletion.PROTECT, related_name="+", to="tenancy.tenant"
                    ),
                ),
            ],
            options={
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("part", "gpu"), models.Q(("gpu_model", ""), _negated=True)),
                            models.Q(("gpu_model", ""), ("part__in", ["core", "gib"])),
                            _connector="OR",
                        ),
                        name="power_rating_is_of_a_part",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("milliwatts__lte", 100000000)), name="power_is_within_bounds"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("embodied_grams__isnull", True), ("life_hours__isnull", True)),
                            models.Q(
                                ("embodied_grams__isnull", False),
                                ("embodied_grams__lte", 1000000000),
                                ("life_hours__gte", 1),
                                ("life_hours__isnull", False),
                                ("life_hours__lte", 438000),
                            ),
                            _connector="OR",
                        ),
                        name="embodied_emissions_have_a_life",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("source", ""), _negated=True), name="power_rating_has_a_source"
                    ),
                ],
            },
        ),
        rules("billing/carbon.sql"),
    ]
