"""Drops indexes that another index of the table begins with, or equals read backwards: each change of a row wrote both."""

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('federation', '0022_database_history'),
        ('tenancy', '0002_weight'),
    ]

    operations = [
        migrations.RemoveIndex(
            model_name='job',
            name='jobs_newest_first',
        ),
        migrations.AlterField(
            model_name='attempt',
            name='job',
            field=models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.PROTECT, related_name='attempts', to='federation.job'),
        ),
        migrations.AlterField(
            model_name='job',
            name='tenant',
            field=models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.PROTECT, related_name='jobs', to='tenancy.tenant'),
        ),
        migrations.AlterField(
            model_name='jobevent',
            name='job',
            field=models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='events', to='federation.job'),
        ),
        migrations.AlterField(
            model_name='remoteobject',
            name='attempt',
            field=models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='remote_objects', to='federation.attempt'),
        ),
    ]
