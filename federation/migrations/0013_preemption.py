"""Preemption: two fields of priority classes, decisions and their victims (`0013_preemption.sql`)."""

from pathlib import Path

import django.db.models.deletion
import django.db.models.functions.datetime
import foundation.ids
from django.db import migrations, models

SQL = Path(__file__).with_name("0013_preemption.sql").read_text(encoding="utf-8")
UNDO = """
DROP TRIGGER a_victim_is_less_urgent ON federation_preemptionvictim;
DROP TRIGGER a_preemption_ends_once ON federation_preemption;
DROP FUNCTION federation_check_victim, federation_keep_preemption;
"""


class Migration(migrations.Migration):

    dependencies = [
        ('clusters', '0008_images'),
        ('federation', '0012_estimate_records'),
    ]

    operations = [
        migrations.CreateModel(
            name='Preemption',
            fields=[
                ('id', models.UUIDField(default=foundation.ids.new_id, editable=False, primary_key=True, serialize=False)),
                ('organisation', models.CharField(help_text='The tenant at the top of their paths at that time.', max_length=63)),
                ('nodes', models.JSONField(help_text='The names of the nodes that are kept for the beneficiary.')),
                ('cost_gpu_seconds', models.FloatField(help_text='What it costs to stop the victims.')),
                ('is_exact', models.BooleanField(help_text='Whether no cheaper choice existed on that cluster.')),
                ('considered', models.JSONField(default=list, help_text='The jobs that might have been stopped there, with their costs.')),
                ('alternatives', models.JSONField(default=list, help_text='The costs on other clusters.')),
                ('created_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('deadline_at', models.DateTimeField(help_text='When the claim is given up.')),
                ('ended_at', models.DateTimeField(null=True)),
                ('outcome', models.CharField(blank=True, choices=[('placed', 'placed'), ('expired', 'expired'), ('withdrawn', 'withdrawn')], default='', max_length=10)),
            ],
        ),
        migrations.CreateModel(
            name='PreemptionVictim',
            fields=[
                ('attempt', models.OneToOneField(on_delete=django.db.models.deletion.PROTECT, primary_key=True, related_name='preemption', serialize=False, to='federation.attempt')),
                ('lost_seconds', models.PositiveIntegerField(help_text='Of work since its last checkpoint, at the decision.')),
                ('ran_seconds', models.PositiveIntegerField(help_text='How long it had run.')),
                ('shield_seconds', models.PositiveIntegerField(help_text='How long its class shielded it at that time.')),
                ('times_preempted', models.PositiveSmallIntegerField(help_text='How often its job was stopped for others before.')),
                ('gpu_milli', models.PositiveBigIntegerField(help_text='Its size; without GPUs, sixteen cores count as one.')),
                ('cost_gpu_seconds', models.FloatField()),
            ],
        ),
        migrations.AddField(
            model_name='priorityclass',
            name='preempts',
            field=models.CharField(choices=[('never', 'never'), ('lower', 'lower')], db_default='never', default='never', help_text='`lower`: its waiting jobs may replace running ones of lower priority in their organisation.', max_length=5),
        ),
        migrations.AddField(
            model_name='priorityclass',
            name='shield_seconds',
            field=models.PositiveIntegerField(db_default=300, default=300, help_text='How long its jobs run at least before others may replace them.'),
        ),
        migrations.AddConstraint(
            model_name='priorityclass',
            constraint=models.CheckConstraint(condition=models.Q(('preempts__in', ('never', 'lower'))), name='priority_class_preempts_is_known'),
        ),
        migrations.AddConstraint(
            model_name='priorityclass',
            constraint=models.CheckConstraint(condition=models.Q(('shield_seconds__gte', 0), ('shield_seconds__lte', 2592000)), name='priority_class_shield_is_in_range'),
        ),
        migrations.AddField(
            model_name='preemption',
            name='beneficiary',
            field=models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='preemptions', to='federation.job'),
        ),
        migrations.AddField(
            model_name='preemption',
            name='cluster',
            field=models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to='clusters.cluster'),
        ),
        migrations.AddField(
            model_name='preemptionvictim',
            name='job',
            field=models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='evictions', to='federation.job'),
        ),
        migrations.AddField(
            model_name='preemptionvictim',
            name='preemption',
            field=models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='victims', to='federation.preemption'),
        ),
        migrations.AddIndex(
            model_name='preemption',
            index=models.Index(fields=['created_at'], name='preemptions_by_time'),
        ),
        migrations.AddIndex(
            model_name='preemption',
            index=models.Index(condition=models.Q(('ended_at__isnull', True)), fields=['id'], name='live_preemptions'),
        ),
        migrations.AddConstraint(
            model_name='preemption',
            constraint=models.UniqueConstraint(condition=models.Q(('ended_at__isnull', True)), fields=('beneficiary',), name='one_live_preemption_per_beneficiary'),
        ),
        migrations.AddConstraint(
            model_name='preemption',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('ended_at__isnull', True), ('outcome', '')), models.Q(('ended_at__isnull', False), ('outcome__in', ['placed', 'expired', 'withdrawn'])), _connector='OR'), name='a_preemption_ends_with_an_outcome'),
        ),
        migrations.AddConstraint(
            model_name='preemption',
            constraint=models.CheckConstraint(condition=models.Q(('deadline_at__gt', models.F('created_at'))), name='a_claim_has_a_deadline_ahead'),
        ),
        migrations.AddConstraint(
            model_name='preemption',
            constraint=models.CheckConstraint(condition=models.Q(('cost_gpu_seconds__gte', 0)), name='a_preemption_costs_nothing_or_more'),
        ),
        migrations.AddConstraint(
            model_name='preemption',
            constraint=models.CheckConstraint(condition=models.Q(('nodes__contains', []), ('considered__contains', []), ('alternatives__contains', [])), name='a_preemption_lists_its_nodes'),
        ),
        migrations.AddConstraint(
            model_name='preemptionvictim',
            constraint=models.CheckConstraint(condition=models.Q(('ran_seconds__gte', models.F('shield_seconds'))), name='a_victims_shield_is_kept'),
        ),
        migrations.AddConstraint(
            model_name='preemptionvictim',
            constraint=models.CheckConstraint(condition=models.Q(('times_preempted__lt', 3)), name='a_job_is_preempted_a_few_times_at_most'),
        ),
        migrations.AddConstraint(
            model_name='preemptionvictim',
            constraint=models.CheckConstraint(condition=models.Q(('cost_gpu_seconds__gte', 0)), name='a_victim_costs_nothing_or_more'),
        ),
        migrations.RunSQL(SQL, UNDO),
    ]
