"""Meters say where they ran, and hours of nodes with negative idle are set aside; `0011_node_hours.sql` has what they refuse."""

from pathlib import Path

import django.db.models.deletion
import django.db.models.functions.datetime
import foundation.ids
from django.db import migrations, models

UNDO = """
DROP TRIGGER billing_meter_keeps_its_node ON billing_meter;
DROP FUNCTION billing_guard_node_hour() CASCADE;
"""


class Migration(migrations.Migration):

    dependencies = [
        ('billing', '0010_credits'),
        ('clusters', '0009_history'),
        ('tenancy', '0002_weight'),
    ]

    operations = [
        migrations.AddField(
            model_name='meter',
            name='node',
            field=models.CharField(blank=True, db_default='', default='', help_text='Where it ran; empty if that was not known when the meter opened.', max_length=253),
        ),
        migrations.CreateModel(
            name='NegativeNodeHour',
            fields=[
                ('id', models.UUIDField(default=foundation.ids.new_id, editable=False, primary_key=True, serialize=False)),
                ('node', models.CharField(max_length=253)),
                ('hour', models.DateTimeField(help_text='Its beginning, UTC.')),
                ('currency', models.CharField(max_length=3)),
                ('cost', models.DecimalField(decimal_places=12, max_digits=38)),
                ('charged', models.DecimalField(decimal_places=12, max_digits=38)),
                ('cause', models.CharField(choices=[('unknown_node', 'Unknown Node'), ('node_seen_late', 'Node Seen Late'), ('double_report', 'Double Report'), ('overlap', 'Overlap'), ('prices_differ', 'Prices Differ')], max_length=14)),
                ('runs', models.JSONField(default=list)),
                ('seen_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('state', models.CharField(choices=[('open', 'Open'), ('accepted', 'Accepted'), ('superseded', 'Superseded')], db_default='open', default='open', max_length=10)),
                ('note', models.CharField(blank=True, db_default='', default='', max_length=500)),
                ('decided_by_id', models.UUIDField(null=True)),
                ('decided_by_name', models.CharField(blank=True, db_default='', default='', max_length=254)),
                ('decided_at', models.DateTimeField(null=True)),
                ('cluster', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to='clusters.cluster')),
                ('organisation', models.ForeignKey(help_text='That owns the cluster.', on_delete=django.db.models.deletion.PROTECT, related_name='+', to='tenancy.tenant')),
            ],
            options={
                'indexes': [models.Index(fields=['organisation', '-hour', 'id'], name='negative_node_hours_latest'), models.Index(condition=models.Q(('state', 'open')), fields=['hour'], name='open_negative_node_hours')],
                'constraints': [models.UniqueConstraint(fields=('cluster', 'node', 'hour', 'currency', 'cost', 'charged'), name='one_node_hour_of_these_numbers'), models.CheckConstraint(condition=models.Q(('charged__gt', models.F('cost'))), name='negative_node_hour_is_negative'), models.CheckConstraint(condition=models.Q(models.Q(('decided_at__isnull', True), ('state', 'open')), models.Q(('decided_at__isnull', False), ('state', 'superseded')), models.Q(('decided_at__isnull', False), ('state', 'accepted'), models.Q(('note', ''), _negated=True)), _connector='OR'), name='accepted_node_hour_says_why')],
            },
        ),
        migrations.RunSQL(Path(__file__).with_name("0011_node_hours.sql").read_text(encoding="utf-8"), UNDO),
    ]
