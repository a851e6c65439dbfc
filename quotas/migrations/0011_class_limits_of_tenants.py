"""Tenants have limits of classes, beside those of the whole installation."""

import django.db.models.deletion
from django.db import migrations, models

from foundation.rules import rules


class Migration(migrations.Migration):

    dependencies = [
        ('quotas', '0010_class_limits'),
        ('tenancy', '0001_squashed_0002_weight'),
    ]

    operations = [
        migrations.AddField(
            model_name='classlimit',
            name='tenant',
            field=models.ForeignKey(null=True, on_delete=django.db.models.deletion.PROTECT, related_name='class_limits', to='tenancy.tenant'),
        ),
        migrations.RemoveConstraint(
            model_name='classlimit',
            name='one_limit_per_class_and_resource',
        ),
        migrations.AddConstraint(
            model_name='classlimit',
            constraint=models.UniqueConstraint(fields=('class_name', 'resource', 'tenant'), name='one_limit_per_class_and_resource', nulls_distinct=False),
        ),
        rules(
            "quotas/classes.sql",
            "FUNCTION quotas_change_held_of_classes",
            "FUNCTION quotas_work_of_class_takes",
            "FUNCTION quotas_work_of_class_gives_back",
            "FUNCTION quotas_work_of_class_follows_tenant",
            "TRIGGER quotas_work_of_class_follows_tenant",
            "FUNCTION quotas_guard_class_limit",
        ),
    ]
