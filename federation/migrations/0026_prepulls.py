"""Images that are kept on the nodes of clusters, and the pulls that bring them there (`0026_prepulls.sql`)."""

from pathlib import Path

import django.contrib.postgres.fields
import django.db.models.deletion
import django.db.models.functions.datetime
import foundation.ids
from django.db import migrations, models

SQL = Path(__file__).with_name("0026_prepulls.sql").read_text(encoding="utf-8")
UNDO = """
ALTER TABLE federation_prepull DROP CONSTRAINT prepull_is_on_the_cluster_of_its_policy;
ALTER TABLE federation_prepullpolicy DROP CONSTRAINT prepull_policy_has_one_cluster;
"""


class Migration(migrations.Migration):

    dependencies = [
        ('clusters', '0010_nodes_of_images'),
        ('federation', '0025_fewer_indexes'),
        ('tenancy', '0002_weight'),
    ]

    operations = [
        migrations.CreateModel(
            name='PrepullPolicy',
            fields=[
                ('id', models.UUIDField(default=foundation.ids.new_id, editable=False, primary_key=True, serialize=False)),
                ('name', models.CharField(max_length=63)),
                ('images', django.contrib.postgres.fields.ArrayField(base_field=models.CharField(max_length=512), size=20)),
                ('flavor', models.CharField(blank=True, help_text='Only the nodes that offer it; empty for all nodes.', max_length=120)),
                ('pull_secret', models.CharField(blank=True, max_length=63)),
                ('at_once', models.PositiveSmallIntegerField(default=2, help_text='The most pulls under way at the same time.')),
                ('is_paused', models.BooleanField(default=False)),
                ('created_by', models.CharField(max_length=300)),
                ('created_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('changed_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('removed_at', models.DateTimeField(help_text='Its pulls are being stopped; then the row goes.', null=True)),
                ('cluster', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='prepull_policies', to='clusters.cluster')),
                ('tenant', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='prepull_policies', to='tenancy.tenant')),
            ],
            options={
                'verbose_name_plural': 'prepull policies',
            },
        ),
        migrations.CreateModel(
            name='Prepull',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('image', models.CharField(max_length=512)),
                ('node', models.CharField(max_length=253)),
                ('phase', models.CharField(choices=[('idle', 'Idle'), ('planned', 'Planned'), ('created', 'Created'), ('released', 'Released'), ('ending', 'Ending')], default='idle', max_length=10)),
                ('slot', models.PositiveSmallIntegerField(null=True)),
                ('object_id', models.UUIDField(help_text='The name of its object comes from this id.', null=True, unique=True)),
                ('namespace', models.CharField(blank=True, max_length=63)),
                ('secrets', models.JSONField(blank=True, default=dict, help_text='The promised secret, by which it pulls.')),
                ('uid', models.CharField(blank=True, max_length=64)),
                ('begun_at', models.DateTimeField(null=True)),
                ('released_at', models.DateTimeField(null=True)),
                ('outcome', models.CharField(blank=True, max_length=10)),
                ('message', models.CharField(blank=True, max_length=300)),
                ('failures', models.PositiveSmallIntegerField(default=0, help_text='In a row.')),
                ('pulls', models.PositiveIntegerField(default=0)),
                ('ended_at', models.DateTimeField(null=True)),
                ('pulled_at', models.DateTimeField(null=True)),
                ('cluster', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='+', to='clusters.cluster')),
                ('policy', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='prepulls', to='federation.prepullpolicy')),
            ],
        ),
        migrations.AddConstraint(
            model_name='prepullpolicy',
            constraint=models.UniqueConstraint(condition=models.Q(('removed_at', None)), fields=('cluster', 'name'), name='prepull_name_is_unique_on_its_cluster'),
        ),
        migrations.AddConstraint(
            model_name='prepullpolicy',
            constraint=models.CheckConstraint(condition=models.Q(('name__regex', '^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\\Z')), name='prepull_name_is_a_dns_label'),
        ),
        migrations.AddConstraint(
            model_name='prepullpolicy',
            constraint=models.CheckConstraint(condition=models.Q(('images__len__gte', 1), ('images__len__lte', 20)), name='prepull_images_are_few'),
        ),
        migrations.AddConstraint(
            model_name='prepullpolicy',
            constraint=models.CheckConstraint(condition=models.Q(('at_once__gte', 1), ('at_once__lte', 10)), name='prepulls_at_once_are_few'),
        ),
        migrations.AddConstraint(
            model_name='prepullpolicy',
            constraint=models.CheckConstraint(condition=models.Q(('created_by', ''), _negated=True), name='prepull_was_made_by_someone'),
        ),
        migrations.AddConstraint(
            model_name='prepull',
            constraint=models.UniqueConstraint(fields=('policy', 'image', 'node'), name='image_is_pulled_once_to_a_node'),
        ),
        migrations.AddConstraint(
            model_name='prepull',
            constraint=models.UniqueConstraint(condition=models.Q(('slot__isnull', False)), fields=('cluster', 'slot'), name='a_slot_has_one_prepull'),
        ),
        migrations.AddConstraint(
            model_name='prepull',
            constraint=models.CheckConstraint(condition=models.Q(('slot', None), models.Q(('slot__gte', 0), ('slot__lt', 10)), _connector='OR'), name='prepull_slot_exists'),
        ),
        migrations.AddConstraint(
            model_name='prepull',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('object_id', None), ('phase', 'idle'), ('slot', None), ('uid', '')), models.Q(('begun_at__isnull', False), ('object_id__isnull', False), ('phase__in', ['planned', 'created', 'released', 'ending']), ('slot__isnull', False)), _connector='OR'), name='live_prepull_has_a_slot_and_an_object'),
        ),
        migrations.AddConstraint(
            model_name='prepull',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('phase__in', ['created', 'released']), _negated=True), models.Q(('uid', ''), _negated=True), _connector='OR'), name='created_prepull_has_a_uid'),
        ),
        migrations.AddConstraint(
            model_name='prepull',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('phase', 'released'), _negated=True), ('released_at__isnull', False), _connector='OR'), name='released_prepull_has_its_time'),
        ),
        migrations.AddConstraint(
            model_name='prepull',
            constraint=models.CheckConstraint(condition=models.Q(('outcome__in', ['', 'pulled', 'failed'])), name='prepull_outcome_is_known'),
        ),
        migrations.AddConstraint(
            model_name='prepull',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('ended_at', None), ('outcome', '')), models.Q(models.Q(('outcome', ''), _negated=True), ('ended_at__isnull', False)), _connector='OR'), name='ended_prepull_has_its_time'),
        ),
        migrations.AddConstraint(
            model_name='prepull',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('outcome', 'pulled'), _negated=True), models.Q(('failures', 0), ('pulled_at__isnull', False)), _connector='OR'), name='pulled_prepull_has_its_time'),
        ),
        migrations.AddConstraint(
            model_name='prepull',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('pulled_at', None), ('pulls', 0)), models.Q(('pulled_at__isnull', False), ('pulls__gte', 1)), _connector='OR'), name='prepulls_are_counted'),
        ),
        migrations.RunSQL(SQL, UNDO),
    ]
