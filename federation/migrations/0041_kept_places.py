"""The place of a failed attempt is kept for the restart of its job (`then: again_here`)."""

import datetime
import django.db.models.deletion
import django.db.models.functions.datetime
from django.db import migrations, models

from foundation.rules import rules


class Migration(migrations.Migration):

    dependencies = [
        ('clusters', '0014_object_stores'),
        ('federation', '0040_class_limits'),
    ]

    operations = [
        migrations.CreateModel(
            name='KeptPlace',
            fields=[
                ('attempt', models.OneToOneField(on_delete=django.db.models.deletion.PROTECT, primary_key=True, related_name='kept_place', serialize=False, to='federation.attempt')),
                ('nodes', models.JSONField(help_text='Their names.')),
                ('amounts', models.JSONField(db_default={}, default=dict, help_text="What the attempt's hold took; this quota is kept.")),
                ('since_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('until_at', models.DateTimeField(help_text='It is kept no longer, however long the attempt takes to be cleared away.')),
                ('ended_at', models.DateTimeField(null=True)),
                ('outcome', models.CharField(blank=True, choices=[('placed', 'placed'), ('withdrawn', 'withdrawn'), ('given_up', 'given_up'), ('unusable', 'unusable')], db_default='', default='', max_length=10)),
            ],
        ),
        migrations.RemoveConstraint(
            model_name='diagnosis',
            name='a_diagnosis_is_judged_as_a_whole',
        ),
        migrations.AddField(
            model_name='diagnosis',
            name='keep_seconds',
            field=models.PositiveIntegerField(db_default=0, default=0, help_text="How long the attempt's place is kept for the retry, beyond the wait."),
        ),
        migrations.AddConstraint(
            model_name='diagnosis',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('failure_class', ''), ('judged_at__isnull', True), ('own_class', ''), ('step', '')), models.Q(('failure_class__in', ['program', 'out_of_memory', 'node', 'device', 'network', 'image', 'storage', 'preempted', 'infrastructure', 'deadline', 'unknown']), ('judged_at__isnull', False), ('own_class__in', ['program', 'out_of_memory', 'node', 'device', 'network', 'image', 'storage', 'preempted', 'infrastructure', 'deadline', 'unknown']), ('step__in', ['stop', 'again', 'again_elsewhere', 'more_memory', 'again_here'])), _connector='OR'), name='a_diagnosis_is_judged_as_a_whole'),
        ),
        migrations.AddConstraint(
            model_name='diagnosis',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('keep_seconds__gte', 10), ('keep_seconds__lte', 600), ('step', 'again_here'), ('wait_seconds__lte', 600)), models.Q(models.Q(('step', 'again_here'), _negated=True), ('keep_seconds', 0)), _connector='OR'), name='a_place_is_kept_by_its_step'),
        ),
        migrations.AddField(
            model_name='keptplace',
            name='cluster',
            field=models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.PROTECT, related_name='+', to='clusters.cluster'),
        ),
        migrations.AddField(
            model_name='keptplace',
            name='job',
            field=models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='kept_places', to='federation.job'),
        ),
        migrations.AddConstraint(
            model_name='keptplace',
            constraint=models.UniqueConstraint(condition=models.Q(('ended_at__isnull', True)), fields=('job',), name='one_place_is_kept_for_a_job'),
        ),
        migrations.AddConstraint(
            model_name='keptplace',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('ended_at__isnull', True), ('outcome', '')), models.Q(('ended_at__isnull', False), ('outcome__in', ('placed', 'withdrawn', 'given_up', 'unusable'))), _connector='OR'), name='a_kept_place_ends_with_an_outcome'),
        ),
        migrations.AddConstraint(
            model_name='keptplace',
            constraint=models.CheckConstraint(condition=models.Q(('until_at__gt', models.F('since_at')), ('until_at__lte', models.F('since_at') + datetime.timedelta(seconds=1500))), name='a_place_is_kept_for_a_bounded_time'),
        ),
        migrations.AddConstraint(
            model_name='keptplace',
            constraint=models.CheckConstraint(condition=models.Q(('ended_at__gte', models.F('since_at'))), name='a_kept_place_ends_after_it_began'),
        ),
        migrations.AddConstraint(
            model_name='keptplace',
            constraint=models.CheckConstraint(condition=models.Q(('amounts__contains', {}), ('nodes__contains', []), models.Q(('nodes', []), _negated=True)), name='a_kept_place_lists_its_nodes'),
        ),
        rules("federation/kept_places.sql"),
    ]
