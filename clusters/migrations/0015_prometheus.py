"""The Prometheus of clusters."""


import django.db.models.deletion
import django.db.models.functions.datetime
from django.db import migrations, models

import foundation.ids


class Migration(migrations.Migration):

    dependencies = [
        ('clusters', '0014_object_stores'),
    ]

    operations = [
        migrations.CreateModel(
            name='ClusterPrometheus',
            fields=[
                ('id', models.UUIDField(default=foundation.ids.new_id, editable=False, primary_key=True, serialize=False)),
                ('url', models.CharField(max_length=500)),
                ('key_id', models.CharField(blank=True, db_default='', default='', max_length=40)),
                ('sealed', models.BinaryField(null=True)),
                ('set_by_name', models.CharField(max_length=254)),
                ('changed_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('cluster', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, related_name='prometheus', to='clusters.cluster')),
            ],
            options={
                'constraints': [models.CheckConstraint(condition=models.Q(('url__regex', '^https?://[^\\s@?#]+\\Z')), name='prometheus_has_a_plain_url'), models.CheckConstraint(condition=models.Q(models.Q(('key_id', ''), ('sealed__isnull', True)), models.Q(models.Q(('key_id', ''), _negated=True), ('sealed__isnull', False)), _connector='OR'), name='prometheus_token_is_sealed'), models.CheckConstraint(condition=models.Q(('set_by_name', ''), _negated=True), name='prometheus_says_who_set_it')],
            },
        ),
    ]
