"""The devices that claims gave to pods, and the pods of a node without reading all others (`/clusters/{id}/nodes/{node}/history`)."""

import django.contrib.postgres.fields
from django.db import migrations, models

from foundation.rules import rules


class Migration(migrations.Migration):

    dependencies = [
        ('federation', '0043_pending_stops'),
    ]

    operations = [
        migrations.AddField(
            model_name='podrun',
            name='devices',
            field=django.contrib.postgres.fields.ArrayField(base_field=models.CharField(max_length=400), blank=True, db_default=[], default=list, help_text='The devices that claims gave it, as driver/pool/name; they only become more (trigger). Empty if not known.', size=None),
        ),
        migrations.AddConstraint(
            model_name='podrun',
            constraint=models.CheckConstraint(condition=models.Q(('devices__len__lte', 128)), name='a_pod_has_a_bounded_number_of_devices'),
        ),
        migrations.AddIndex(
            model_name='podrun',
            index=models.Index(condition=models.Q(('node', ''), _negated=True), fields=['cluster_id', 'node', '-id'], name='pods_of_nodes'),
        ),
        rules('federation/pod_devices.sql'),
    ]
