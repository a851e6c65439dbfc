"""Work that infrastructure lost, and whether it is charged; `0010_credits.sql` computes credits and has what the tables refuse."""

import re
from pathlib import Path

import django.db.models.deletion
import django.db.models.functions.datetime
from django.db import migrations, models

HERE = Path(__file__).parent
SQL = HERE.joinpath("0010_credits.sql").read_text(encoding="utf-8")
REPLACED = {
    "0004_invoices.sql": ("billing_invoice_charges", "billing_guard_remark"),
    "0005_rollups.sql": ("billing_judge_day",),
    "0007_budget_corrections.sql": ("billing_corrections_due", "billing_open_corrections"),
}
"""What this migration replaces, and where it was written before."""


def _before(file: str, name: str) -> str:
    text = HERE.joinpath(file).read_text(encoding="utf-8")
    found = re.search(rf"CREATE OR REPLACE FUNCTION {name}\(.*?\n(?:END )?\$\$;", text, re.DOTALL)
    assert found is not None
    return found[0]


UNDO = "\n".join([
    *(_before(file, name) for file, names in REPLACED.items() for name in names),
    """
DROP TRIGGER billing_judge_credit ON billing_ledgerentry;
DROP FUNCTION billing_mark_lost_days() CASCADE;
DROP FUNCTION billing_mark_policy_days() CASCADE;
DROP FUNCTION billing_await_raters() CASCADE;
DROP FUNCTION billing_judge_credit();
DROP FUNCTION billing_sku_of(billing_ledgerentry);
DROP FUNCTION billing_is_credit(character varying, bigint);
DROP FUNCTION billing_mark_days_of_runs(uuid[], date);
DROP FUNCTION billing_waived(uuid[], timestamp with time zone, timestamp with time zone);
DROP FUNCTION billing_lost_costs(uuid[], timestamp with time zone, timestamp with time zone);
DROP FUNCTION billing_day_credit(uuid, uuid, character varying, uuid, character varying, date);
DROP FUNCTION billing_credit_policy(uuid, date);
DROP FUNCTION billing_lost(uuid);
""",
])  # fmt: skip


class Migration(migrations.Migration):

    dependencies = [
        ('billing', '0009_anomalies_over_clusters'),
        ('tenancy', '0002_weight'),
    ]

    operations = [
        migrations.CreateModel(
            name='CreditPolicy',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('effective_from', models.DateField(help_text='The first day of a month, UTC.')),
                ('causes', models.JSONField(blank=True, default=list, help_text='Sorted; empty: all lost work is charged.')),
                ('made_by_id', models.UUIDField(null=True)),
                ('made_by_name', models.CharField(max_length=254)),
                ('created_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
            ],
            options={
                'verbose_name_plural': 'credit policies',
            },
        ),
        migrations.CreateModel(
            name='LostWork',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('run_id', models.UUIDField()),
                ('cause', models.CharField(blank=True, choices=[('node_lost', 'node_lost'), ('evicted', 'evicted'), ('spot', 'spot'), ('preempted', 'preempted'), ('device', 'device'), ('infrastructure', 'infrastructure'), ('bad_node', 'bad_node'), ('cluster_lost', 'cluster_lost'), ('maintenance', 'maintenance')], max_length=20)),
                ('lost_from', models.DateTimeField(help_text='The last checkpoint, or the start; whole milliseconds.', null=True)),
                ('recorded_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
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
            field=models.CharField(choices=[('tenant_expense', 'Tenant Expense'), ('cluster_pool', 'Cluster Pool'), ('rounding', 'Rounding'), ('adjustments', 'Adjustments'), ('idle', 'Idle'), ('overhead', 'Overhead'), ('platform', 'Platform'), ('infrastructure', 'Infrastructure')], max_length=20),
        ),
        migrations.AlterField(
            model_name='ledgerentry',
            name='kind',
            field=models.CharField(choices=[('usage', 'Usage'), ('reversal', 'Reversal'), ('reentry', 'Reentry'), ('adjustment', 'Adjustment'), ('idle', 'Idle'), ('platform', 'Platform'), ('credit', 'Credit')], max_length=10),
        ),
        migrations.AddConstraint(
            model_name='ledgeraccount',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('cluster__isnull', True), ('kind', 'tenant_expense'), ('tenant__isnull', False)), models.Q(('cluster__isnull', False), ('kind', 'cluster_pool'), ('tenant__isnull', True)), models.Q(('cluster__isnull', True), ('kind__in', ['rounding', 'adjustments', 'idle', 'overhead', 'platform', 'infrastructure']), ('tenant__isnull', True)), _connector='OR'), name='account_is_of_what_its_kind_says'),
        ),
        migrations.AddConstraint(
            model_name='ledgerentry',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('cluster__isnull', True), ('kind', 'adjustment'), ('tenant__isnull', True), models.Q(('reason', ''), _negated=True)), models.Q(('cluster__isnull', False), ('kind', 'idle'), ('tenant__isnull', True), models.Q(('reason', ''), _negated=True)), models.Q(('cluster__isnull', True), ('kind', 'platform'), ('tenant__isnull', True), models.Q(('reason', ''), _negated=True)), models.Q(('cluster__isnull', False), ('kind', 'credit'), ('tenant__isnull', False), models.Q(('reason', ''), _negated=True)), ('kind', 'reversal'), models.Q(('cluster__isnull', False), ('kind__in', ['usage', 'reentry']), ('tenant__isnull', False)), _connector='OR'), name='entry_says_what_it_is_for'),
        ),
        migrations.AddField(
            model_name='creditpolicy',
            name='organisation',
            field=models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='credit_policies', to='tenancy.tenant'),
        ),
        migrations.AddIndex(
            model_name='lostwork',
            index=models.Index(fields=['run_id', '-id'], name='lost_work_newest_first'),
        ),
        migrations.AddIndex(
            model_name='lostwork',
            index=models.Index(condition=models.Q(('lost_from__isnull', False)), fields=['lost_from'], name='lost_work_by_time'),
        ),
        migrations.AddConstraint(
            model_name='lostwork',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('cause', ''), ('lost_from__isnull', True)), models.Q(('cause__in', ['node_lost', 'evicted', 'spot', 'preempted', 'device', 'infrastructure', 'bad_node', 'cluster_lost', 'maintenance']), ('lost_from__isnull', False)), _connector='OR'), name='lost_work_has_a_known_cause'),
        ),
        migrations.AddIndex(
            model_name='creditpolicy',
            index=models.Index(fields=['organisation', '-effective_from', '-id'], name='credit_policies_newest_first'),
        ),
        migrations.AddConstraint(
            model_name='creditpolicy',
            constraint=models.CheckConstraint(condition=models.Q(('effective_from__day', 1)), name='credit_policy_begins_with_a_month'),
        ),
        migrations.AddConstraint(
            model_name='creditpolicy',
            constraint=models.CheckConstraint(condition=models.Q(('causes__contains', []), ('causes__contained_by', ['node_lost', 'evicted', 'spot', 'preempted', 'device', 'infrastructure', 'bad_node', 'cluster_lost', 'maintenance'])), name='credit_policy_names_known_causes'),
        ),
        migrations.RunSQL(SQL, UNDO),
    ]
