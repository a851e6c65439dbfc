"""Moves for a price or a deadline keep their place, and are undone if their cluster does not answer in time."""

from datetime import timedelta

from django.db import migrations, models
from django.db.models import F, Q

from foundation.rules import rules


class Migration(migrations.Migration):
    dependencies = [
        ("federation", "0037_started_in_part"),
    ]

    operations = [
        migrations.AddField(
            model_name="move",
            name="kept_until",
            field=models.DateTimeField(
                help_text="Likewise, unless it is part of a plan: until when its place is kept. A stop that its cluster has not carried out then is revoked.",
                null=True,
            ),
        ),
        migrations.AlterField(
            model_name="move",
            name="nodes",
            field=models.JSONField(
                db_default=[],
                default=list,
                help_text="Of a move of a plan, for a price, for a deadline, or of a job that grows: the nodes that are kept for the job.",
            ),
        ),
        migrations.AlterField(
            model_name="attempt",
            name="deletion_at",
            field=models.DateTimeField(
                help_text="Of a run that moves to a place that is kept for it: when its deletion was decided. Until then it can go on.",
                null=True,
            ),
        ),
        migrations.RemoveConstraint(model_name="move", name="a_move_of_a_plan_has_its_place"),
        migrations.AddConstraint(
            model_name="move",
            constraint=models.CheckConstraint(
                condition=Q(cause="consolidation", consolidation__isnull=False, size_milli__isnull=False)
                & Q(nodes__contains=[])
                | Q(cause="growth", consolidation__isnull=True, size_milli__isnull=True)
                & Q(nodes__contains=[], amounts__contains={})
                & ~Q(nodes=[])
                | Q(cause__in=["price", "deadline"], consolidation__isnull=True, size_milli__isnull=True)
                & (Q(kept_until__isnull=False, nodes__contains=[], amounts__contains={}) | Q(nodes=[], amounts={}))
                | ~Q(cause__in=["consolidation", "growth", "price", "deadline"])
                & Q(consolidation__isnull=True, size_milli__isnull=True, nodes=[], amounts={}),
                name="a_move_of_a_plan_has_its_place",
            ),
        ),
        migrations.AddConstraint(
            model_name="move",
            constraint=models.CheckConstraint(
                condition=Q(kept_until=None)
                | Q(cause__in=["growth", "price", "deadline"], kept_until__gt=F("created_at"))
                & Q(kept_until__lte=F("created_at") + timedelta(days=1)),
                name="a_moves_place_is_kept_for_a_day_at_most",
            ),
        ),
        migrations.RemoveIndex(model_name="move", name="growing_moves"),
        migrations.AddIndex(
            model_name="move",
            index=models.Index(
                fields=["kept_until"], condition=Q(kept_until__isnull=False), name="moves_with_kept_places"
            ),
        ),
        rules("federation/withdrawn_moves.sql", "FUNCTION federation_keep_move"),
    ]
