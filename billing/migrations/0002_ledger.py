"""The ledger: accounts, entries, corrections of prices and periods; `0002_ledger.sql` has what the tables refuse."""

from pathlib import Path

import django.contrib.postgres.fields.ranges
import django.db.models.deletion
import django.db.models.functions.datetime
import foundation.ids
from django.db import migrations, models

UNDO = """
DROP FUNCTION billing_add_to_days() CASCADE;
DROP FUNCTION billing_take_step() CASCADE;
DROP FUNCTION billing_mark_corrected_days() CASCADE;
DROP FUNCTION billing_judge_correction() CASCADE;
DROP FUNCTION billing_corrected(bigint, tstzrange) CASCADE;
DROP FUNCTION billing_day_due(uuid, character varying, uuid, character varying, date) CASCADE;
DROP FUNCTION billing_account_name(bigint) CASCADE;
DROP FUNCTION billing_entry_text(bigint) CASCADE;
DROP FUNCTION billing_period_checksum(uuid) CASCADE;
DROP FUNCTION billing_admit_entry() CASCADE;
DROP FUNCTION billing_judge_entry_text(bigint) CASCADE;
DROP FUNCTION billing_judge_day(billing_ledgerentry) CASCADE;
DROP FUNCTION billing_judge_entry() CASCADE;
DROP FUNCTION billing_judge_line() CASCADE;
DROP FUNCTION billing_guard_period() CASCADE;
DROP FUNCTION billing_record_close() CASCADE;
DROP FUNCTION billing_guard_reopening() CASCADE;
DROP FUNCTION billing_guard_conflict() CASCADE;
"""


