"""The database's history, and standstills that the gateway begins and ends itself (`0022_database_history.sql`)."""

from pathlib import Path

import django.db.models.functions.datetime
from django.db import migrations, models

SQL = Path(__file__).with_name("0022_database_history.sql").read_text(encoding="utf-8")
UNDO = """
DROP TRIGGER a_standstill_is_ended_with_reason ON federation_standstill;
DROP TRIGGER an_accepted_history_is_the_present_one ON federation_databasehistory;
DROP FUNCTION federation_check_standstill;
DROP FUNCTION federation_check_history;
DROP FUNCTION federation_database_history;
"""


class Migration(migrations.Migration):

    dependencies = [
        ('federation', '0021_artifacts'),
    ]

    operations = [
        migrations.CreateModel(
            name='DatabaseHistory',
            fields=[
                ('id', models.PositiveSmallIntegerField(db_default=1, default=1, primary_key=True, serialize=False)),
                ('accepted', models.TextField()),
                ('accepted_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
            ],
            options={
                'constraints': [models.CheckConstraint(condition=models.Q(('id', 1)), name='one_history_is_accepted')],
            },
        ),
        migrations.AddField(
            model_name='standstill',
            name='needs_operator',
            field=models.BooleanField(db_default=True, default=True, help_text='Whether only an operator ends it: an operator began it, or something was found.'),
        ),
        migrations.AddField(
            model_name='standstill',
            name='compare_from',
            field=models.DateTimeField(db_default=django.db.models.functions.datetime.Now(), help_text='Comparisons that began earlier do not count: calls of before may still arrive.'),
        ),
        migrations.AddField(
            model_name='comparedcluster',
            name='adopted',
            field=models.PositiveIntegerField(db_default=0, default=0, help_text='Attempts that were taken in or caught up, in all comparisons.'),
        ),
        migrations.AddField(
            model_name='comparedcluster',
            name='vanished',
            field=models.PositiveIntegerField(db_default=0, default=0, help_text='Objects of live attempts that may have run and are gone.'),
        ),
        migrations.AddField(
            model_name='comparedcluster',
            name='history',
            field=models.TextField(blank=True, db_default='', default='', help_text="The database's history when the cluster was listed."),
        ),
        migrations.RunSQL(SQL, UNDO),
    ]
