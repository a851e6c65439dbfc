"""Which images the nodes of clusters have, and how long clusters take to pull images."""

import django.contrib.postgres.fields
import django.db.models.deletion
import django.db.models.functions.datetime
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('clusters', '0007_maintenance'),
    ]

    operations = [
        migrations.CreateModel(
            name='ClusterImage',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('name', models.CharField(help_text='The normal name (`engine.images`).', max_length=600)),
                ('size_mib', models.PositiveIntegerField(help_text='As its nodes report it.')),
                ('nodes', models.PositiveIntegerField(help_text='The number of nodes that have it.')),
                ('by_flavor', models.JSONField(help_text='The number of nodes that have it, by the flavor that they offer.')),
                ('changed_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('cluster', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='+', to='clusters.cluster')),
            ],
            options={
                'indexes': [models.Index(fields=['name'], name='clusters_that_have_an_image')],
                'constraints': [models.UniqueConstraint(fields=('cluster', 'name'), name='image_is_counted_once_on_its_cluster'), models.CheckConstraint(condition=models.Q(('name', ''), _negated=True), name='image_has_a_name'), models.CheckConstraint(condition=models.Q(('nodes__gte', 1)), name='image_is_on_some_node'), models.CheckConstraint(condition=models.Q(('size_mib__lte', 1048576)), name='image_is_at_most_a_tebibyte')],
            },
        ),
        migrations.CreateModel(
            name='PullTimes',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('size_class', models.PositiveSmallIntegerField()),
                ('recent_seconds', django.contrib.postgres.fields.ArrayField(base_field=models.PositiveIntegerField(), help_text='Durations of the newest pulls, newest first.', size=None)),
                ('pulls', models.PositiveBigIntegerField(help_text='The total number of pulls.')),
                ('last_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('cluster', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='+', to='clusters.cluster')),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('cluster', 'size_class'), name='pulls_are_kept_by_cluster_and_size'), models.CheckConstraint(condition=models.Q(('size_class__lte', 5)), name='pulls_are_of_a_known_size'), models.CheckConstraint(condition=models.Q(('recent_seconds__len__gte', 1), ('recent_seconds__len__lte', 15)), name='pulls_kept_are_few'), models.CheckConstraint(condition=models.Q(('pulls__gte', models.F('recent_seconds__len'))), name='pulls_count_what_is_kept')],
            },
        ),
    ]
