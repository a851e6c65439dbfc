"""Numeric columns refuse NaN and infinities, which PostgreSQL takes for greater than every number."""

from django.db import migrations, models

import foundation.finite


class Migration(migrations.Migration):
    dependencies = [
        ("quotas", "0011_class_limits_of_tenants"),
        ("tenancy", "0001_squashed_0002_weight"),
    ]

    operations = [
        migrations.AddConstraint(
            model_name="pastuse",
            constraint=models.CheckConstraint(
                condition=models.Q(foundation.finite.IsFinite("level")), name="past_use_numbers_are_finite"
            ),
        ),
        migrations.AddConstraint(
            model_name="submissionlimit",
            constraint=models.CheckConstraint(
                condition=models.Q(foundation.finite.IsFinite("tokens")), name="submission_limit_numbers_are_finite"
            ),
        ),
    ]
