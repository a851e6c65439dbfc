"""Commitments to a spend: savings plans."""

from django.db import migrations, models

from foundation.rules import rules


class Migration(migrations.Migration):
    dependencies = [
        ("billing", "0019_price_currencies"),
    ]

    operations = [
        migrations.RemoveConstraint(
            model_name="commitmentversion",
            name="commitment_kind_is_known",
        ),
        migrations.RemoveConstraint(
            model_name="commitmentversion",
            name="commitment_has_units",
        ),
        migrations.RemoveConstraint(
            model_name="commitmentversion",
            name="commitment_names_its_flavor",
        ),
        migrations.AddField(
            model_name="commitmentversion",
            name="hourly",
            field=models.DecimalField(
                db_default=0,
                decimal_places=6,
                default=0,
                help_text="What a savings plan spends an hour.",
                max_digits=18,
            ),
        ),
        migrations.AddField(
            model_name="commitmentversion",
            name="rates",
            field=models.JSONField(
                db_default=models.Value([], output_field=models.JSONField()),
                default=list,
                help_text="Of a savings plan: [flavor, capacity type, price of a unit-hour as text], sorted (trigger).",
            ),
        ),
        migrations.AlterField(
            model_name="commitmentday",
            name="quantity",
            field=models.DecimalField(
                decimal_places=0,
                help_text="In thousandths of a unit times milliseconds; of a savings plan, 10**-12 of its currency.",
                max_digits=38,
            ),
        ),
        migrations.AlterField(
            model_name="commitmentversion",
            name="capacity_type",
            field=models.CharField(blank=True, max_length=20),
        ),
        migrations.AlterField(
            model_name="commitmentversion",
            name="flavor",
            field=models.CharField(blank=True, max_length=120),
        ),
        migrations.AlterField(
            model_name="commitmentversion",
            name="kind",
            field=models.CharField(
                choices=[
                    ("reserved_instance", "Reserved Instance"),
                    ("own_purchase", "Own Purchase"),
                    ("savings_plan", "Savings Plan"),
                ],
                max_length=17,
            ),
        ),
        migrations.AddConstraint(
            model_name="commitmentversion",
            constraint=models.CheckConstraint(
                condition=models.Q(("kind__in", ["reserved_instance", "own_purchase", "savings_plan"])),
                name="commitment_kind_is_known",
            ),
        ),
        migrations.AddConstraint(
            model_name="commitmentversion",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("hourly__gt", 0), ("kind", "savings_plan"), ("recurring", 0), ("units", 0)),
                    models.Q(
                        models.Q(("kind", "savings_plan"), _negated=True),
                        ("hourly", 0),
                        ("rates", []),
                        ("units__gte", 1),
                        ("units__lte", 1000000),
                    ),
                    _connector="OR",
                ),
                name="commitment_has_units",
            ),
        ),
        migrations.AddConstraint(
            model_name="commitmentversion",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("capacity_type", ""), ("flavor", ""), ("kind", "savings_plan")),
                    models.Q(
                        models.Q(("kind", "savings_plan"), _negated=True),
                        models.Q(("flavor", ""), _negated=True),
                        models.Q(("capacity_type", ""), _negated=True),
                    ),
                    _connector="OR",
                ),
                name="commitment_names_its_flavor",
            ),
        ),
        rules(
            "billing/commitments.sql",
            "FUNCTION billing_plan_rest",
            "FUNCTION billing_commitment_paid",
            "FUNCTION billing_are_plan_rates",
            "FUNCTION billing_covers_flavor",
            "FUNCTION billing_admit_commitment_version",
            "FUNCTION billing_mark_counted_commitments",
            "FUNCTION billing_commitment_errors",
        ),
    ]
