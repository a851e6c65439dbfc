"""Budgets follow corrections; `0007_budget_corrections.sql` counts them."""

from pathlib import Path

import django.db.models.deletion
from django.db import migrations, models


UNDO = """
DROP FUNCTION billing_correct_budgets() CASCADE;
DROP FUNCTION billing_judge_budget_correction() CASCADE;
DROP FUNCTION billing_open_corrections(uuid);
DROP FUNCTION billing_count_corrections(bigint[], uuid);
DROP FUNCTION billing_corrections_due(bigint[]);
DROP FUNCTION billing_budget_used(bigint);
"""


class Migration(migrations.Migration):

    dependencies = [
        ('billing', '0006_idle'),
    ]

    operations = [
        migrations.RemoveConstraint(
            model_name='budgetmovement',
            name='takes_add_and_ends_return',
        ),
        migrations.RemoveConstraint(
            model_name='budgetmovement',
            name='only_metered_time_is_spent',
        ),
        migrations.RemoveConstraint(
            model_name='budgetperiod',
            name='budget_spent_is_not_negative',
        ),
        migrations.AddField(
            model_name='budgetmovement',
            name='line',
            field=models.ForeignKey(db_index=False, help_text='What it follows.', null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to='billing.ledgerline'),
        ),
        migrations.AlterField(
            model_name='budgetmovement',
            name='kind',
            field=models.CharField(choices=[('open', 'Open'), ('take', 'Take'), ('adjust', 'Adjust'), ('post', 'Post'), ('void', 'Void'), ('correct', 'Correct')], max_length=7),
        ),
        migrations.AlterField(
            model_name='budgetmovement',
            name='run_id',
            field=models.UUIDField(help_text='The holder; runs from before an upgrade have no hold.', null=True),
        ),
        migrations.AddConstraint(
            model_name='budgetmovement',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('held__gte', 0), ('kind__in', ['open', 'take'])), ('kind', 'adjust'), models.Q(('held', 0), ('kind', 'correct')), models.Q(('held__lte', 0), ('kind__in', ['post', 'void'])), _connector='OR'), name='takes_add_and_ends_return'),
        ),
        migrations.AddConstraint(
            model_name='budgetmovement',
            constraint=models.CheckConstraint(condition=models.Q(('spent', 0), models.Q(('kind__in', ['open', 'adjust', 'post']), ('spent__gt', 0)), ('kind', 'correct'), _connector='OR'), name='only_metered_time_is_spent'),
        ),
        migrations.AddConstraint(
            model_name='budgetmovement',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('kind', 'correct'), ('line__isnull', False), ('run_id__isnull', True)), models.Q(models.Q(('kind', 'correct'), _negated=True), ('line__isnull', True), ('run_id__isnull', False)), _connector='OR'), name='a_correction_is_of_a_ledger_line'),
        ),
        migrations.AddConstraint(
            model_name='budgetmovement',
            constraint=models.UniqueConstraint(condition=models.Q(('line__isnull', False)), fields=('line', 'period'), name='a_ledger_line_corrects_once_per_budget_period'),
        ),
        migrations.RunSQL(
            Path(__file__).with_name("0007_budget_corrections.sql").read_text(encoding="utf-8"), UNDO
        ),
    ]
