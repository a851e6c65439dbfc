"""Policies may allow, prefer and weigh the strategy `greenest`."""

import django.contrib.postgres.fields
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("federation", "0035_saving_moves"),
        ("tenancy", "0001_squashed_0002_weight"),
    ]

    operations = [
        migrations.RemoveConstraint(
            model_name="placementpolicy",
            name="policy_default_strategy_is_known",
        ),
        migrations.RemoveConstraint(
            model_name="placementpolicy",
            name="policy_strategies_are_known",
        ),
        migrations.RemoveConstraint(
            model_name="policyweight",
            name="weighed_strategy_is_known",
        ),
        migrations.AlterField(
            model_name="placementpolicy",
            name="strategies",
            field=django.contrib.postgres.fields.ArrayField(
                base_field=models.CharField(max_length=20), blank=True, default=list, size=6
            ),
        ),
        migrations.AddConstraint(
            model_name="placementpolicy",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    ("default_strategy__in", ["", "balanced", "cheapest", "soonest", "pack", "spread", "greenest"])
                ),
                name="policy_default_strategy_is_known",
            ),
        ),
        migrations.AddConstraint(
            model_name="placementpolicy",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    ("strategies__contained_by", ["balanced", "cheapest", "soonest", "pack", "spread", "greenest"])
                ),
                name="policy_strategies_are_known",
            ),
        ),
        migrations.AddConstraint(
            model_name="policyweight",
            constraint=models.CheckConstraint(
                condition=models.Q(("strategy__in", ("balanced", "cheapest", "soonest", "pack", "spread", "greenest"))),
                name="weighed_strategy_is_known",
            ),
        ),
    ]
