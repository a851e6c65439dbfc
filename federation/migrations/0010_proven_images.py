"""The images with which runs of organisations have succeeded."""

import django.db.models.deletion
import django.db.models.functions.datetime
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('federation', '0009_priority_classes'),
        ('tenancy', '0001_initial'),
    ]

    operations = [
        migrations.CreateModel(
            name='ProvenImage',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('name', models.CharField(help_text='The normal name (`clusters.engine.images`).', max_length=600)),
                ('last_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now(), help_text='About when a run last succeeded with it.')),
                ('organisation', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='+', to='tenancy.tenant')),
            ],
            options={
                'indexes': [models.Index(fields=['-last_at'], name='newest_proven_images'), models.Index(fields=['organisation', 'last_at'], name='proven_images_by_age')],
                'constraints': [models.UniqueConstraint(fields=('organisation', 'name'), name='image_is_proven_once_for_an_organisation'), models.CheckConstraint(condition=models.Q(('name', ''), _negated=True), name='proven_image_has_a_name')],
            },
        ),
    ]
