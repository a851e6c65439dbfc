"""Budgets, their holds and journal; `0003_budgets.sql` has what the tables themselves refuse."""

from pathlib import Path

import django.contrib.postgres.fields
import django.db.models.deletion
import django.db.models.expressions
import django.db.models.functions.comparison
import django.db.models.functions.datetime
import foundation.ids
from django.db import migrations, models


SQL = Path(__file__).with_name("0003_budgets.sql").read_text(encoding="utf-8")


class Migration(migrations.Migration):

    dependencies = [
        ('billing', '0002_ledger'),
        ('quotas', '0002_borrowing'),
        ('clusters', '0008_images'),
        ('tenancy', '0001_initial'),
    ]

    operations = [
        migrations.CreateModel(
            name='Budget',
            fields=[
                ('id', models.UUIDField(default=foundation.ids.new_id, editable=False, primary_key=True, serialize=False)),
                ('measure', models.CharField(choices=[('money', 'Money'), ('gpu_hours', 'Gpu Hours')], max_length=10)),
                ('currency', models.CharField(blank=True, default='', max_length=3)),
                ('period', models.CharField(choices=[('month', 'Month'), ('quarter', 'Quarter'), ('year', 'Year'), ('dates', 'Dates')], max_length=10)),
                ('starts_at', models.DateTimeField(null=True)),
                ('ends_at', models.DateTimeField(null=True)),
                ('amount', models.DecimalField(decimal_places=12, max_digits=38)),
                ('notify_at', django.contrib.postgres.fields.ArrayField(base_field=models.PositiveSmallIntegerField(), help_text='Percent of the amount; sorted, distinct.', size=None)),
                ('stops_admission', models.BooleanField()),
                ('counts_from', models.DateTimeField(help_text='The start of its first period; what ran earlier does not count.')),
                ('removed_at', models.DateTimeField(editable=False, null=True)),
                ('updated_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
            ],
        ),
        migrations.CreateModel(
            name='BudgetAlert',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('percent', models.PositiveSmallIntegerField()),
                ('spent', models.DecimalField(decimal_places=12, help_text='When it was reached.', max_digits=38)),
                ('amount', models.DecimalField(decimal_places=12, help_text='When it was reached.', max_digits=38)),
                ('at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
            ],
        ),
        migrations.CreateModel(
            name='BudgetHold',
            fields=[
                ('holder_id', models.UUIDField(primary_key=True, serialize=False)),
                ('money_an_hour', models.DecimalField(decimal_places=12, max_digits=38)),
                ('currency', models.CharField(blank=True, max_length=3)),
                ('gpus', models.DecimalField(decimal_places=12, max_digits=38)),
                ('starts_at', models.DateTimeField()),
                ('seconds', models.PositiveBigIntegerField()),
                ('state', models.CharField(choices=[('pending', 'Pending'), ('posted', 'Posted'), ('voided', 'Voided')], default='pending', max_length=10)),
                ('created_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('ended_at', models.DateTimeField(null=True)),
            ],
        ),
        migrations.CreateModel(
            name='BudgetMovement',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('run_id', models.UUIDField(help_text='The holder; runs from before an upgrade have no hold.')),
                ('kind', models.CharField(choices=[('open', 'Open'), ('take', 'Take'), ('adjust', 'Adjust'), ('post', 'Post'), ('void', 'Void')], max_length=6)),
                ('held', models.DecimalField(decimal_places=12, max_digits=38)),
                ('spent', models.DecimalField(decimal_places=12, max_digits=38)),
                ('at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
            ],
        ),
        migrations.CreateModel(
            name='BudgetOverride',
            fields=[
                ('id', models.UUIDField(default=foundation.ids.new_id, editable=False, primary_key=True, serialize=False)),
                ('amount', models.DecimalField(decimal_places=12, max_digits=38)),
                ('reason', models.CharField(max_length=500)),
                ('expires_at', models.DateTimeField()),
                ('requested_by', models.UUIDField()),
                ('requester_name', models.CharField(max_length=254)),
                ('requested_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('approved_by', models.UUIDField(null=True)),
                ('approver_name', models.CharField(blank=True, default='', max_length=254)),
                ('approved_at', models.DateTimeField(null=True)),
            ],
        ),
        migrations.CreateModel(
            name='BudgetPeriod',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('starts_at', models.DateTimeField()),
                ('ends_at', models.DateTimeField()),
                ('amount', models.DecimalField(decimal_places=12, max_digits=38)),
                ('granted', models.DecimalField(decimal_places=12, default=0, editable=False, max_digits=38)),
                ('cap', models.DecimalField(decimal_places=12, editable=False, max_digits=38)),
                ('held', models.DecimalField(decimal_places=12, default=0, editable=False, max_digits=38)),
                ('spent', models.DecimalField(decimal_places=12, default=0, editable=False, max_digits=38)),
            ],
        ),
        migrations.AddIndex(
            model_name='meter',
            index=models.Index(fields=['run_id'], name='meters_by_run'),
        ),
        migrations.AddField(
            model_name='budget',
            name='tenant',
            field=models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='budgets', to='tenancy.tenant'),
        ),
        migrations.AddField(
            model_name='budgethold',
            name='tenant',
            field=models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='budget_holds', to='tenancy.tenant'),
        ),
        migrations.AddField(
            model_name='budgetperiod',
            name='budget',
            field=models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='periods', to='billing.budget'),
        ),
        migrations.AddField(
            model_name='budgetoverride',
            name='period',
            field=models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='overrides', to='billing.budgetperiod'),
        ),
        migrations.AddField(
            model_name='budgetmovement',
            name='period',
            field=models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.PROTECT, related_name='movements', to='billing.budgetperiod'),
        ),
        migrations.AddField(
            model_name='budgetalert',
            name='period',
            field=models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.PROTECT, related_name='alerts', to='billing.budgetperiod'),
        ),
        migrations.AddConstraint(
            model_name='budget',
            constraint=models.UniqueConstraint(condition=models.Q(('removed_at__isnull', True)), fields=('tenant', 'measure', 'period', 'starts_at', 'ends_at'), name='one_budget_per_tenant_measure_and_period', nulls_distinct=False),
        ),
        migrations.AddConstraint(
            model_name='budget',
            constraint=models.CheckConstraint(condition=models.Q(('amount__gte', 0), ('amount__lte', 1000000000000)), name='budget_is_in_range'),
        ),
        migrations.AddConstraint(
            model_name='budget',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('currency', ''), ('measure', 'gpu_hours')), models.Q(('currency__regex', '^[A-Z]{3}$'), ('measure', 'money')), _connector='OR'), name='budget_of_money_has_a_currency'),
        ),
        migrations.AddConstraint(
            model_name='budget',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('period', 'dates'), ('starts_at__lt', models.F('ends_at'))), models.Q(('ends_at__isnull', True), ('period__in', ['month', 'quarter', 'year']), ('starts_at__isnull', True)), _connector='OR'), name='budget_has_dates_or_a_period'),
        ),
        migrations.AddIndex(
            model_name='budgethold',
            index=models.Index(condition=models.Q(('state', 'pending')), fields=['tenant'], name='pending_budget_holds_by_tenant'),
        ),
        migrations.AddConstraint(
            model_name='budgethold',
            constraint=models.CheckConstraint(condition=models.Q(('gpus__gte', 0), ('money_an_hour__gte', 0)), name='budget_hold_is_not_negative'),
        ),
        migrations.AddConstraint(
            model_name='budgethold',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('ended_at__isnull', True), ('state', 'pending')), models.Q(('ended_at__isnull', False), ('state__in', ['posted', 'voided'])), _connector='OR'), name='budget_hold_ends_with_a_time'),
        ),
        migrations.AddConstraint(
            model_name='budgetperiod',
            constraint=models.UniqueConstraint(fields=('budget', 'starts_at'), name='one_row_per_budget_and_period'),
        ),
        migrations.AddConstraint(
            model_name='budgetperiod',
            constraint=models.CheckConstraint(condition=models.Q(('held__gte', 0)), name='budget_held_is_not_negative'),
        ),
        migrations.AddConstraint(
            model_name='budgetperiod',
            constraint=models.CheckConstraint(condition=models.Q(('spent__gte', 0)), name='budget_spent_is_not_negative'),
        ),
        migrations.AddConstraint(
            model_name='budgetperiod',
            constraint=models.CheckConstraint(condition=models.Q(('cap__gte', django.db.models.expressions.CombinedExpression(models.F('spent'), '+', models.F('held')))), name='budget_is_never_exceeded'),
        ),
        migrations.AddConstraint(
            model_name='budgetperiod',
            constraint=models.CheckConstraint(condition=models.Q(('cap', django.db.models.functions.comparison.Greatest(django.db.models.expressions.CombinedExpression(models.F('amount'), '+', models.F('granted')), django.db.models.expressions.CombinedExpression(models.F('spent'), '+', models.F('held'))))), name='budget_surplus_cap_is_what_is_used'),
        ),
        migrations.AddConstraint(
            model_name='budgetoverride',
            constraint=models.CheckConstraint(condition=models.Q(('amount__gt', 0), ('amount__lte', 1000000000000)), name='override_adds_something'),
        ),
        migrations.AddConstraint(
            model_name='budgetoverride',
            constraint=models.CheckConstraint(condition=models.Q(('reason', ''), _negated=True), name='override_has_a_reason'),
        ),
        migrations.AddConstraint(
            model_name='budgetoverride',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('approved_at__isnull', True), ('approved_by__isnull', True)), models.Q(('approved_at__isnull', False), ('approved_by__isnull', False), models.Q(('approved_by', models.F('requested_by')), _negated=True)), _connector='OR'), name='override_needs_a_second_person'),
        ),
        migrations.AddIndex(
            model_name='budgetmovement',
            index=models.Index(fields=['run_id', 'period'], name='budget_lines_by_run'),
        ),
        migrations.AddIndex(
            model_name='budgetmovement',
            index=models.Index(fields=['period'], name='budget_lines_by_period'),
        ),
        migrations.AddConstraint(
            model_name='budgetmovement',
            constraint=models.UniqueConstraint(condition=models.Q(('kind__in', ['take', 'open'])), fields=('run_id', 'period'), name='a_run_is_taken_once_per_budget_period'),
        ),
        migrations.AddConstraint(
            model_name='budgetmovement',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('held__gte', 0), ('kind__in', ['open', 'take'])), ('kind', 'adjust'), models.Q(('held__lte', 0), ('kind__in', ['post', 'void'])), _connector='OR'), name='takes_add_and_ends_return'),
        ),
        migrations.AddConstraint(
            model_name='budgetmovement',
            constraint=models.CheckConstraint(condition=models.Q(('spent', 0), models.Q(('kind__in', ['open', 'adjust', 'post']), ('spent__gt', 0)), _connector='OR'), name='only_metered_time_is_spent'),
        ),
        migrations.AddConstraint(
            model_name='budgetalert',
            constraint=models.UniqueConstraint(fields=('period', 'percent'), name='each_threshold_alerts_once_per_period'),
        ),
        migrations.RunSQL(SQL, migrations.RunSQL.noop),
    ]
