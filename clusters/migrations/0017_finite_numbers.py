"""Numeric columns refuse NaN and infinities, which PostgreSQL takes for greater than every number."""

from django.db import migrations, models

import foundation.finite


class Migration(migrations.Migration):
    dependencies = [
        ("clusters", "0016_storage_classes_and_images"),
    ]

    operations = [
        migrations.AddConstraint(
            model_name="datasetreplica",
            constraint=models.CheckConstraint(
                condition=models.Q(foundation.finite.IsFinite("egress_cost")), name="dataset_replica_numbers_are_finite"
            ),
        ),
    ]
