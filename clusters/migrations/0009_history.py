"""The history of the fleet; `0009_history.sql` writes it with each change of nodes."""

from pathlib import Path

import django.contrib.postgres.constraints
import django.contrib.postgres.fields.ranges
import django.db.models.deletion
from django.db import migrations, models


UNDO = """
DROP TRIGGER clusters_record_arrivals ON clusters_node;
DROP TRIGGER clusters_record_changes ON clusters_node;
DROP TRIGGER clusters_record_departures ON clusters_node;
DROP TRIGGER clusters_record_silence ON clusters_cluster;
DROP FUNCTION clusters_record_history();
DROP FUNCTION clusters_record_silence();
DROP FUNCTION clusters_follow(uuid, text[], timestamptz);
DROP FUNCTION clusters_offers(uuid, text[]);
DROP FUNCTION clusters_guard_history() CASCADE;
DROP FUNCTION clusters_keep_history() CASCADE;
"""


class Migration(migrations.Migration):

    dependencies = [
        ('clusters', '0008_images'),
    ]

    operations = [
        migrations.CreateModel(
            name='NodeOffer',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('node', models.CharField(max_length=253)),
                ('flavor', models.CharField(max_length=120)),
                ('cluster', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to='clusters.cluster')),
            ],
        ),
        migrations.CreateModel(
            name='NodeSpan',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('period', django.contrib.postgres.fields.ranges.DateTimeRangeField(help_text="Half-open, UTC, whole milliseconds of the database's clock.")),
                ('uid', models.CharField(help_text="The node's: another node may have its name later.", max_length=64)),
                ('capacity_type', models.CharField(max_length=20)),
                ('gpu_model', models.CharField(blank=True, max_length=63)),
                ('sharing', models.CharField(max_length=40)),
                ('units', models.PositiveIntegerField(help_text='GPUs, MIG slices or shares; 0 of a CPU-only flavor.')),
                ('cpu_millicores', models.BigIntegerField()),
                ('memory_mib', models.BigIntegerField()),
                ('is_available', models.BooleanField(help_text='Whether it was ready and schedulable.')),
                ('is_assumed', models.BooleanField(help_text='Whether its cluster did not answer meanwhile, or nothing was recorded yet.')),
                ('offer', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.PROTECT, related_name='spans', to='clusters.nodeoffer')),
            ],
        ),
        migrations.AddConstraint(
            model_name='nodeoffer',
            constraint=models.UniqueConstraint(fields=('cluster', 'node', 'flavor'), name='one_offer_a_node_and_flavor'),
        ),
        migrations.AddConstraint(
            model_name='nodespan',
            constraint=django.contrib.postgres.constraints.ExclusionConstraint(expressions=[(models.Func(models.F('offer_id'), models.F('offer_id'), models.Value('[]'), function='int8range', output_field=django.contrib.postgres.fields.ranges.BigIntegerRangeField()), '&&'), ('period', '&&')], name='spans_of_a_node_never_overlap'),
        ),
        migrations.AddConstraint(
            model_name='nodespan',
            constraint=models.UniqueConstraint(condition=models.Q(('period__upper_inf', True)), fields=('offer',), name='one_open_span_a_node_and_flavor'),
        ),
        migrations.AddConstraint(
            model_name='nodespan',
            constraint=models.CheckConstraint(condition=models.Q(('period__isempty', False), ('period__lower_inc', True), ('period__lower_inf', False), ('period__upper_inc', False)), name='span_is_half_open'),
        ),
        migrations.AddConstraint(
            model_name='nodespan',
            constraint=models.CheckConstraint(condition=models.Q(('cpu_millicores__gte', 0), ('memory_mib__gte', 0)), name='span_is_not_negative'),
        ),
        migrations.RunSQL(Path(__file__).with_name("0009_history.sql").read_text(encoding="utf-8"), UNDO),
    ]
