"""Holds move with their tenant: the journal has lines that say so."""

from django.db import migrations, models
from django.db.models import Q

from foundation.rules import rules


class Migration(migrations.Migration):
    dependencies = [("quotas", "0001_squashed_0008_kept_idle")]

    operations = [
        migrations.AddField(
            model_name="holdmovement",
            name="nth",
            field=models.PositiveSmallIntegerField(
                db_default=0,
                default=0,
                help_text="Of the lines of a kind of a hold at a limit: more than 0 only if it moved.",
            ),
        ),
        migrations.AlterField(
            model_name="holdmovement",
            name="kind",
            field=models.CharField(choices=[("take", "Take"), ("end", "End"), ("move", "Move")], max_length=4),
        ),
        migrations.RemoveConstraint(model_name="holdmovement", name="each_hold_is_taken_and_ended_once_per_limit"),
        migrations.AddConstraint(
            model_name="holdmovement",
            constraint=models.UniqueConstraint(
                fields=("hold", "limit", "kind", "nth"), name="each_hold_is_taken_and_ended_once_per_limit"
            ),
        ),
        migrations.RemoveConstraint(model_name="holdmovement", name="takes_add_and_ends_subtract"),
        migrations.AddConstraint(
            model_name="holdmovement",
            constraint=models.CheckConstraint(
                condition=Q(kind="take", amount__gt=0, nth=0)
                | Q(kind="end", amount__lt=0, nth=0)
                | (Q(kind="move", nth__gt=0) & ~Q(amount=0)),
                name="takes_add_and_ends_subtract",
            ),
        ),
        migrations.RunSQL(
            "DROP FUNCTION IF EXISTS quotas_keep_tenant_in_place() CASCADE", migrations.RunSQL.noop
        ),
        rules(
            "quotas/holds.sql",
            "FUNCTION quotas_apply_movements",
            "FUNCTION quotas_given_back_hold_ended",
            "TRIGGER quotas_given_back_hold_ended",
        ),
        rules("quotas/moves.sql"),
    ]
