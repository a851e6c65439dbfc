"""Past use of tenants, moved by the ends of their holds (`0003_past_use.sql`)."""

from pathlib import Path

import django.db.models.deletion
from django.db import migrations, models

SQL = Path(__file__).with_name("0003_past_use.sql").read_text(encoding="utf-8")
UNDO = """
DROP TRIGGER quotas_past_use_grows ON quotas_hold;
DROP TRIGGER quotas_half_life_counts_anew ON quotas_pasthalflife;
DROP TRIGGER quotas_guard_past_use ON quotas_pastuse;
DROP FUNCTION quotas_add_past_use, quotas_count_past_use, quotas_guard_past_use, quotas_past_use_of_holds, quotas_half_life;
DROP FUNCTION quotas_counted, quotas_left_after;
"""


class Migration(migrations.Migration):

    dependencies = [
        ('quotas', '0002_borrowing'),
        ('tenancy', '0002_weight'),
    ]

    operations = [
        migrations.CreateModel(
            name='PastHalfLife',
            fields=[
                ('id', models.PositiveSmallIntegerField(default=1, primary_key=True, serialize=False)),
                ('half_life_seconds', models.PositiveIntegerField()),
            ],
            options={
                'verbose_name_plural': 'half-life of past use',
                'constraints': [models.CheckConstraint(condition=models.Q(('id', 1)), name='there_is_one_half_life'), models.CheckConstraint(condition=models.Q(('half_life_seconds__gte', 60), ('half_life_seconds__lte', 31622400)), name='half_life_is_in_range')],
            },
        ),
        migrations.CreateModel(
            name='PastUse',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('resource', models.CharField(max_length=10)),
                ('level', models.FloatField(help_text='In base units.')),
                ('at', models.DateTimeField()),
                ('tenant', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to='tenancy.tenant')),
            ],
            options={
                'verbose_name_plural': 'past use',
                'constraints': [models.UniqueConstraint(fields=('tenant', 'resource'), name='one_past_use_per_tenant_and_resource'), models.CheckConstraint(condition=models.Q(('resource__in', ['gpu', 'cpu', 'memory'])), name='past_use_resource_counts'), models.CheckConstraint(condition=models.Q(('level__gte', 0)), name='past_use_is_not_negative')],
            },
        ),
        migrations.RunSQL(SQL, UNDO),
    ]
