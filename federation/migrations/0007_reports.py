"""What runs report of themselves: progress and checkpoints."""

import django.db.models.deletion
import django.db.models.functions.datetime
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('federation', '0006_suspension'),
    ]

    operations = [
        migrations.CreateModel(
            name='Progress',
            fields=[
                ('attempt', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, primary_key=True, related_name='progress', serialize=False, to='federation.attempt')),
                ('sequence', models.BigIntegerField(db_default=-1, default=-1, help_text='Of the newest report; a report counts only if it is newer.')),
                ('step', models.BigIntegerField(null=True)),
                ('total_steps', models.BigIntegerField(null=True)),
                ('loss', models.FloatField(null=True)),
                ('series', models.JSONField(db_default={}, default=dict, help_text='By name, a short list of pairs: step (or sequence) and value.')),
                ('first_step', models.BigIntegerField(help_text='The first reported step.', null=True)),
                ('first_step_at', models.DateTimeField(null=True)),
                ('reported_at', models.DateTimeField(help_text='When the newest report arrived, by our clock.', null=True)),
                ('window_began_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('window_reports', models.PositiveIntegerField(db_default=1, default=1, help_text='The number of reports since `window_began_at`.')),
            ],
            options={
                'constraints': [models.CheckConstraint(condition=models.Q(models.Q(('step__isnull', True), ('step__gte', 0), _connector='OR'), models.Q(('total_steps__isnull', True), ('total_steps__gte', 1), _connector='OR')), name='progress_counts_steps'), models.CheckConstraint(condition=models.Q(('step__isnull', True), ('total_steps__isnull', True), ('step__lte', models.F('total_steps')), _connector='OR'), name='progress_is_at_most_all')],
            },
        ),
        migrations.CreateModel(
            name='Checkpoint',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('sequence', models.BigIntegerField(help_text='Of the newest report that has it.')),
                ('reference', models.CharField(max_length=1024)),
                ('size_bytes', models.BigIntegerField(null=True)),
                ('step', models.BigIntegerField(null=True)),
                ('flavors', models.JSONField(default=list, help_text='The flavors on which it can be resumed; empty: any.')),
                ('written_at', models.DateTimeField(help_text='As reported, but no later than the report.')),
                ('reported_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('attempt', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='checkpoints', to='federation.attempt')),
            ],
            options={
                'indexes': [models.Index(fields=['attempt', '-sequence'], name='newest_checkpoints')],
                'constraints': [models.UniqueConstraint(fields=('attempt', 'reference'), name='a_checkpoint_is_listed_once'), models.CheckConstraint(condition=models.Q(('reference', ''), _negated=True), name='a_checkpoint_has_a_reference'), models.CheckConstraint(condition=models.Q(('flavors__contains', [])), name='checkpoint_flavors_are_a_list'), models.CheckConstraint(condition=models.Q(('written_at__lte', models.F('reported_at'))), name='a_checkpoint_is_written_before_its_report')],
            },
        ),
    ]
