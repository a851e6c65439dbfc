"""What providers billed, and months that are reconciled with it; `sql/reconciliation.sql` has what these tables refuse."""

import django.db.models.deletion
import django.db.models.functions.datetime
from django.db import migrations, models

from foundation.rules import rules


class Migration(migrations.Migration):

    dependencies = [
        ('billing', '0022_alert_hooks'),
        ('clusters', '0014_object_stores'),
        ('tenancy', '0001_squashed_0002_weight'),
    ]

    operations = [
        migrations.CreateModel(
            name='AcceptedVariance',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('month', models.DateField(help_text='Its first day.')),
                ('currency', models.CharField(max_length=3)),
                ('cost', models.DecimalField(decimal_places=12, max_digits=38)),
                ('invoiced', models.DecimalField(decimal_places=12, max_digits=38)),
                ('note', models.CharField(max_length=500)),
                ('accepted_by_id', models.UUIDField(null=True)),
                ('accepted_by_name', models.CharField(max_length=254)),
                ('accepted_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('cluster', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to='clusters.cluster')),
                ('organisation', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to='tenancy.tenant')),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('organisation', 'month', 'cluster', 'currency', 'cost', 'invoiced'), name='one_acceptance_of_these_amounts'), models.CheckConstraint(condition=models.Q(('currency__regex', '^[A-Z]{3}$'), ('month__day', 1), models.Q(('note', ''), _negated=True), models.Q(('cost', models.F('invoiced')), _negated=True)), name='accepted_variance_says_why')],
            },
        ),
        migrations.CreateModel(
            name='ProviderInvoiceLine',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('month', models.DateField(help_text='Its first day.')),
                ('reference', models.CharField(help_text="The provider's.", max_length=120)),
                ('amount', models.DecimalField(decimal_places=12, max_digits=38)),
                ('currency', models.CharField(max_length=3)),
                ('note', models.CharField(blank=True, db_default='', default='', max_length=500)),
                ('recorded_by_id', models.UUIDField(null=True)),
                ('recorded_by_name', models.CharField(max_length=254)),
                ('recorded_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('cluster', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to='clusters.cluster')),
                ('organisation', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to='tenancy.tenant')),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('organisation', 'month', 'cluster', 'reference'), name='one_line_per_provider_reference'), models.CheckConstraint(condition=models.Q(('currency__regex', '^[A-Z]{3}$'), ('month__day', 1), models.Q(('amount', 0), _negated=True), models.Q(('reference', ''), _negated=True)), name='provider_invoice_line_is_whole')],
            },
        ),
        migrations.CreateModel(
            name='ReconciledCluster',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('revision', models.PositiveIntegerField(help_text='The close that it is of.')),
                ('currency', models.CharField(max_length=3)),
                ('charged', models.DecimalField(decimal_places=12, max_digits=38)),
                ('overhead', models.DecimalField(decimal_places=12, max_digits=38)),
                ('idle', models.DecimalField(decimal_places=12, max_digits=38)),
                ('invoiced', models.DecimalField(decimal_places=12, max_digits=38, null=True)),
                ('cluster', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to='clusters.cluster')),
                ('period', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to='billing.ledgerperiod')),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('period', 'revision', 'cluster'), name='one_reconciliation_a_cluster'), models.CheckConstraint(condition=models.Q(('currency__regex', '^[A-Z]{3}$')), name='reconciled_cluster_has_a_currency')],
            },
        ),
        migrations.CreateModel(
            name='VarianceTolerance',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('effective_from', models.DateField(help_text='The first day of a month, UTC.')),
                ('percent', models.DecimalField(decimal_places=3, max_digits=6)),
                ('made_by_id', models.UUIDField(null=True)),
                ('made_by_name', models.CharField(max_length=254)),
                ('created_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('organisation', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to='tenancy.tenant')),
            ],
            options={
                'constraints': [models.CheckConstraint(condition=models.Q(('effective_from__day', 1), ('percent__gte', 0), ('percent__lte', 100)), name='tolerance_is_a_percentage')],
            },
        ),
        rules("billing/reconciliation.sql"),
    ]
