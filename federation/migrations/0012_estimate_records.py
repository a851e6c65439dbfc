"""How far the estimates of users have been kept."""

import django.db.models.functions.datetime
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('federation', '0011_rules_read_by_index'),
        ('tenancy', '0002_weight'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name='EstimateRecord',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('stated_seconds', models.FloatField(help_text='The sum, in which later runs count more.')),
                ('taken_seconds', models.FloatField(help_text='Likewise of what the runs took.')),
                ('last_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('tenant', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='+', to='tenancy.tenant')),
                ('user', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='+', to=settings.AUTH_USER_MODEL)),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('tenant', 'user'), name='one_estimate_record_per_tenant_and_user'), models.CheckConstraint(condition=models.Q(('stated_seconds__gte', 60), ('taken_seconds__gte', 60)), name='estimate_record_is_of_runs')],
            },
        ),
    ]
