"""The cost of lost work in a part of a day: a segment before it is cut to nothing."""

from django.db import migrations

from foundation.rules import rules


class Migration(migrations.Migration):

    dependencies = [
        ('billing', '0029_recommendations'),
    ]

    operations = [
        rules("billing/credits.sql", "FUNCTION billing_span", "FUNCTION billing_day_credit", "FUNCTION billing_lost_costs"),
    ]
