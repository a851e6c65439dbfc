"""Idle capacity and the cost of the platform, and who bears them; `0006_idle.sql` has what the tables refuse."""

from pathlib import Path

import django.db.models.deletion
import django.db.models.expressions
import django.db.models.functions.datetime
import foundation.ids
from django.db import migrations, models


UNDO = """
DROP FUNCTION billing_admit_policy() CASCADE;
DROP FUNCTION billing_admit_pool_day() CASCADE;
DROP FUNCTION billing_admit_share() CASCADE;
DROP FUNCTION billing_judge_share() CASCADE;
DROP FUNCTION billing_judge_sharing() CASCADE;
DROP FUNCTION billing_sharing_errors(uuid) CASCADE;
DROP FUNCTION billing_guard_negative_idle() CASCADE;
"""


class Migration(migrations.Migration):

    dependencies = [
        ('billing', '0005_rollups'),
        ('clusters', '0009_history'),
        ('tenancy', '0002_weight'),
    ]

    operations = [
        migrations.CreateModel(
            name='NegativeIdle',
            fields=[
                ('id', models.UUIDField(default=foundation.ids.new_id, editable=False, primary_key=True, serialize=False)),
                ('flavor', models.CharField(max_length=120)),
                ('day', models.DateField()),
                ('currency', models.CharField(max_length=3)),
                ('cost', models.DecimalField(decimal_places=12, max_digits=38)),
                ('charged', models.DecimalField(decimal_places=12, max_digits=38)),
                ('seen_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('state', models.CharField(choices=[('open', 'Open'), ('accepted', 'Accepted'), ('superseded', 'Superseded')], db_default='open', default='open', max_length=10)),
                ('note', models.CharField(blank=True, db_default='', default='', max_length=500)),
                ('decided_by_id', models.UUIDField(null=True)),
                ('decided_by_name', models.CharField(blank=True, db_default='', default='', max_length=254)),
                ('decided_at', models.DateTimeField(null=True)),
            ],
        ),
        migrations.CreateModel(
            name='PoolDay',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('revision', models.PositiveIntegerField(help_text='The close that it is of.')),
                ('flavor', models.CharField(max_length=120)),
                ('day', models.DateField()),
                ('currency', models.CharField(max_length=3)),
                ('cost', models.DecimalField(decimal_places=12, max_digits=38)),
                ('charged', models.DecimalField(decimal_places=12, max_digits=38)),
                ('overhead', models.DecimalField(decimal_places=12, max_digits=38)),
                ('idle', models.DecimalField(decimal_places=12, max_digits=38)),
                ('shared', models.DecimalField(decimal_places=12, max_digits=38)),
                ('assumed', models.DecimalField(decimal_places=12, help_text='The part of the cost that is of time without observation.', max_digits=38)),
                ('last_entry', models.BigIntegerField()),
                ('last_correction', models.BigIntegerField()),
            ],
        ),
        migrations.CreateModel(
            name='SharingPolicy',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('effective_from', models.DateField(help_text='The first day of a month, UTC.')),
                ('idle', models.CharField(choices=[('central', 'Central'), ('proportional', 'Proportional'), ('reservations', 'Reservations')], max_length=12)),
                ('platform', models.CharField(choices=[('fixed', 'Fixed'), ('even', 'Even'), ('proportional', 'Proportional')], default='proportional', max_length=12)),
                ('platform_cost', models.DecimalField(decimal_places=6, default=0, help_text='Of each month.', max_digits=18)),
                ('platform_currency', models.CharField(blank=True, max_length=3)),
                ('platform_weights', models.JSONField(blank=True, default=dict, help_text="By the tenant's id, if it is `fixed`.")),
                ('made_by_id', models.UUIDField(null=True)),
                ('made_by_name', models.CharField(max_length=254)),
                ('created_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
            ],
        ),
        migrations.RemoveConstraint(
            model_name='ledgeraccount',
            name='account_is_of_what_its_kind_says',
        ),
        migrations.RemoveConstraint(
            model_name='ledgerentry',
            name='entry_says_what_it_is_for',
        ),
        migrations.AlterField(
            model_name='ledgeraccount',
            name='kind',
            field=models.CharField(choices=[('tenant_expense', 'Tenant Expense'), ('cluster_pool', 'Cluster Pool'), ('rounding', 'Rounding'), ('adjustments', 'Adjustments'), ('idle', 'Idle'), ('overhead', 'Overhead'), ('platform', 'Platform')], max_length=20),
        ),
        migrations.AlterField(
            model_name='ledgerentry',
            name='kind',
            field=models.CharField(choices=[('usage', 'Usage'), ('reversal', 'Reversal'), ('reentry', 'Reentry'), ('adjustment', 'Adjustment'), ('idle', 'Idle'), ('platform', 'Platform')], max_length=10),
        ),
        migrations.AddIndex(
            model_name='ledgerentry',
            index=models.Index(fields=['organisation', 'charge_day'], name='entries_by_charge_day'),
        ),
        migrations.AddConstraint(
            model_name='ledgeraccount',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('cluster__isnull', True), ('kind', 'tenant_expense'), ('tenant__isnull', False)), models.Q(('cluster__isnull', False), ('kind', 'cluster_pool'), ('tenant__isnull', True)), models.Q(('cluster__isnull', True), ('kind__in', ['rounding', 'adjustments', 'idle', 'overhead', 'platform']), ('tenant__isnull', True)), _connector='OR'), name='account_is_of_what_its_kind_says'),
        ),
        migrations.AddConstraint(
            model_name='ledgerentry',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('cluster__isnull', True), ('kind', 'adjustment'), ('tenant__isnull', True), models.Q(('reason', ''), _negated=True)), models.Q(('cluster__isnull', False), ('kind', 'idle'), ('tenant__isnull', True), models.Q(('reason', ''), _negated=True)), models.Q(('cluster__isnull', True), ('kind', 'platform'), ('tenant__isnull', True), models.Q(('reason', ''), _negated=True)), ('kind', 'reversal'), models.Q(('cluster__isnull', False), ('kind__in', ['usage', 'reentry']), ('tenant__isnull', False)), _connector='OR'), name='entry_says_what_it_is_for'),
        ),
        migrations.AddField(
            model_name='negativeidle',
            name='cluster',
            field=models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to='clusters.cluster'),
        ),
        migrations.AddField(
            model_name='negativeidle',
            name='period',
            field=models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='negative_idle', to='billing.ledgerperiod'),
        ),
        migrations.AddField(
            model_name='poolday',
            name='cluster',
            field=models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to='clusters.cluster'),
        ),
        migrations.AddField(
            model_name='poolday',
            name='period',
            field=models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='pool_days', to='billing.ledgerperiod'),
        ),
        migrations.AddField(
            model_name='sharingpolicy',
            name='organisation',
            field=models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='sharing_policies', to='tenancy.tenant'),
        ),
        migrations.AddIndex(
            model_name='negativeidle',
            index=models.Index(fields=['period', 'state'], name='negative_idle_by_state'),
        ),
        migrations.AddConstraint(
            model_name='negativeidle',
            constraint=models.UniqueConstraint(fields=('period', 'cluster', 'flavor', 'day', 'currency', 'cost', 'charged'), name='one_row_of_these_numbers'),
        ),
        migrations.AddConstraint(
            model_name='negativeidle',
            constraint=models.CheckConstraint(condition=models.Q(('charged__gt', models.F('cost'))), name='negative_idle_is_negative'),
        ),
        migrations.AddConstraint(
            model_name='negativeidle',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('decided_at__isnull', True), ('state', 'open')), models.Q(('decided_at__isnull', False), ('state', 'superseded')), models.Q(('decided_at__isnull', False), ('state', 'accepted'), models.Q(('note', ''), _negated=True)), _connector='OR'), name='accepted_idle_says_why'),
        ),
        migrations.AddConstraint(
            model_name='poolday',
            constraint=models.UniqueConstraint(fields=('period', 'revision', 'cluster', 'flavor', 'day', 'currency'), name='one_balance_a_pool_day'),
        ),
        migrations.AddConstraint(
            model_name='poolday',
            constraint=models.CheckConstraint(condition=models.Q(('cost', django.db.models.expressions.CombinedExpression(django.db.models.expressions.CombinedExpression(models.F('charged'), '+', models.F('overhead')), '+', models.F('idle')))), name='pool_day_adds_up_to_its_cost'),
        ),
        migrations.AddConstraint(
            model_name='poolday',
            constraint=models.CheckConstraint(condition=models.Q(('overhead__gte', 0), ('shared__gte', 0), models.Q(('shared', 0), ('shared__lte', models.F('idle')), _connector='OR')), name='no_more_is_shared_than_is_idle'),
        ),
        migrations.AddConstraint(
            model_name='poolday',
            constraint=models.CheckConstraint(condition=models.Q(('assumed__gte', 0), ('assumed__lte', models.F('cost'))), name='assumed_is_a_part'),
        ),
        migrations.AddIndex(
            model_name='sharingpolicy',
            index=models.Index(fields=['organisation', '-effective_from', '-id'], name='policies_latest_first'),
        ),
        migrations.AddConstraint(
            model_name='sharingpolicy',
            constraint=models.CheckConstraint(condition=models.Q(('effective_from__day', 1)), name='policy_begins_with_a_month'),
        ),
        migrations.AddConstraint(
            model_name='sharingpolicy',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('platform_cost', 0), ('platform_currency', '')), models.Q(('platform_cost__gt', 0), ('platform_currency__regex', '^[A-Z]{3}$')), _connector='OR'), name='platform_cost_has_a_currency'),
        ),
        migrations.AddConstraint(
            model_name='sharingpolicy',
            constraint=models.CheckConstraint(condition=models.Q(('idle__in', ['central', 'proportional', 'reservations']), ('platform__in', ['fixed', 'even', 'proportional'])), name='policy_is_known'),
        ),
        migrations.RunSQL(Path(__file__).with_name("0006_idle.sql").read_text(encoding="utf-8"), UNDO),
    ]
