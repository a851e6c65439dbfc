"""Alerts on the forecasts of budgets, and unusual spending; `0008_forecasts.sql` has what the tables refuse."""

from pathlib import Path

import django.contrib.postgres.fields
import django.db.models.deletion
import django.db.models.functions.datetime
import foundation.ids
from django.db import migrations, models


UNDO = """
DROP FUNCTION billing_guard_forecast_thresholds() CASCADE;
DROP FUNCTION billing_guard_forecast_alert() CASCADE;
DROP FUNCTION billing_guard_anomaly() CASCADE;
DROP TRIGGER IF EXISTS billing_keep_forecast_alerts ON billing_budgetforecastalert;
DROP TRIGGER IF EXISTS billing_keep_anomalies ON billing_spendanomaly;
"""

class Migration(migrations.Migration):

    dependencies = [
        ('billing', '0007_budget_corrections'),
        ('clusters', '0009_history'),
        ('tenancy', '0002_weight'),
    ]

    operations = [
        migrations.AddField(
            model_name='budget',
            name='notify_forecast_at',
            field=django.contrib.postgres.fields.ArrayField(base_field=models.PositiveSmallIntegerField(), db_default=[], default=list, help_text='The same, of what is expected at the end of the period.', size=None),
        ),
        migrations.CreateModel(
            name='BudgetForecastAlert',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('percent', models.PositiveSmallIntegerField()),
                ('spent', models.DecimalField(decimal_places=12, help_text='When it was expected.', max_digits=38)),
                ('amount', models.DecimalField(decimal_places=12, help_text='When it was expected.', max_digits=38)),
                ('expected', models.DecimalField(decimal_places=12, max_digits=38)),
                ('low', models.DecimalField(decimal_places=12, max_digits=38)),
                ('high', models.DecimalField(decimal_places=12, max_digits=38)),
                ('reached_on', models.DateField(help_text='The day on which the threshold is expected to be reached.')),
                ('at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('period', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.PROTECT, related_name='forecast_alerts', to='billing.budgetperiod')),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('period', 'percent'), name='each_forecast_threshold_alerts_once_per_period'), models.CheckConstraint(condition=models.Q(('high__gte', models.F('expected')), ('low__lte', models.F('expected'))), name='forecast_is_within_its_range')],
            },
        ),
        migrations.CreateModel(
            name='SpendAnomaly',
            fields=[
                ('id', models.UUIDField(default=foundation.ids.new_id, editable=False, primary_key=True, serialize=False)),
                ('tenant_path', models.CharField(db_collation='C', max_length=1100)),
                ('flavor', models.CharField(max_length=120)),
                ('currency', models.CharField(max_length=3)),
                ('day', models.DateField()),
                ('cost', models.DecimalField(decimal_places=12, max_digits=38)),
                ('usual', models.DecimalField(decimal_places=12, help_text='The median that it was compared with.', max_digits=38)),
                ('spread', models.DecimalField(decimal_places=12, help_text='The median absolute deviation.', max_digits=38)),
                ('state', models.CharField(choices=[('open', 'Open'), ('explained', 'Explained'), ('dismissed', 'Dismissed'), ('closed', 'Closed')], default='open', max_length=10)),
                ('reason', models.CharField(blank=True, default='', max_length=500)),
                ('decided_by_id', models.UUIDField(null=True)),
                ('decided_by_name', models.CharField(blank=True, default='', max_length=254)),
                ('decided_at', models.DateTimeField(null=True)),
                ('found_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('cluster', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to='clusters.cluster')),
                ('organisation', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to='tenancy.tenant')),
                ('tenant', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='anomalies', to='tenancy.tenant')),
            ],
            options={
                'indexes': [models.Index(fields=['organisation', 'state', 'day'], name='anomalies_by_state')],
                'constraints': [models.UniqueConstraint(fields=('tenant', 'day', 'cluster', 'flavor', 'tenant_path', 'currency'), name='one_anomaly_a_day'), models.CheckConstraint(condition=models.Q(('cost__gt', models.F('usual')), ('spread__gte', 0), ('usual__gte', 0)), name='anomaly_is_more_than_usual'), models.CheckConstraint(condition=models.Q(models.Q(('decided_at', None), ('decided_by_id', None), ('decided_by_name', ''), ('reason', ''), ('state', 'open')), models.Q(('decided_at__isnull', False), ('decided_by_id', None), ('decided_by_name', ''), ('state', 'closed'), models.Q(('reason', ''), _negated=True)), models.Q(('decided_at__isnull', False), ('state__in', ['explained', 'dismissed']), models.Q(('reason', ''), _negated=True), models.Q(('decided_by_name', ''), _negated=True)), _connector='OR'), name='anomaly_says_who_and_why')],
            },
        ),
        migrations.RunSQL(Path(__file__).with_name("0008_forecasts.sql").read_text(encoding="utf-8"), UNDO),
    ]
