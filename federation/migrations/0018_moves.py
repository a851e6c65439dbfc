"""Moves of running jobs to other clusters (`0018_moves.sql`)."""

from pathlib import Path

import django.contrib.postgres.fields
import django.db.models.deletion
import django.db.models.functions.datetime
from django.db import migrations, models

SQL = Path(__file__).with_name("0018_moves.sql").read_text(encoding="utf-8")
UNDO = "DROP TRIGGER a_move_leads_away ON federation_move; DROP FUNCTION federation_check_move;"

class Migration(migrations.Migration):

    dependencies = [
        ('federation', '0017_rests'),
    ]

    operations = [
        migrations.CreateModel(
            name='Move',
            fields=[
                ('attempt', models.OneToOneField(on_delete=django.db.models.deletion.PROTECT, primary_key=True, related_name='move', serialize=False, to='federation.attempt')),
                ('cause', models.CharField(choices=[('user', "a user's request"), ('drain', 'its cluster is drained'), ('maintenance', 'a maintenance window that drains begins before it ends'), ('spot', 'its node is about to be taken away')], max_length=11)),
                ('clusters', django.contrib.postgres.fields.ArrayField(base_field=models.UUIDField(), db_default=[], default=list, help_text='The clusters that the user named: for a while it continues on one of these only. Empty: anywhere else.', size=None)),
                ('expected_id', models.UUIDField(help_text='The cluster that had room for it.')),
                ('lost_seconds', models.PositiveIntegerField(help_text='Of work that it repeats.')),
                ('cost_seconds', models.PositiveIntegerField(help_text='What moving costs: work that it repeats, and the restart.')),
                ('stay_seconds', models.PositiveIntegerField(help_text="What staying would cost; null for a user's request.", null=True)),
                ('created_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('job', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='moves', to='federation.job')),
            ],
            options={
                'indexes': [models.Index(fields=['job', 'created_at'], name='moves_of_job')],
                'constraints': [models.CheckConstraint(condition=models.Q(('cause__in', ['user', 'drain', 'maintenance', 'spot'])), name='a_moves_cause_is_known'), models.CheckConstraint(condition=models.Q(models.Q(('cause', 'user'), ('stay_seconds__isnull', True)), models.Q(models.Q(('cause', 'user'), _negated=True), ('clusters', []), ('stay_seconds__gt', models.F('cost_seconds')), ('stay_seconds__isnull', False)), _connector='OR'), name='the_gateway_moves_only_what_gains'), models.CheckConstraint(condition=models.Q(('cost_seconds__gte', models.F('lost_seconds'))), name='a_move_costs_what_it_repeats_or_more'), models.CheckConstraint(condition=models.Q(('clusters__len__isnull', True), ('clusters__len__lte', 100), _connector='OR'), name='a_move_names_a_bounded_number_of_clusters')],
            },
        ),
        migrations.RunSQL(SQL, UNDO),
    ]
