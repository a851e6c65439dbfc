"""The names of the nodes that have an image, for images that nodes should have."""

import django.contrib.postgres.fields
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('clusters', '0009_history'),
    ]

    operations = [
        migrations.AddField(
            model_name='clusterimage',
            name='on_nodes',
            field=django.contrib.postgres.fields.ArrayField(base_field=models.CharField(max_length=253), help_text="The nodes' names, for images that nodes should have.", null=True, size=None),
        ),
        migrations.AddConstraint(
            model_name='clusterimage',
            constraint=models.CheckConstraint(condition=models.Q(('on_nodes', None), ('on_nodes__len', models.F('nodes')), _connector='OR'), name='image_names_all_nodes_that_have_it'),
        ),
    ]
