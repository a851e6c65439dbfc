"""Drops indexes that another index of the table begins with, or equals read backwards: each change of a row wrote both.

By name: Django would also drop the partial unique index on the column, which keeps a job from having two live attempts.
"""

import django.db.models.deletion
from django.db import migrations, models

INDEXES = {
    "federation_attempt_job_id_9093a15d": "federation_attempt (job_id)",
    "federation_job_tenant_id_0067a841": "federation_job (tenant_id)",
    "federation_jobevent_job_id_c03f6da3": "federation_jobevent (job_id)",
    "federation_remoteobject_attempt_id_0b759bb0": "federation_remoteobject (attempt_id)",
}


class Migration(migrations.Migration):

    dependencies = [
        ('federation', '0024_reserved_quota'),
        ('tenancy', '0002_weight'),
    ]

    operations = [
        migrations.RemoveIndex(
            model_name='job',
            name='jobs_newest_first',
        ),
        migrations.SeparateDatabaseAndState(
            database_operations=[
                migrations.RunSQL(f'DROP INDEX "{name}"', f'CREATE INDEX "{name}" ON {columns}')
                for name, columns in INDEXES.items()
            ],
            state_operations=[
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
            ],
        ),
    ]
