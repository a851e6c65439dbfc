"""What the GPUs of metered pods did, hour by hour; `sql/utilisation.sql` has what its table refuses."""


import django.db.models.deletion
import django.db.models.functions.datetime
from django.db import migrations, models

from foundation.rules import rules


class Migration(migrations.Migration):

    dependencies = [
        ('billing', '0023_reconciliation'),
        ('clusters', '0015_prometheus'),
    ]

    operations = [
        migrations.CreateModel(
            name='TelemetryHour',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('hour', models.DateTimeField()),
                ('asks', models.PositiveSmallIntegerField(db_default=0, default=0)),
                ('next_at', models.DateTimeField(null=True)),
                ('asked_at', models.DateTimeField(null=True)),
                ('pods', models.PositiveIntegerField(db_default=0, default=0)),
                ('measured', models.PositiveIntegerField(db_default=0, default=0)),
                ('foreign', models.PositiveIntegerField(db_default=0, default=0)),
                ('unusable', models.PositiveIntegerField(db_default=0, default=0)),
                ('why_not', models.CharField(blank=True, db_default='', default='', max_length=200)),
                ('cluster', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='+', to='clusters.cluster')),
            ],
            options={
                'indexes': [models.Index(condition=models.Q(('next_at__isnull', False)), fields=['next_at'], name='due_telemetry_hours')],
                'constraints': [models.UniqueConstraint(fields=('cluster', 'hour'), name='one_telemetry_hour_a_cluster_and_hour'), models.CheckConstraint(condition=models.Q(('hour', models.Func(models.Value('hour'), models.F('hour'), models.Value('UTC'), function='date_trunc', output_field=models.DateTimeField()))), name='telemetry_hour_is_whole'), models.CheckConstraint(condition=models.Q(('measured__lte', models.F('pods'))), name='telemetry_measures_pods')],
            },
        ),
        migrations.CreateModel(
            name='UtilisationHour',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('hour', models.DateTimeField()),
                ('coverage_seconds', models.PositiveSmallIntegerField(help_text='How much of it was seen, per GPU.')),
                ('utilisation', models.DecimalField(decimal_places=6, max_digits=7)),
                ('sm_active', models.DecimalField(decimal_places=6, max_digits=7, null=True)),
                ('tensor_active', models.DecimalField(decimal_places=6, max_digits=7, null=True)),
                ('peak_memory_mib', models.PositiveIntegerField(help_text='Of one GPU or slice.', null=True)),
                ('power_watts', models.DecimalField(decimal_places=3, help_text='Of one GPU.', max_digits=9, null=True)),
                ('measured_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('meter', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.PROTECT, related_name='utilisation', to='billing.meter')),
            ],
            options={
                'indexes': [models.Index(fields=['hour'], name='utilisation_by_hour')],
                'constraints': [models.UniqueConstraint(fields=('meter', 'hour'), name='one_utilisation_a_meter_and_hour'), models.CheckConstraint(condition=models.Q(('hour', models.Func(models.Value('hour'), models.F('hour'), models.Value('UTC'), function='date_trunc', output_field=models.DateTimeField()))), name='utilisation_hour_is_whole'), models.CheckConstraint(condition=models.Q(('coverage_seconds__gte', 1), ('coverage_seconds__lte', 3600)), name='utilisation_covers_part_of_its_hour'), models.CheckConstraint(condition=models.Q(('utilisation__gte', 0), ('utilisation__lte', 1), models.Q(('sm_active__isnull', True), models.Q(('sm_active__gte', 0), ('sm_active__lte', 1)), _connector='OR'), models.Q(('tensor_active__isnull', True), models.Q(('tensor_active__gte', 0), ('tensor_active__lte', 1)), _connector='OR')), name='utilisation_is_a_ratio'), models.CheckConstraint(condition=models.Q(('power_watts__isnull', True), ('power_watts__gte', 0), _connector='OR'), name='power_is_not_negative')],
            },
        ),
        rules("billing/utilisation.sql"),
    ]
