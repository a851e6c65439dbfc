"""Prices from own costs keep their inputs; `sql/own_costs.sql` has what the table refuses."""

from django.db import migrations, models

from foundation.rules import rules


class Migration(migrations.Migration):
    dependencies = [("billing", "0025_mail")]

    operations = [
        migrations.AddField(
            model_name="price",
            name="own_costs",
            field=models.JSONField(
                help_text="The inputs of the price from own costs, with their formula; null: it was given.", null=True
            ),
        ),
        rules("billing/prices.sql", "FUNCTION billing_guard_price"),
        rules("billing/own_costs.sql"),
    ]
