"""Numeric columns refuse NaN and infinities, which PostgreSQL takes for greater than every number."""

import foundation.finite
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('foundation', '0001_initial'),
    ]

    operations = [
        migrations.AddConstraint(
            model_name='routine',
            constraint=models.CheckConstraint(condition=models.Q(foundation.finite.IsFinite('seconds')), name='routine_numbers_are_finite'),
        ),
    ]
