"""Invoices, and what people decide about postings; `0004_invoices.sql` has what the tables refuse."""

from pathlib import Path

import django.contrib.postgres.fields
import django.db.models.deletion
import django.db.models.expressions
import django.db.models.functions.datetime
import foundation.ids
from django.db import migrations, models

SQL = Path(__file__).with_name("0004_invoices.sql").read_text(encoding="utf-8")
RESOLVED_EARLIER = """
DROP TRIGGER billing_guard_conflict ON billing_postingconflict;
UPDATE billing_postingconflict SET decision = 'posted' WHERE resolved_at IS NOT NULL;
"""

class Migration(migrations.Migration):

    dependencies = [
        ('billing', '0003_budgets'),
        ('clusters', '0008_images'),
        ('tenancy', '0002_weight'),
    ]

    operations = [
        migrations.CreateModel(
            name='Invoice',
            fields=[
                ('id', models.UUIDField(default=foundation.ids.new_id, editable=False, primary_key=True, serialize=False)),
                ('kind', models.CharField(choices=[('invoice', 'Invoice'), ('statement', 'Statement'), ('credit_note', 'Credit Note')], max_length=11)),
                ('sequence', models.PositiveBigIntegerField()),
                ('number', models.CharField(max_length=30)),
                ('tenant_path', models.CharField(db_collation='C', max_length=1100)),
                ('revision', models.PositiveIntegerField(help_text='The close of the period that it is of.')),
                ('edition', models.PositiveIntegerField()),
                ('currency', models.CharField(max_length=3)),
                ('exact', models.DecimalField(decimal_places=12, help_text='What the ledger says.', max_digits=38)),
                ('subtotal', models.DecimalField(decimal_places=12, max_digits=38)),
                ('tax', models.DecimalField(decimal_places=12, max_digits=38)),
                ('total', models.DecimalField(decimal_places=12, max_digits=38)),
                ('tax_rate', models.DecimalField(decimal_places=3, max_digits=6, null=True)),
                ('reason', models.CharField(blank=True, max_length=500)),
                ('line_count', models.PositiveIntegerField()),
                ('document', models.TextField()),
                ('digest', models.CharField(max_length=64)),
                ('issued_by_id', models.UUIDField(null=True)),
                ('issued_by_name', models.CharField(max_length=254)),
                ('issued_at', models.DateTimeField()),
            ],
        ),
        migrations.CreateModel(
            name='InvoiceLine',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('number', models.PositiveIntegerField()),
                ('kind', models.CharField(max_length=10)),
                ('tenant_path', models.CharField(db_collation='C', max_length=1100)),
                ('cluster_name', models.CharField(blank=True, max_length=253)),
                ('flavor', models.CharField(blank=True, max_length=120)),
                ('month', models.DateField(help_text='Of use.')),
                ('quantity', models.BigIntegerField(null=True)),
                ('exact', models.DecimalField(decimal_places=12, max_digits=38)),
                ('amount', models.DecimalField(decimal_places=12, help_text='In the minor unit.', max_digits=38)),
                ('tax', models.DecimalField(decimal_places=12, help_text='Its part of the tax.', max_digits=38)),
            ],
        ),
        migrations.CreateModel(
            name='InvoiceRemark',
            fields=[
                ('id', models.UUIDField(default=foundation.ids.new_id, editable=False, primary_key=True, serialize=False)),
                ('kind', models.CharField(choices=[('remark', 'Remark'), ('dispute', 'Dispute')], max_length=7)),
                ('state', models.CharField(choices=[('open', 'Open'), ('answered', 'Answered'), ('resolved', 'Resolved')], db_default='open', default='open', max_length=8)),
                ('entries', django.contrib.postgres.fields.ArrayField(base_field=models.BigIntegerField(), db_default=[], default=list, help_text="Ids of the ledger's entries; the trigger sets them.", size=None)),
                ('text', models.CharField(max_length=500)),
                ('opened_by_id', models.UUIDField(null=True)),
                ('opened_by_name', models.CharField(max_length=254)),
                ('opened_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('answer', models.CharField(blank=True, db_default='', default='', max_length=500)),
                ('answered_by_name', models.CharField(blank=True, db_default='', default='', max_length=254)),
                ('answered_at', models.DateTimeField(null=True)),
                ('outcome', models.CharField(blank=True, choices=[('accepted', 'Accepted'), ('rejected', 'Rejected')], db_default='', default='', max_length=8)),
                ('resolved_by_id', models.UUIDField(null=True)),
                ('resolved_by_name', models.CharField(blank=True, db_default='', default='', max_length=254)),
                ('resolved_at', models.DateTimeField(null=True)),
            ],
        ),
        migrations.CreateModel(
            name='InvoiceTerms',
            fields=[
                ('tenant', models.OneToOneField(on_delete=django.db.models.deletion.PROTECT, primary_key=True, related_name='invoice_terms', serialize=False, to='tenancy.tenant')),
                ('issuer', models.CharField(blank=True, help_text="Empty: the organisation's name.", max_length=200)),
                ('tax_rate', models.DecimalField(decimal_places=3, help_text='Percent; null: no tax line.', max_digits=6, null=True)),
                ('tax_name', models.CharField(blank=True, max_length=40)),
                ('payment_days', models.PositiveSmallIntegerField(default=30)),
                ('cost_centre', models.CharField(blank=True, max_length=200)),
                ('gl_account', models.CharField(blank=True, max_length=200)),
                ('remark', models.CharField(blank=True, max_length=500)),
                ('updated_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
            ],
        ),
        migrations.AddField(
            model_name='ledgerline',
            name='quantity',
            field=models.BigIntegerField(help_text='What was used for it, in thousandths of a GPU (or slice, or core) times milliseconds; null: not known.', null=True),
        ),
        migrations.AddField(
            model_name='postingconflict',
            name='decision',
            field=models.CharField(blank=True, choices=[('posted', 'Posted'), ('offered', 'Offered')], db_default='', default='', help_text='Which content stands.', max_length=7),
        ),
        migrations.RunSQL(RESOLVED_EARLIER, migrations.RunSQL.noop),
        migrations.AddConstraint(
            model_name='postingconflict',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('decision', ''), ('resolved_at__isnull', True)), models.Q(('decision__in', ['posted', 'offered']), ('resolved_at__isnull', False)), _connector='OR'), name='resolved_conflict_says_which_stands'),
        ),
        migrations.AddField(
            model_name='invoice',
            name='organisation',
            field=models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='invoices_issued', to='tenancy.tenant'),
        ),
        migrations.AddField(
            model_name='invoice',
            name='period',
            field=models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='invoices', to='billing.ledgerperiod'),
        ),
        migrations.AddField(
            model_name='invoice',
            name='reference',
            field=models.ForeignKey(null=True, on_delete=django.db.models.deletion.PROTECT, related_name='credit_notes', to='billing.invoice'),
        ),
        migrations.AddField(
            model_name='invoice',
            name='tenant',
            field=models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='invoices', to='tenancy.tenant'),
        ),
        migrations.CreateModel(
            name='InvoiceBalance',
            fields=[
                ('line', models.OneToOneField(on_delete=django.db.models.deletion.PROTECT, primary_key=True, related_name='balance', serialize=False, to='billing.invoiceline')),
                ('amount', models.DecimalField(decimal_places=12, max_digits=38)),
                ('tax', models.DecimalField(decimal_places=12, max_digits=38)),
                ('credited', models.DecimalField(decimal_places=12, max_digits=38)),
                ('credited_tax', models.DecimalField(decimal_places=12, max_digits=38)),
            ],
        ),
        migrations.AddField(
            model_name='invoiceline',
            name='cluster',
            field=models.ForeignKey(null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to='clusters.cluster'),
        ),
        migrations.AddField(
            model_name='invoiceline',
            name='credits',
            field=models.ForeignKey(null=True, on_delete=django.db.models.deletion.PROTECT, related_name='credited_by', to='billing.invoiceline'),
        ),
        migrations.AddField(
            model_name='invoiceline',
            name='invoice',
            field=models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='lines', to='billing.invoice'),
        ),
        migrations.AddField(
            model_name='invoiceremark',
            name='line',
            field=models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='remarks', to='billing.invoiceline'),
        ),
        migrations.AddField(
            model_name='invoiceremark',
            name='organisation',
            field=models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to='tenancy.tenant'),
        ),
        migrations.AddConstraint(
            model_name='invoiceterms',
            constraint=models.CheckConstraint(condition=models.Q(('tax_rate__isnull', True), models.Q(('tax_rate__gt', 0), ('tax_rate__lte', 100)), _connector='OR'), name='tax_rate_is_a_percentage'),
        ),
        migrations.AddConstraint(
            model_name='invoiceterms',
            constraint=models.CheckConstraint(condition=models.Q(('payment_days__lte', 365)), name='payment_is_within_a_year'),
        ),
        migrations.AddIndex(
            model_name='invoice',
            index=models.Index(fields=['tenant', 'period'], name='invoices_by_tenant'),
        ),
        migrations.AddConstraint(
            model_name='invoice',
            constraint=models.UniqueConstraint(fields=('organisation', 'kind', 'sequence'), name='one_document_per_number'),
        ),
        migrations.AddConstraint(
            model_name='invoice',
            constraint=models.UniqueConstraint(condition=models.Q(('kind', 'credit_note'), _negated=True), fields=('period', 'revision', 'tenant', 'currency', 'edition'), name='one_invoice_per_close_and_edition'),
        ),
        migrations.AddConstraint(
            model_name='invoice',
            constraint=models.CheckConstraint(condition=models.Q(('total', django.db.models.expressions.CombinedExpression(models.F('subtotal'), '+', models.F('tax')))), name='total_is_subtotal_and_tax'),
        ),
        migrations.AddConstraint(
            model_name='invoice',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('kind', 'credit_note'), ('reference__isnull', False), models.Q(('reason', ''), _negated=True)), models.Q(('kind__in', ['invoice', 'statement']), ('reason', ''), ('reference__isnull', True)), _connector='OR'), name='only_a_credit_note_has_a_reference'),
        ),
        migrations.AddConstraint(
            model_name='invoice',
            constraint=models.CheckConstraint(condition=models.Q(('edition__gte', 1), ('sequence__gte', 1)), name='documents_count_from_one'),
        ),
        migrations.AddConstraint(
            model_name='invoice',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('kind', 'statement'), _negated=True), ('tax', 0), _connector='OR'), name='statement_has_no_tax'),
        ),
        migrations.AddConstraint(
            model_name='invoice',
            constraint=models.CheckConstraint(condition=models.Q(('currency__regex', '^[A-Z]{3}$')), name='invoice_currency_is_three_letters'),
        ),
        migrations.AddConstraint(
            model_name='invoicebalance',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(models.Q(('amount__gte', 0), ('credited__gte', 0), ('credited__lte', models.F('amount'))), models.Q(('amount__lt', 0), ('credited__gte', models.F('amount')), ('credited__lte', 0)), _connector='OR'), models.Q(models.Q(('credited_tax__gte', 0), ('credited_tax__lte', models.F('tax')), ('tax__gte', 0)), models.Q(('credited_tax__gte', models.F('tax')), ('credited_tax__lte', 0), ('tax__lt', 0)), _connector='OR')), name='credit_is_at_most_what_was_invoiced'),
        ),
        migrations.AddConstraint(
            model_name='invoiceline',
            constraint=models.UniqueConstraint(fields=('invoice', 'number'), name='one_line_per_number'),
        ),
        migrations.AddConstraint(
            model_name='invoiceline',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('credits__isnull', False), ('kind', 'credit'), models.Q(('amount', 0), _negated=True)), models.Q(('credits__isnull', True), ('kind__in', ['charge', 'correction', 'adjustment'])), _connector='OR'), name='only_a_credit_credits'),
        ),
        migrations.AddIndex(
            model_name='invoiceremark',
            index=models.Index(condition=models.Q(('state', 'resolved'), _negated=True), fields=['organisation'], name='remarks_to_resolve'),
        ),
        migrations.AddConstraint(
            model_name='invoiceremark',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('text', ''), _negated=True), ('kind__in', ['remark', 'dispute'])), name='remark_says_something'),
        ),
        migrations.AddConstraint(
            model_name='invoiceremark',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('answer', ''), ('answered_at__isnull', True), ('state', 'open')), models.Q(('answered_at__isnull', False), ('state__in', ['answered', 'resolved']), models.Q(('answer', ''), _negated=True)), _connector='OR'), name='answered_remark_has_its_answer'),
        ),
        migrations.AddConstraint(
            model_name='invoiceremark',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('outcome__in', ['accepted', 'rejected']), ('resolved_at__isnull', False), ('state', 'resolved')), models.Q(('outcome', ''), ('resolved_at__isnull', True), models.Q(('state', 'resolved'), _negated=True)), _connector='OR'), name='resolved_remark_has_its_outcome'),
        ),
        migrations.AddConstraint(
            model_name='invoiceremark',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('kind', 'dispute'), ('outcome', 'accepted'), _negated=True), ('resolved_by_id__isnull', True), ('opened_by_id__isnull', True), models.Q(('resolved_by_id', models.F('opened_by_id')), _negated=True), _connector='OR'), name='accepted_dispute_needs_two_people'),
        ),
        migrations.RunSQL(SQL, migrations.RunSQL.noop),
    ]
