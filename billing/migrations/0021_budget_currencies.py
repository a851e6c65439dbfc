"""Budgets count charges and holds in several currencies."""

import django.db.models.deletion
import django.db.models.functions.datetime
from django.db import migrations, models

from foundation.rules import rules


class Migration(migrations.Migration):

    dependencies = [
        ('billing', '0020_savings_plans'),
        ('tenancy', '0001_squashed_0002_weight'),
    ]

    operations = [
        migrations.CreateModel(
            name='BudgetRate',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('base', models.CharField(max_length=3)),
                ('quote', models.CharField(max_length=3)),
                ('day', models.DateField()),
                ('rate', models.DecimalField(decimal_places=18, max_digits=38)),
                ('rate_day', models.DateField(null=True)),
                ('source', models.CharField(max_length=122)),
                ('kept_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('organisation', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.PROTECT, related_name='+', to='tenancy.tenant')),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('organisation', 'base', 'quote', 'day'), name='one_budget_rate_per_currencies_and_day'), models.CheckConstraint(condition=models.Q(('base__regex', '^[A-Z]{3}$'), ('quote__regex', '^[A-Z]{3}$'), ('rate__gte', 0), models.Q(('base', models.F('quote')), _negated=True)), name='budget_rate_is_of_two_currencies')],
            },
        ),
        rules("billing/budget_currencies.sql"),
        rules("billing/budgets.sql", "FUNCTION billing_spend"),
        rules("billing/revisions.sql", "FUNCTION billing_unspend"),
        rules(
            "billing/budget_corrections.sql",
            "FUNCTION billing_corrections_due",
            "FUNCTION billing_count_corrections",
            "FUNCTION billing_budget_used",
        ),
        rules(
            "billing/price_currencies.sql",
            "FUNCTION billing_price_currencies",
            "FUNCTION billing_admit_price_currency",
            "FUNCTION billing_admit_budget_currency",
        ),
        migrations.RunSQL(
            "DROP FUNCTION IF EXISTS billing_other_price_currency(character varying, character varying, timestamp with time zone)",
            migrations.RunSQL.noop,
        ),
    ]
