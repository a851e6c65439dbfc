"""Unusual spending is found over all clusters together; earlier findings keep their cluster, their figures and what people decided."""

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('billing', '0008_forecasts'),
    ]

    operations = [
        migrations.AlterField(
            model_name='spendanomaly',
            name='cluster',
            field=models.ForeignKey(help_text='Null: all clusters together.', null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to='clusters.cluster'),
        ),
        migrations.AddConstraint(
            model_name='spendanomaly',
            constraint=models.UniqueConstraint(condition=models.Q(('cluster__isnull', True)), fields=('tenant', 'day', 'flavor', 'currency'), name='one_anomaly_a_day_of_all_clusters'),
        ),
    ]