class Migration(migrations.Migration):

    dependencies = [
        ('billing', '0001_initial'),
        ('clusters', '0008_images'),
        ('tenancy', '0001_initial'),
    ]

    operations = [
        migrations.CreateModel(
            name='LedgerAccount',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('kind', models.CharField(choices=[('tenant_expense', 'Tenant Expense'), ('cluster_pool', 'Cluster Pool'), ('rounding', 'Rounding'), ('adjustments', 'Adjustments')], max_length=20)),
            ],
        ),
        migrations.CreateModel(
            name='LedgerEntry',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('key', models.CharField(help_text='What it is; posting it twice changes nothing.', max_length=400, unique=True)),
                ('kind', models.CharField(choices=[('usage', 'Usage'), ('reversal', 'Reversal'), ('reentry', 'Reentry'), ('adjustment', 'Adjustment')], max_length=10)),
                ('tenant_path', models.CharField(blank=True, db_collation='C', max_length=1100)),
                ('flavor', models.CharField(blank=True, max_length=120)),
                ('charge_day', models.DateField()),
                ('reason', models.CharField(blank=True, max_length=500)),
                ('line_count', models.PositiveIntegerField()),
                ('digest', models.CharField(help_text='SHA-256 of its canonical text.', max_length=64)),
                ('posted_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
            ],
        ),
        migrations.CreateModel(
            name='LedgerLine',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('amount', models.DecimalField(decimal_places=12, max_digits=38)),
                ('currency', models.CharField(max_length=3)),
            ],
        ),
        migrations.CreateModel(
            name='LedgerPeriod',
            fields=[
                ('id', models.UUIDField(default=foundation.ids.new_id, editable=False, primary_key=True, serialize=False)),
                ('month', models.DateField(help_text='Its first day, UTC.')),
                ('state', models.CharField(choices=[('open', 'Open'), ('closing', 'Closing'), ('closed', 'Closed')], db_default='open', default='open', max_length=7)),
                ('closing_by_id', models.UUIDField(help_text='Who asked to close it.', null=True)),
                ('closing_by_name', models.CharField(blank=True, db_default='', default='', max_length=254)),
                ('closing_at', models.DateTimeField(null=True)),
                ('accepts_unpriced', models.BooleanField(db_default=False, default=False, help_text='Whether they accepted that some of its time has no price.')),
                ('closed_at', models.DateTimeField(null=True)),
                ('checksum', models.CharField(blank=True, db_default='', default='', help_text='SHA-256 of its canonical lines while closed.', max_length=64)),
                ('revision', models.PositiveIntegerField(db_default=0, default=0, help_text='How often it was closed.')),
                ('created_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
            ],
        ),
        migrations.CreateModel(
            name='LedgerStep',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('tenant_path', models.CharField(db_collation='C', max_length=1100)),
                ('flavor', models.CharField(max_length=120)),
                ('day', models.DateField()),
                ('made_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
            ],
        ),
        migrations.CreateModel(
            name='PeriodClose',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('revision', models.PositiveIntegerField()),
                ('checksum', models.CharField(max_length=64)),
                ('closed_by_id', models.UUIDField(null=True)),
                ('closed_by_name', models.CharField(blank=True, max_length=254)),
                ('closed_at', models.DateTimeField()),
            ],
        ),
        migrations.CreateModel(
            name='PeriodReopening',
            fields=[
                ('id', models.UUIDField(default=foundation.ids.new_id, editable=False, primary_key=True, serialize=False)),
                ('revision', models.PositiveIntegerField(help_text='The close that it undoes.')),
                ('reason', models.CharField(max_length=500)),
                ('requested_by_id', models.UUIDField()),
                ('requested_by_name', models.CharField(max_length=254)),
                ('requested_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('approved_by_id', models.UUIDField(null=True)),
                ('approved_by_name', models.CharField(blank=True, db_default='', default='', max_length=254)),
                ('approved_at', models.DateTimeField(null=True)),
            ],
        ),
        migrations.CreateModel(
            name='PostingConflict',
            fields=[
                ('id', models.UUIDField(editable=False, primary_key=True, serialize=False)),
                ('key', models.CharField(max_length=400)),
                ('month', models.DateField(help_text='Of the charge.')),
                ('standing_digest', models.CharField(max_length=64)),
                ('offered_digest', models.CharField(max_length=64)),
                ('offered', models.TextField(help_text='Its canonical text.')),
                ('seen_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('resolved_at', models.DateTimeField(null=True)),
                ('resolved_by_id', models.UUIDField(null=True)),
                ('resolved_by_name', models.CharField(blank=True, db_default='', default='', max_length=254)),
                ('note', models.CharField(blank=True, db_default='', default='', max_length=500)),
            ],
        ),
        migrations.CreateModel(
            name='PriceCorrection',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('span', django.contrib.postgres.fields.ranges.DateTimeRangeField(help_text='Half-open, UTC, past.')),
                ('unit_price', models.DecimalField(decimal_places=6, max_digits=18)),
                ('cpu_price', models.DecimalField(decimal_places=6, max_digits=18, null=True)),
                ('memory_price', models.DecimalField(decimal_places=6, max_digits=18, null=True)),
                ('currency', models.CharField(max_length=3)),
                ('reason', models.CharField(max_length=500)),
                ('made_by_id', models.UUIDField(null=True)),
                ('made_by_name', models.CharField(max_length=254)),
                ('created_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
            ],
        ),
        migrations.CreateModel(
            name='TenantDay',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('tenant_path', models.CharField(db_collation='C', max_length=1100)),
                ('flavor', models.CharField(max_length=120)),
                ('day', models.DateField()),
                ('currency', models.CharField(blank=True, help_text='Empty without a price.', max_length=3)),
                ('cost', models.DecimalField(decimal_places=12, max_digits=38)),
                ('segments', models.PositiveBigIntegerField()),
                ('is_due', models.BooleanField(db_default=True)),
            ],
        ),
        migrations.AddIndex(
            model_name='meter',
            index=models.Index(fields=['tenant', 'cluster', 'flavor', 'metered_until'], name='meters_by_place'),
        ),
        migrations.AddField(
            model_name='ledgeraccount',
            name='cluster',
            field=models.ForeignKey(null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to='clusters.cluster'),
        ),
        migrations.AddField(
            model_name='ledgeraccount',
            name='organisation',
            field=models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='ledger_accounts', to='tenancy.tenant'),
        ),
        migrations.AddField(
            model_name='ledgeraccount',
            name='tenant',
            field=models.ForeignKey(null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to='tenancy.tenant'),
        ),
        migrations.AddField(
            model_name='ledgerentry',
            name='cluster',
            field=models.ForeignKey(null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to='clusters.cluster'),
        ),
        migrations.AddField(
            model_name='ledgerentry',
            name='organisation',
            field=models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='ledger_entries', to='tenancy.tenant'),
        ),
        migrations.AddField(
            model_name='ledgerentry',
            name='reverses',
            field=models.OneToOneField(null=True, on_delete=django.db.models.deletion.PROTECT, related_name='reversed_by', to='billing.ledgerentry'),
        ),
        migrations.AddField(
            model_name='ledgerentry',
            name='tenant',
            field=models.ForeignKey(null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to='tenancy.tenant'),
        ),
        migrations.AddField(
            model_name='ledgerline',
            name='account',
            field=models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='lines', to='billing.ledgeraccount'),
        ),
        migrations.AddField(
            model_name='ledgerline',
            name='entry',
            field=models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='lines', to='billing.ledgerentry'),
        ),
        migrations.AddField(
            model_name='ledgerperiod',
            name='organisation',
            field=models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='ledger_periods', to='tenancy.tenant'),
        ),
        migrations.AddField(
            model_name='ledgerentry',
            name='period',
            field=models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='entries', to='billing.ledgerperiod'),
        ),
        migrations.AddField(
            model_name='ledgerstep',
            name='cluster',
            field=models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to='clusters.cluster'),
        ),
        migrations.AddField(
            model_name='ledgerstep',
            name='tenant',
            field=models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to='tenancy.tenant'),
        ),
        migrations.AddField(
            model_name='periodclose',
            name='period',
            field=models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='closes', to='billing.ledgerperiod'),
        ),
        migrations.AddField(
            model_name='periodreopening',
            name='period',
            field=models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='reopenings', to='billing.ledgerperiod'),
        ),
        migrations.AddField(
            model_name='postingconflict',
            name='organisation',
            field=models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to='tenancy.tenant'),
        ),
        migrations.AddField(
            model_name='pricecorrection',
            name='rate',
            field=models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='corrections', to='billing.rate'),
        ),
        migrations.AddField(
            model_name='ledgerentry',
            name='correction',
            field=models.ForeignKey(help_text='The latest that counts.', null=True, on_delete=django.db.models.deletion.PROTECT, related_name='entries', to='billing.pricecorrection'),
        ),
        migrations.AddField(
            model_name='tenantday',
            name='cluster',
            field=models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to='clusters.cluster'),
        ),
        migrations.AddField(
            model_name='tenantday',
            name='organisation',
            field=models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to='tenancy.tenant'),
        ),
        migrations.AddField(
            model_name='tenantday',
            name='tenant',
            field=models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='days', to='tenancy.tenant'),
        ),
        migrations.AddConstraint(
            model_name='ledgeraccount',
            constraint=models.UniqueConstraint(fields=('organisation', 'kind', 'tenant', 'cluster'), name='one_account_of_a_kind', nulls_distinct=False),
        ),
        migrations.AddConstraint(
            model_name='ledgeraccount',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('cluster__isnull', True), ('kind', 'tenant_expense'), ('tenant__isnull', False)), models.Q(('cluster__isnull', False), ('kind', 'cluster_pool'), ('tenant__isnull', True)), models.Q(('cluster__isnull', True), ('kind__in', ['rounding', 'adjustments']), ('tenant__isnull', True)), _connector='OR'), name='account_is_of_what_its_kind_says'),
        ),
        migrations.AddConstraint(
            model_name='ledgerline',
            constraint=models.UniqueConstraint(fields=('entry', 'account', 'currency'), name='one_line_per_account'),
        ),
        migrations.AddConstraint(
            model_name='ledgerline',
            constraint=models.CheckConstraint(condition=models.Q(('amount', 0), _negated=True), name='line_moves_money'),
        ),
        migrations.AddConstraint(
            model_name='ledgerline',
            constraint=models.CheckConstraint(condition=models.Q(('currency__regex', '^[A-Z]{3}$')), name='line_currency_is_three_letters'),
        ),
        migrations.AddConstraint(
            model_name='ledgerperiod',
            constraint=models.UniqueConstraint(fields=('organisation', 'month'), name='one_period_per_month'),
        ),
        migrations.AddConstraint(
            model_name='ledgerperiod',
            constraint=models.CheckConstraint(condition=models.Q(('month__day', 1)), name='period_begins_with_its_month'),
        ),
        migrations.AddConstraint(
            model_name='ledgerperiod',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('checksum', ''), ('closed_at__isnull', True), ('state__in', ['open', 'closing'])), models.Q(('checksum__regex', '^[0-9a-f]{64}$'), ('closed_at__isnull', False), ('revision__gte', 1), ('state', 'closed')), _connector='OR'), name='closed_period_has_its_checksum'),
        ),
        migrations.AddConstraint(
            model_name='ledgerperiod',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('closing_at__isnull', True), ('state', 'open')), models.Q(models.Q(('state', 'open'), _negated=True), ('closing_at__isnull', False)), _connector='OR'), name='closing_period_says_since_when'),
        ),
        migrations.AddConstraint(
            model_name='periodclose',
            constraint=models.UniqueConstraint(fields=('period', 'revision'), name='one_close_per_revision'),
        ),
        migrations.AddConstraint(
            model_name='periodreopening',
            constraint=models.UniqueConstraint(fields=('period', 'revision'), name='one_reopening_per_close'),
        ),
        migrations.AddConstraint(
            model_name='periodreopening',
            constraint=models.CheckConstraint(condition=models.Q(('reason', ''), _negated=True), name='reopening_has_a_reason'),
        ),
        migrations.AddConstraint(
            model_name='periodreopening',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('approved_at__isnull', True), ('approved_by_id__isnull', True)), models.Q(('approved_at__isnull', False), models.Q(('approved_by_id', models.F('requested_by_id')), _negated=True)), _connector='OR'), name='reopening_needs_two_people'),
        ),
        migrations.AddConstraint(
            model_name='postingconflict',
            constraint=models.UniqueConstraint(fields=('key', 'offered_digest'), name='one_conflict_per_offer'),
        ),
        migrations.AddConstraint(
            model_name='postingconflict',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('note', ''), ('resolved_at__isnull', True)), models.Q(('resolved_at__isnull', False), models.Q(('note', ''), _negated=True)), _connector='OR'), name='resolved_conflict_says_how'),
        ),
        migrations.AddIndex(
            model_name='pricecorrection',
            index=models.Index(fields=['rate'], name='corrections_by_rate'),
        ),
        migrations.AddConstraint(
            model_name='pricecorrection',
            constraint=models.CheckConstraint(condition=models.Q(('unit_price__gte', 0), models.Q(('cpu_price__isnull', True), ('cpu_price__gte', 0), _connector='OR'), models.Q(('memory_price__isnull', True), ('memory_price__gte', 0), _connector='OR')), name='corrected_price_is_not_negative'),
        ),
        migrations.AddConstraint(
            model_name='pricecorrection',
            constraint=models.CheckConstraint(condition=models.Q(('span__isempty', False), ('span__lower_inc', True), ('span__lower_inf', False), ('span__upper_inc', False), ('span__upper_inf', False)), name='corrected_span_is_half_open'),
        ),
        migrations.AddConstraint(
            model_name='pricecorrection',
            constraint=models.CheckConstraint(condition=models.Q(('reason', ''), _negated=True), name='correction_has_a_reason'),
        ),
        migrations.AddIndex(
            model_name='ledgerentry',
            index=models.Index(fields=['tenant', 'charge_day', 'cluster'], name='entries_by_day'),
        ),
        migrations.AddIndex(
            model_name='ledgerentry',
            index=models.Index(fields=['period', 'key'], name='entries_by_period'),
        ),
        migrations.AddConstraint(
            model_name='ledgerentry',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('kind', 'reversal'), ('reverses__isnull', False)), models.Q(models.Q(('kind', 'reversal'), _negated=True), ('reverses__isnull', True)), _connector='OR'), name='only_a_reversal_reverses'),
        ),
        migrations.AddConstraint(
            model_name='ledgerentry',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('cluster__isnull', True), ('kind', 'adjustment'), ('tenant__isnull', True), models.Q(('reason', ''), _negated=True)), ('kind', 'reversal'), models.Q(('cluster__isnull', False), ('kind__in', ['usage', 'reentry']), ('tenant__isnull', False)), _connector='OR'), name='entry_says_what_it_is_for'),
        ),
        migrations.AddConstraint(
            model_name='ledgerentry',
            constraint=models.CheckConstraint(condition=models.Q(('line_count__gte', 2)), name='entry_has_two_sides'),
        ),
        migrations.AddIndex(
            model_name='tenantday',
            index=models.Index(condition=models.Q(('is_due', True)), fields=['day', 'organisation'], name='days_to_post'),
        ),
        migrations.AddIndex(
            model_name='tenantday',
            index=models.Index(fields=['cluster', 'day'], name='days_by_cluster'),
        ),
        migrations.AddIndex(
            model_name='tenantday',
            index=models.Index(fields=['organisation', 'day'], name='days_by_organisation'),
        ),
        migrations.AddConstraint(
            model_name='tenantday',
            constraint=models.UniqueConstraint(fields=('tenant', 'day', 'cluster', 'flavor', 'tenant_path', 'currency'), name='one_sum_a_tenant_day'),
        ),
        migrations.RunSQL(Path(__file__).with_name("0002_ledger.sql").read_text(encoding="utf-8"), UNDO),
    ]
