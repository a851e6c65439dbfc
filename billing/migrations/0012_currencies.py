"""Rates of exchange, billing currencies and conversions; `0012_currencies.sql` has what the tables refuse."""

from pathlib import Path

import django.db.models.deletion
import django.db.models.expressions
import django.db.models.functions.datetime
import django.db.models.functions.math
from django.db import migrations, models

SQL = Path(__file__).with_name("0012_currencies.sql").read_text(encoding="utf-8")


class Migration(migrations.Migration):

    dependencies = [
        ('billing', '0011_node_hours'),
        ('clusters', '0009_history'),
        ('tenancy', '0002_weight'),
    ]

    operations = [
        migrations.CreateModel(
            name='BillingCurrency',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('effective_from', models.DateField(help_text='The first day of a month, UTC.')),
                ('currency', models.CharField(max_length=3)),
                ('made_by_id', models.UUIDField(null=True)),
                ('made_by_name', models.CharField(max_length=254)),
                ('created_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
            ],
            options={
                'verbose_name_plural': 'billing currencies',
            },
        ),
        migrations.CreateModel(
            name='ConversionDay',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('day', models.DateField()),
            ],
        ),
        migrations.CreateModel(
            name='ExchangeRate',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('kind', models.CharField(choices=[('reference', 'Reference'), ('override', 'Override')], max_length=9)),
                ('base', models.CharField(max_length=3)),
                ('quote', models.CharField(max_length=3)),
                ('rate', models.DecimalField(decimal_places=12, max_digits=24)),
                ('valid_from', models.DateField()),
                ('valid_until', models.DateField(help_text='The first day on which an override no longer counts.', null=True)),
                ('source', models.CharField(max_length=60)),
                ('reason', models.CharField(blank=True, db_default='', default='', max_length=500)),
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
        migrations.RemoveConstraint(
            model_name='ledgerline',
            name='one_line_per_account',
        ),
        migrations.AddField(
            model_name='ledgerentry',
            name='converts',
            field=models.ForeignKey(help_text='Whose amounts it converts; of its conversions, one is not reversed.', null=True, on_delete=django.db.models.deletion.PROTECT, related_name='conversions', to='billing.ledgerentry'),
        ),
        migrations.AddField(
            model_name='ledgerline',
            name='priced_amount',
            field=models.DecimalField(decimal_places=12, help_text='Of a converted amount: what it was before.', max_digits=38, null=True),
        ),
        migrations.AddField(
            model_name='ledgerline',
            name='priced_currency',
            field=models.CharField(blank=True, db_default='', default='', max_length=3),
        ),
        migrations.AddField(
            model_name='ledgerline',
            name='rate',
            field=models.DecimalField(decimal_places=18, help_text='Of the priced currency.', max_digits=38, null=True),
        ),
        migrations.AddField(
            model_name='ledgerline',
            name='rate_day',
            field=models.DateField(null=True),
        ),
        migrations.AddField(
            model_name='ledgerline',
            name='rate_source',
            field=models.CharField(blank=True, db_default='', default='', max_length=122),
        ),
        migrations.AlterField(
            model_name='ledgeraccount',
            name='kind',
            field=models.CharField(choices=[('tenant_expense', 'Tenant Expense'), ('cluster_pool', 'Cluster Pool'), ('rounding', 'Rounding'), ('adjustments', 'Adjustments'), ('idle', 'Idle'), ('overhead', 'Overhead'), ('platform', 'Platform'), ('infrastructure', 'Infrastructure'), ('tenant_converted', 'Tenant Converted'), ('exchange', 'Exchange')], max_length=20),
        ),
        migrations.AlterField(
            model_name='ledgerentry',
            name='kind',
            field=models.CharField(choices=[('usage', 'Usage'), ('reversal', 'Reversal'), ('reentry', 'Reentry'), ('adjustment', 'Adjustment'), ('idle', 'Idle'), ('platform', 'Platform'), ('credit', 'Credit'), ('conversion', 'Conversion')], max_length=10),
        ),
        migrations.AddConstraint(
            model_name='ledgeraccount',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('cluster__isnull', True), ('kind__in', ['tenant_expense', 'tenant_converted']), ('tenant__isnull', False)), models.Q(('cluster__isnull', False), ('kind', 'cluster_pool'), ('tenant__isnull', True)), models.Q(('cluster__isnull', True), ('kind__in', ['rounding', 'adjustments', 'idle', 'overhead', 'platform', 'infrastructure', 'exchange']), ('tenant__isnull', True)), _connector='OR'), name='account_is_of_what_its_kind_says'),
        ),
        migrations.AddConstraint(
            model_name='ledgerentry',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('cluster__isnull', True), ('kind', 'adjustment'), ('tenant__isnull', True), models.Q(('reason', ''), _negated=True)), models.Q(('cluster__isnull', False), ('kind', 'idle'), ('tenant__isnull', True), models.Q(('reason', ''), _negated=True)), models.Q(('cluster__isnull', True), ('kind', 'platform'), ('tenant__isnull', True), models.Q(('reason', ''), _negated=True)), models.Q(('cluster__isnull', False), ('kind', 'credit'), ('tenant__isnull', False), models.Q(('reason', ''), _negated=True)), ('kind', 'reversal'), ('kind', 'conversion'), models.Q(('cluster__isnull', False), ('kind__in', ['usage', 'reentry']), ('tenant__isnull', False)), _connector='OR'), name='entry_says_what_it_is_for'),
        ),
        migrations.AddConstraint(
            model_name='ledgerentry',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('converts__isnull', False), ('kind', 'conversion')), models.Q(models.Q(('kind', 'conversion'), _negated=True), ('converts__isnull', True)), _connector='OR'), name='only_a_conversion_converts'),
        ),
        migrations.AddConstraint(
            model_name='ledgerline',
            constraint=models.UniqueConstraint(fields=('entry', 'account', 'currency', 'priced_currency'), name='one_line_per_account'),
        ),
        migrations.AddConstraint(
            model_name='ledgerline',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('priced_amount__isnull', True), ('priced_currency', ''), ('rate__isnull', True), ('rate_day__isnull', True), ('rate_source', '')), models.Q(('amount', django.db.models.functions.math.Round(django.db.models.expressions.CombinedExpression(models.F('priced_amount'), '*', models.F('rate')), 12)), ('priced_amount__isnull', False), ('priced_currency__regex', '^[A-Z]{3}$'), ('rate__gt', 0), ('rate__isnull', False), ('rate_day__isnull', False), models.Q(('priced_currency', models.F('currency')), _negated=True), models.Q(('rate_source', ''), _negated=True)), _connector='OR'), name='line_says_what_it_was_converted_from'),
        ),
        migrations.AddField(
            model_name='billingcurrency',
            name='organisation',
            field=models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='billing_currencies', to='tenancy.tenant'),
        ),
        migrations.AddField(
            model_name='conversionday',
            name='organisation',
            field=models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to='tenancy.tenant'),
        ),
        migrations.AddField(
            model_name='exchangerate',
            name='organisation',
            field=models.ForeignKey(null=True, on_delete=django.db.models.deletion.PROTECT, related_name='exchange_rates', to='tenancy.tenant'),
        ),
        migrations.AddIndex(
            model_name='billingcurrency',
            index=models.Index(fields=['organisation', '-effective_from', '-id'], name='billing_currency_newest_first'),
        ),
        migrations.AddConstraint(
            model_name='billingcurrency',
            constraint=models.CheckConstraint(condition=models.Q(('effective_from__day', 1)), name='billing_currency_begins_with_a_month'),
        ),
        migrations.AddConstraint(
            model_name='billingcurrency',
            constraint=models.CheckConstraint(condition=models.Q(('currency__regex', '^[A-Z]{3}$')), name='billing_currency_is_three_letters'),
        ),
        migrations.AddConstraint(
            model_name='conversionday',
            constraint=models.UniqueConstraint(fields=('organisation', 'day'), name='one_row_a_conversion_day'),
        ),
        migrations.AddIndex(
            model_name='exchangerate',
            index=models.Index(condition=models.Q(('kind', 'reference')), fields=['quote', '-valid_from', '-id'], name='reference_rates_by_day'),
        ),
        migrations.AddIndex(
            model_name='exchangerate',
            index=models.Index(condition=models.Q(('kind', 'override')), fields=['organisation', '-id'], name='overrides_newest_first'),
        ),
        migrations.AddConstraint(
            model_name='exchangerate',
            constraint=models.CheckConstraint(condition=models.Q(('base__regex', '^[A-Z]{3}$'), ('quote__regex', '^[A-Z]{3}$'), ('rate__gt', 0), models.Q(('base', models.F('quote')), _negated=True), models.Q(('source', ''), _negated=True)), name='exchange_rate_is_of_two_currencies'),
        ),
        migrations.AddConstraint(
            model_name='exchangerate',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('base', 'EUR'), ('kind', 'reference'), ('valid_until__isnull', True)), models.Q(('kind', 'override'), ('organisation__isnull', False), ('valid_until__gt', models.F('valid_from')), ('valid_until__isnull', False), models.Q(('reason', ''), _negated=True)), _connector='OR'), name='exchange_rate_counts_for_its_days'),
        ),
        migrations.RunSQL(SQL, migrations.RunSQL.noop),
    ]
