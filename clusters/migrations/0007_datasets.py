"""Where data lies that jobs name."""

import django.db.models.deletion
import django.db.models.functions.datetime
import foundation.ids
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('clusters', '0006_flavor_claims'),
        ('tenancy', '0002_triggers'),
    ]

    operations = [
        migrations.CreateModel(
            name='Dataset',
            fields=[
                ('id', models.UUIDField(default=foundation.ids.new_id, editable=False, primary_key=True, serialize=False)),
                ('name', models.CharField(max_length=120)),
                ('size_bytes', models.BigIntegerField()),
                ('created_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('changed_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('tenant', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='datasets', to='tenancy.tenant')),
            ],
        ),
        migrations.CreateModel(
            name='DatasetLocation',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('region', models.CharField(blank=True, max_length=63)),
                ('cluster', models.ForeignKey(null=True, on_delete=django.db.models.deletion.CASCADE, related_name='+', to='clusters.cluster')),
                ('dataset', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='locations', to='clusters.dataset')),
            ],
        ),
        migrations.AddConstraint(
            model_name='dataset',
            constraint=models.UniqueConstraint(fields=('tenant', 'name'), name='dataset_name_is_unique_for_its_tenant'),
        ),
        migrations.AddConstraint(
            model_name='dataset',
            constraint=models.CheckConstraint(condition=models.Q(('name__regex', '^[a-z0-9]([a-z0-9._-]{0,118}[a-z0-9])?\\Z')), name='dataset_name_is_plain'),
        ),
        migrations.AddConstraint(
            model_name='dataset',
            constraint=models.CheckConstraint(condition=models.Q(('size_bytes__gte', 1), ('size_bytes__lte', 1152921504606846976)), name='dataset_size_is_within_bounds'),
        ),
        migrations.AddConstraint(
            model_name='datasetlocation',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('cluster__isnull', True), models.Q(('region', ''), _negated=True)), models.Q(('cluster__isnull', False), ('region', '')), _connector='OR'), name='dataset_lies_in_a_region_or_a_cluster'),
        ),
        migrations.AddConstraint(
            model_name='datasetlocation',
            constraint=models.UniqueConstraint(fields=('dataset', 'region', 'cluster'), name='a_place_holds_a_dataset_once', nulls_distinct=False),
        ),
    ]
