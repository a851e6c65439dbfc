"""Holds know the class of their work, and classes have limits."""

import foundation.ids
from django.db import migrations, models

from foundation.rules import rules


class Migration(migrations.Migration):

    dependencies = [
        ('quotas', '0009_holds_move'),
    ]

    operations = [
        migrations.AddField(
            model_name='hold',
            name='class_name',
            field=models.CharField(blank=True, db_default='', default='', max_length=63),
        ),
        migrations.CreateModel(
            name='ClassLimit',
            fields=[
                ('id', models.UUIDField(default=foundation.ids.new_id, editable=False, primary_key=True, serialize=False)),
                ('class_name', models.CharField(max_length=63)),
                ('resource', models.CharField(max_length=80)),
                ('most', models.BigIntegerField()),
                ('held', models.BigIntegerField(default=0, editable=False)),
                ('updated_at', models.DateTimeField(auto_now=True)),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('class_name', 'resource'), name='one_limit_per_class_and_resource'), models.CheckConstraint(condition=models.Q(('class_name', ''), _negated=True), name='class_limit_names_a_class'), models.CheckConstraint(condition=models.Q(('most__gte', 0), ('most__lte', 1000000000000000)), name='class_limit_is_in_range'), models.CheckConstraint(condition=models.Q(('held__gte', 0)), name='class_limit_holds_not_less_than_nothing'), models.CheckConstraint(condition=models.Q(('resource__regex', '^(gpu|gpu:[A-Za-z0-9][A-Za-z0-9._-]*|cpu|memory|jobs)$')), name='class_limit_resource_is_known')],
            },
        ),
        rules("quotas/holds.sql", "FUNCTION quotas_guard_hold"),
        rules("quotas/classes.sql"),
    ]
