"""Stops that users ask for and that wait for the next checkpoint of the run."""

import datetime
import django.db.models.expressions
from django.db import migrations, models

from foundation.rules import rules


class Migration(migrations.Migration):

    dependencies = [
        ('federation', '0042_jobs_by_end'),
    ]

    operations = [
        migrations.AddField(
            model_name='job',
            name='stop_latest_at',
            field=models.DateTimeField(help_text='Likewise: it waits no longer.', null=True),
        ),
        migrations.AddField(
            model_name='job',
            name='stop_wish',
            field=models.JSONField(help_text="A user's stop that waits for a checkpoint: `then`, `suspend` or `move`, who, and the move's body.", null=True),
        ),
        migrations.AddField(
            model_name='job',
            name='stop_wished_at',
            field=models.DateTimeField(help_text='Likewise: checkpoints that are reported later count.', null=True),
        ),
        migrations.AddIndex(
            model_name='job',
            index=models.Index(condition=models.Q(('stop_latest_at__isnull', False)), fields=['stop_latest_at'], name='stops_that_wait'),
        ),
        migrations.AddConstraint(
            model_name='job',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('stop_latest_at__isnull', True), ('stop_wish__isnull', True), ('stop_wished_at__isnull', True)), models.Q(('stop_latest_at__isnull', False), ('stop_wish__isnull', False), ('stop_wished_at__isnull', False), ('stop_latest_at__gt', models.F('stop_wished_at')), ('stop_latest_at__lte', django.db.models.expressions.CombinedExpression(models.F('stop_wished_at'), '+', models.Value(datetime.timedelta(seconds=3600)))), ('stop_wish__has_key', 'by'), models.Q(('stop_wish__contains', {'then': 'suspend'}), models.Q(('stop_wish__contains', {'then': 'move'}), ('stop_wish__has_keys', ['user', 'reason', 'lose_work', 'clusters'])), _connector='OR'), ('spec__contains', {'reports': True}), ('state', 'running'), ('suspend_requested_at', None)), _connector='OR'), name='only_a_reporting_run_waits_for_a_checkpoint'),
        ),
        rules("federation/pending_stops.sql"),
    ]
