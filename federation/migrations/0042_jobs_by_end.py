"""Jobs that ended in a range of days are found without reading all others (`/unit-costs`)."""

import django.contrib.postgres.indexes
from django.db import migrations


class Migration(migrations.Migration):

    dependencies = [
        ('federation', '0041_kept_places'),
    ]

    operations = [
        migrations.AddIndex(
            model_name='job',
            index=django.contrib.postgres.indexes.BrinIndex(autosummarize=True, fields=['finished_at'], name='jobs_by_end', pages_per_range=32),
        ),
    ]
